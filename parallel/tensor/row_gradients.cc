#include "brigade/parallel/tensor/row_gradients.h"

#include <algorithm>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "absl/strings/str_cat.h"
#include "brigade/device/status_macros.h"
#include "brigade/kernels/cast/cast.h"

namespace brigade::parallel {
namespace {

using precision::DType;

constexpr size_t kSegmentsAtOnce = 16;

ShardSumOptions SumOptions(const TensorShards& shards, DType dtype, int64_t elements) {
  return {.shards = shards, .dtype = dtype, .elements = elements};
}

}  // namespace

int64_t RowGradients::Bytes(const TensorShards& shards, DType dtype, int64_t elements) {
  return (shards.local() + 1) * elements * precision::SizeOf(dtype) +
         ShardSums::Bytes(SumOptions(shards, dtype, elements));
}

collectives::CollectiveSignature RowGradients::SignatureOf(const TensorShards& shards, DType dtype,
                                                           int64_t elements) {
  return ShardSums::SignatureOf(SumOptions(shards, dtype, elements), elements);
}

absl::StatusOr<std::unique_ptr<RowGradients>> RowGradients::Create(const TensorShards& shards,
                                                                   DType dtype, int64_t elements,
                                                                   collectives::Communicator* ranks,
                                                                   device::Context& context) {
  if (!precision::IsTrainingFormat(dtype)) {
    return absl::InvalidArgumentError(absl::StrCat("row gradients: dtype is ",
                                                   precision::Name(dtype),
                                                   "; it must be float32, float16 or bfloat16"));
  }
  const ShardSumOptions options = SumOptions(shards, dtype, elements);
  BRIGADE_ASSIGN_OR_RETURN(auto sums, ShardSums::Create(options, ranks, context));
  BRIGADE_ASSIGN_OR_RETURN(
      auto memory, context.Allocate((shards.local() + 1) * elements * precision::SizeOf(dtype),
                                    device::Purpose::kScratch, "gradients of blocks of rows"));
  return std::unique_ptr<RowGradients>(
      new RowGradients(dtype, elements, std::move(sums), std::move(memory)));
}

RowGradients::RowGradients(DType dtype, int64_t elements, std::unique_ptr<ShardSums> sums,
                           device::Buffer memory)
    : dtype_(dtype), elements_(elements), sums_(std::move(sums)), memory_(std::move(memory)) {}

void* RowGradients::Block(int block, int64_t offset) const {
  return static_cast<char*>(memory_.data()) +
         (block * elements_ + offset) * precision::SizeOf(dtype_);
}

absl::Status RowGradients::Sum(absl::Span<const Target> targets, device::Stream& stream) {
  int64_t size = 0;
  for (const Target& target : targets) size = std::max(size, target.offset + target.size);
  const auto widen = [&](int block, void* partial, DType dtype) {
    const kernels::CastSegment segment[] = {{Block(block, 0), partial, size}};
    return kernels::Cast(segment, {.source_dtype = dtype_, .target_dtype = dtype}, stream);
  };
  BRIGADE_RETURN_IF_ERROR(sums_->Sum(1, size, widen, Total(), stream));
  for (const bool accumulate : {false, true}) {
    // Without an allocation, however many there are.
    absl::InlinedVector<kernels::CastSegment, kSegmentsAtOnce> segments;
    const auto deliver = [&]() -> absl::Status {
      if (segments.empty()) return absl::OkStatus();
      const absl::Status delivered = kernels::Cast(
          segments, {.source_dtype = dtype_, .target_dtype = dtype_, .accumulate = accumulate},
          stream);
      segments.clear();
      return delivered;
    };
    for (const Target& target : targets) {
      if (target.gradient.accumulate != accumulate || target.gradient.data == nullptr) continue;
      const char* const from =
          static_cast<const char*>(Total()) + target.offset * precision::SizeOf(dtype_);
      segments.push_back({from, target.gradient.data, target.size});
      if (segments.size() == kSegmentsAtOnce) BRIGADE_RETURN_IF_ERROR(deliver());
    }
    BRIGADE_RETURN_IF_ERROR(deliver());
  }
  return absl::OkStatus();
}

}  // namespace brigade::parallel
