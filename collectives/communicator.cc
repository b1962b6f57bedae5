#include "brigade/collectives/communicator.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "brigade/device/status_macros.h"
#include "brigade/kernels/common/arguments.h"

namespace brigade::collectives {
namespace {

constexpr int64_t kNotInPlace = -1;

// Where in place the smaller array lies in the larger one.
int64_t InPlaceOffset(const CallShape& shape, int rank) {
  switch (shape.kind) {
    case CallKind::kAllReduce:
    case CallKind::kBroadcast:
      return 0;
    case CallKind::kReduceScatter:
    case CallKind::kAllGather:
      return rank * shape.count;
    default:
      return kNotInPlace;
  }
}

absl::Status Invalid(const CallShape& shape, const std::string& what) {
  return absl::InvalidArgumentError(absl::StrCat(Name(shape.kind), ": ", what));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Communicator>> Communicator::Create(std::unique_ptr<Engine> engine,
                                                                   device::Context& context) {
  if (engine == nullptr) return absl::InvalidArgumentError("communicator: engine is null");
  BRIGADE_ASSIGN_OR_RETURN(last, context.NewEvent("communicator"));
  return std::unique_ptr<Communicator>(
      new Communicator(std::move(engine), context, std::move(last)));
}

Communicator::Communicator(std::unique_ptr<Engine> engine, device::Context& context,
                           std::unique_ptr<device::Event> last)
    : engine_(std::move(engine)),
      context_(context),
      last_(std::move(last)),
      sends_(static_cast<size_t>(engine_->size())),
      receives_(static_cast<size_t>(engine_->size())) {}

// Everything that one rank can know to be wrong.
absl::Status Communicator::Check(const Call& call, device::Stream& stream) const {
  const CallShape& shape = call.shape;
  if (!precision::IsValid(shape.dtype)) return Invalid(shape, "dtype is invalid");
  if (shape.op > kernels::ReduceOp::kMax || shape.algorithm > Algorithm::kRing) {
    return Invalid(shape, absl::StrCat("operation ", static_cast<int>(shape.op), ", algorithm ",
                                       static_cast<int>(shape.algorithm)));
  }
  const auto rank_is_wrong = [&](int rank) { return rank < 0 || rank >= size(); };
  if (rank_is_wrong(shape.root) || rank_is_wrong(call.peer)) {
    return Invalid(shape, absl::StrCat("rank ", rank_is_wrong(shape.root) ? shape.root : call.peer,
                                       " is not in a group of ", size()));
  }
  if (shape.kind == CallKind::kSend && call.peer == rank()) {
    return Invalid(shape, absl::StrCat("rank ", rank(), " sends to itself"));
  }
  if (stream.device() != context_.device()) {
    return Invalid(shape, absl::StrCat("the stream is on ", stream.device().ToString(),
                                       ", the communicator on ", context_.device().ToString()));
  }
  if (shape.count < 0) return Invalid(shape, absl::StrCat("count is ", shape.count));
  constexpr int64_t kMost = int64_t{1} << 56;
  if (shape.count > kMost / precision::SizeOf(shape.dtype) / size()) {
    return Invalid(shape, absl::StrCat("count is ", shape.count, ", more than any address space"));
  }
  const int64_t element_bytes = precision::SizeOf(shape.dtype);
  const int64_t input_elements = InputElements(shape, rank(), size());
  const int64_t output_elements = OutputElements(shape, rank(), size());
  const int64_t offset = InPlaceOffset(shape, rank());
  const char* const begin =
      static_cast<const char*>(input_elements < output_elements ? call.output : call.input);
  const char* const inner =
      static_cast<const char*>(input_elements < output_elements ? call.input : call.output);
  const bool in_place =
      offset != kNotInPlace && begin != nullptr && inner == begin + offset * element_bytes;
  const std::string name(Name(shape.kind));
  kernels::ListArguments arguments(
      name, {{"input", element_bytes, false}, {"output", element_bytes, true}}, stream);
  // In place the larger array stands for both.
  if (!in_place || input_elements > output_elements) {
    BRIGADE_RETURN_IF_ERROR(arguments.AddArray(0, -1, call.input, input_elements));
  }
  if (!in_place || input_elements <= output_elements) {
    BRIGADE_RETURN_IF_ERROR(arguments.AddArray(1, -1, call.output, output_elements));
  }
  return arguments.CheckOverlap();
}

absl::Status Communicator::Run(Call call, device::Stream& stream) {
  BRIGADE_RETURN_IF_ERROR(Check(call, stream));
  BRIGADE_RETURN_IF_ERROR(engine_->status());
  if (last_stream_ != nullptr && last_stream_ != &stream) {
    BRIGADE_RETURN_IF_ERROR(stream.Wait(*last_));
  }
  if (call.shape.kind == CallKind::kSend) {
    std::vector<uint64_t>& calls = rank() == call.shape.root ? sends_ : receives_;
    call.sequence = calls[static_cast<size_t>(call.peer)]++;
  } else {
    call.sequence = calls_++;
  }
  BRIGADE_RETURN_IF_ERROR(engine_->Run(call, stream));
  last_stream_ = &stream;
  return stream.Record(*last_);
}

absl::Status Communicator::AllReduce(const void* input, void* output, int64_t count,
                                     const ReduceOptions& options, device::Stream& stream) {
  return Run({.shape = {CallKind::kAllReduce, options.algorithm, options.dtype, options.op, count},
              .input = input,
              .output = output},
             stream);
}

absl::Status Communicator::ReduceScatter(const void* input, void* output, int64_t count,
                                         const ReduceOptions& options, device::Stream& stream) {
  return Run(
      {.shape = {CallKind::kReduceScatter, options.algorithm, options.dtype, options.op, count},
       .input = input,
       .output = output},
      stream);
}

absl::Status Communicator::AllGather(const void* input, void* output, int64_t count,
                                     const MoveOptions& options, device::Stream& stream) {
  return Run({.shape = {CallKind::kAllGather, options.algorithm, options.dtype, {}, count},
              .input = input,
              .output = output},
             stream);
}

absl::Status Communicator::AllToAll(const void* input, void* output, int64_t count,
                                    const MoveOptions& options, device::Stream& stream) {
  return Run({.shape = {CallKind::kAllToAll, options.algorithm, options.dtype, {}, count},
              .input = input,
              .output = output},
             stream);
}

absl::Status Communicator::Broadcast(const void* input, void* output, int64_t count, int root,
                                     const MoveOptions& options, device::Stream& stream) {
  return Run({.shape = {CallKind::kBroadcast, options.algorithm, options.dtype, {}, count, root},
              .input = input,
              .output = output},
             stream);
}

absl::Status Communicator::Send(const void* input, int64_t count, int to,
                                const MoveOptions& options, device::Stream& stream) {
  return Run({.shape = {CallKind::kSend, options.algorithm, options.dtype, {}, count, rank()},
              .input = input,
              .peer = to},
             stream);
}

absl::Status Communicator::Receive(void* output, int64_t count, int from,
                                   const MoveOptions& options, device::Stream& stream) {
  return Run({.shape = {CallKind::kSend, options.algorithm, options.dtype, {}, count, from},
              .output = output,
              .peer = from},
             stream);
}

absl::Status Communicator::Barrier(device::Stream& stream) {
  return Run({.shape = {CallKind::kBarrier}}, stream);
}

absl::StatusOr<std::unique_ptr<Communicator>> Communicator::Split(int color, int key) {
  const uint64_t generation = generations_++;
  std::vector<int64_t> all(static_cast<size_t>(2 * size()));
  BRIGADE_RETURN_IF_ERROR(engine_->Exchange({color, key}, absl::MakeSpan(all)));
  std::vector<std::tuple<int64_t, int>> members;  // key, rank
  for (int rank = 0; rank < size(); ++rank) {
    const auto i = static_cast<size_t>(2 * rank);
    if (color >= 0 && all[i] == color) members.emplace_back(all[i + 1], rank);
  }
  std::sort(members.begin(), members.end());
  std::vector<int> ranks;
  for (const auto& [each_key, rank] : members) ranks.push_back(rank);
  BRIGADE_ASSIGN_OR_RETURN(engine, engine_->Split(ranks, generation));
  if (engine == nullptr) return std::unique_ptr<Communicator>();
  return Create(std::move(engine), context_);
}

absl::StatusOr<std::unique_ptr<Communicator>> Communicator::Shrink(absl::Span<const int> lost) {
  std::vector<int> ranks;
  for (const int rank : lost) {
    if (rank < 0 || rank >= size() || rank == this->rank()) {
      return absl::InvalidArgumentError(absl::StrCat("shrink: rank ", this->rank(), " of ", size(),
                                                     " cannot go on without rank ", rank));
    }
  }
  for (int rank = 0; rank < size(); ++rank) {
    if (std::find(lost.begin(), lost.end(), rank) == lost.end()) ranks.push_back(rank);
  }
  BRIGADE_ASSIGN_OR_RETURN(engine, engine_->NewEngine(ranks, lost, generations_++));
  return Create(std::move(engine), context_);
}

}  // namespace brigade::collectives
