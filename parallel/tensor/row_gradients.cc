#include "brigade/parallel/tensor/row_gradients.h"

#include <algorithm>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "absl/strings/str_cat.h"
#include "brigade/device/status_macros.h"
#include "brigade/kernels/cast/cast.h"
#include "brigade/parallel/tensor/row_pieces.h"
#include "brigade/precision/dtype_names.h"

namespace brigade::parallel {
namespace {

using precision::DType;

constexpr size_t kSegmentsAtOnce = 16;

ShardSumOptions SumOptions(const RowGradientOptions& options) {
  return {.shards = options.shards, .dtype = options.dtype, .elements = options.elements};
}

// Of the blocks, and of their sum.
int64_t OwnBytes(const RowGradientOptions& options) {
  return (int64_t{options.shards.local()} * options.pieces + 1) * options.elements *
         precision::SizeOf(options.dtype);
}

}  // namespace

int64_t RowGradients::Bytes(const RowGradientOptions& options) {
  return OwnBytes(options) + ShardSums::Bytes(SumOptions(options));
}

collectives::CollectiveSignature RowGradients::SignatureOf(const RowGradientOptions& options,
                                                           int64_t elements) {
  return ShardSums::SignatureOf(SumOptions(options), elements);
}

absl::StatusOr<std::unique_ptr<RowGradients>> RowGradients::Create(
    const RowGradientOptions& options, collectives::Communicator* ranks, device::Context& context) {
  if (!precision::IsTrainingFormat(options.dtype)) {
    return absl::InvalidArgumentError(absl::StrCat("row gradients: dtype is ",
                                                   precision::ShortName(options.dtype),
                                                   "; it must be fp32, fp16 or bf16"));
  }
  if (options.pieces < 1 || options.pieces > kMostPieces) {
    return absl::InvalidArgumentError(absl::StrCat("row gradients: pieces is ", options.pieces,
                                                   "; it must be 1 to ", kMostPieces));
  }
  BRIGADE_ASSIGN_OR_RETURN(auto sums, ShardSums::Create(SumOptions(options), ranks, context));
  BRIGADE_ASSIGN_OR_RETURN(auto memory,
                           context.Allocate(OwnBytes(options), device::Purpose::kScratch,
                                            "gradients of blocks of rows"));
  return std::unique_ptr<RowGradients>(
      new RowGradients(options, std::move(sums), std::move(memory)));
}

RowGradients::RowGradients(const RowGradientOptions& options, std::unique_ptr<ShardSums> sums,
                           device::Buffer memory)
    : options_(options), sums_(std::move(sums)), memory_(std::move(memory)) {}

void* RowGradients::Block(int piece, int block, int64_t offset) const {
  const int64_t index = int64_t{piece} * options_.shards.local() + block;
  return static_cast<char*>(memory_.data()) +
         (index * options_.elements + offset) * precision::SizeOf(options_.dtype);
}

absl::Status RowGradients::Sum(absl::Span<const Target> targets, device::Stream& stream) {
  int64_t size = 0;
  for (const Target& target : targets) size = std::max(size, target.offset + target.size);
  const auto widen = [&](int block, const RowRange&, void* partial, DType dtype) -> absl::Status {
    for (int p = 0; p < options_.pieces; ++p) {
      const kernels::CastSegment segment[] = {{Block(p, block, 0), partial, size}};
      BRIGADE_RETURN_IF_ERROR(kernels::Cast(
          segment, {.source_dtype = options_.dtype, .target_dtype = dtype, .accumulate = p > 0},
          stream));
    }
    return absl::OkStatus();
  };
  BRIGADE_RETURN_IF_ERROR(sums_->Sum(1, size, widen, Total(), stream));
  for (const bool accumulate : {false, true}) {
    // Without an allocation, however many there are.
    absl::InlinedVector<kernels::CastSegment, kSegmentsAtOnce> segments;
    const auto deliver = [&]() -> absl::Status {
      if (segments.empty()) return absl::OkStatus();
      const absl::Status delivered = kernels::Cast(segments,
                                                   {.source_dtype = options_.dtype,
                                                    .target_dtype = options_.dtype,
                                                    .accumulate = accumulate},
                                                   stream);
      segments.clear();
      return delivered;
    };
    for (const Target& target : targets) {
      if (target.gradient.accumulate != accumulate || target.gradient.data == nullptr) continue;
      const char* const from =
          static_cast<const char*>(Total()) + target.offset * precision::SizeOf(options_.dtype);
      segments.push_back({from, target.gradient.data, target.size});
      if (segments.size() == kSegmentsAtOnce) BRIGADE_RETURN_IF_ERROR(deliver());
    }
    BRIGADE_RETURN_IF_ERROR(deliver());
  }
  return absl::OkStatus();
}

}  // namespace brigade::parallel
