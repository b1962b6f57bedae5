#include "brigade/benchmarks/parallel/rank.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "brigade/benchmarks/zero/throttled_engine.h"
#include "brigade/device/status_macros.h"
#include "brigade/nn/random.h"

namespace brigade::benchmarks {

using collectives::CollectiveKind;
using collectives::CollectiveSignature;

absl::StatusOr<std::unique_ptr<ParallelRank>> ParallelRank::Create(int rank,
                                                                   collectives::ThreadGroup& group,
                                                                   double bytes_per_second) {
  auto made = std::make_unique<ParallelRank>();
  device::ContextOptions options;
  options.compute_threads = 1;
  options.checks = false;
  BRIGADE_ASSIGN_OR_RETURN(made->context_, device::Context::Create(options));
  BRIGADE_ASSIGN_OR_RETURN(made->stream_, made->context_->CreateStream("compute"));
  BRIGADE_ASSIGN_OR_RETURN(auto engine, group.Join(rank, *made->context_));
  BRIGADE_ASSIGN_OR_RETURN(
      made->communicator_,
      collectives::Communicator::Create(CreateThrottledEngine(std::move(engine), bytes_per_second),
                                        *made->context_));
  return made;
}

absl::StatusOr<device::Buffer> ParallelRank::Noise(int64_t elements, precision::DType dtype,
                                                   double scale) {
  BRIGADE_ASSIGN_OR_RETURN(device::Buffer buffer,
                           context_->Allocate(elements * precision::SizeOf(dtype),
                                              device::Purpose::kScratch, "benchmark"));
  nn::Random random(1, arrays_++);
  precision::VisitFloat(dtype, [&](auto tag) {
    using T = decltype(tag);
    for (T& value : buffer.as<T>()) {
      value = T(static_cast<float>(scale * (2 * random.Uniform() - 1)));
    }
  });
  return buffer;
}

int64_t ParallelRank::sent_bytes() const {
  int64_t sent = 0;
  for (int to = 0; to < ranks(); ++to) sent += communicator_->sent_bytes(to);
  return sent;
}

absl::StatusOr<std::unique_ptr<CollectivesAlone>> CollectivesAlone::Create(
    std::vector<CollectiveSignature> calls, ParallelRank& rank) {
  std::unique_ptr<CollectivesAlone> made(new CollectivesAlone(std::move(calls), rank));
  int64_t input = 0, output = 0;
  for (const CollectiveSignature& call : made->calls_) {
    const int64_t size = precision::SizeOf(call.dtype);
    input = std::max(input, size * InputElements(call, rank.rank(), rank.ranks()));
    output = std::max(output, size * OutputElements(call, rank.rank(), rank.ranks()));
    BRIGADE_RETURN_IF_ERROR(rank.communicator().Reserve(call));
  }
  BRIGADE_ASSIGN_OR_RETURN(made->input_, rank.Noise(input / 4 + 1, precision::DType::kFloat32, 1));
  BRIGADE_ASSIGN_OR_RETURN(made->output_,
                           rank.Noise(output / 4 + 1, precision::DType::kFloat32, 1));
  return made;
}

absl::Status CollectivesAlone::Enqueue() {
  collectives::Communicator& ranks = rank_.communicator();
  device::Stream& stream = rank_.stream();
  for (const CollectiveSignature& call : calls_) {
    const void* const in = input_.data();
    void* const out = output_.data();
    const collectives::ReduceOptions how = {.reduction = call.reduction,
                                            .algorithm = call.algorithm};
    switch (call.kind) {
      case CollectiveKind::kAllReduce:
        BRIGADE_RETURN_IF_ERROR(ranks.AllReduce(in, out, call.count, call.dtype, how, stream));
        break;
      case CollectiveKind::kReduceScatter:
        BRIGADE_RETURN_IF_ERROR(ranks.ReduceScatter(in, out, call.count, call.dtype, how, stream));
        break;
      case CollectiveKind::kAllGather:
        BRIGADE_RETURN_IF_ERROR(ranks.AllGather(in, out, call.count, call.dtype,
                                                {.algorithm = call.algorithm}, stream));
        break;
      case CollectiveKind::kShift:
        BRIGADE_RETURN_IF_ERROR(ranks.Shift(in, out, call.count, call.dtype, call.root, stream));
        break;
      default:
        return absl::UnimplementedError(absl::StrCat("no benchmark of ", Name(call.kind)));
    }
  }
  return absl::OkStatus();
}

}  // namespace brigade::benchmarks
