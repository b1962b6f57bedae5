#include "brigade/parallel/tensor/shard_sums.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "brigade/device/status_macros.h"
#include "brigade/kernels/cast/cast.h"
#include "brigade/kernels/reduce/reduce.h"

namespace brigade::parallel {
namespace {

using collectives::Algorithm;
using collectives::CollectiveKind;
using collectives::Reduction;
using precision::DType;

// In which products are added.
DType WideType(DType dtype) { return precision::SizeOf(dtype) == 2 ? DType::kFloat32 : dtype; }

DType WireType(const ShardSumOptions& options) {
  return options.wire == SumWire::kModel ? options.dtype : WideType(options.dtype);
}

// Of a rank's product or sum of products, before it is rounded for the wire. A single product can
// be rounded by itself.
DType PartialType(const ShardSumOptions& options) {
  return options.shards.local() == 1 ? WireType(options) : WideType(options.dtype);
}

// Partial sums that exist at a time.
int Levels(const TensorShards& shards) {
  int levels = 1;
  while (1 << levels <= shards.local()) ++levels;
  return levels;
}

// Rounded up, so that all levels are aligned alike.
int64_t LevelBytes(const ShardSumOptions& options) {
  return (options.elements * precision::SizeOf(PartialType(options)) + 255) / 256 * 256;
}

}  // namespace

absl::Status CheckRanks(const TensorShards& shards, const collectives::Communicator* ranks) {
  return ranks == nullptr ? Validate(shards, 0, 1) : Validate(shards, ranks->rank(), ranks->size());
}

int64_t ShardSums::Bytes(const ShardSumOptions& options) {
  if (options.shards.count == 1) return 0;
  return Levels(options.shards) * LevelBytes(options);
}

collectives::CollectiveSignature ShardSums::SignatureOf(const ShardSumOptions& options,
                                                        int64_t elements) {
  const bool all = options.part == SumPart::kAll;
  const bool tree = options.wire == SumWire::kFloat32;
  return {.kind = all ? CollectiveKind::kAllReduce : CollectiveKind::kReduceScatter,
          .algorithm = tree ? Algorithm::kHalvingDoubling : Algorithm::kDirect,
          .dtype = WireType(options),
          .count = all ? elements : elements / options.shards.ranks,
          .reduction = tree ? Reduction::kRoundedPerHop : Reduction::kRoundedOnce};
}

collectives::CollectiveSignature ShardSums::SignatureOfOne(const ShardSumOptions& options,
                                                           int64_t elements) {
  const collectives::ReduceOptions how;
  collectives::CollectiveSignature signature = SignatureOf(options, elements);
  signature.algorithm = how.algorithm;
  signature.reduction = how.reduction;
  signature.dtype = options.dtype;
  return signature;
}

absl::StatusOr<std::unique_ptr<ShardSums>> ShardSums::Create(const ShardSumOptions& options,
                                                             collectives::Communicator* ranks,
                                                             device::Context& context) {
  BRIGADE_RETURN_IF_ERROR(CheckRanks(options.shards, ranks));
  if (!precision::IsTrainingFormat(options.dtype) && options.dtype != DType::kFloat64) {
    return absl::InvalidArgumentError(absl::StrCat("shard sums: dtype is ",
                                                   precision::Name(options.dtype),
                                                   "; it must be float32, float16, bfloat16 or "
                                                   "float64"));
  }
  if (options.elements < 0) {
    return absl::InvalidArgumentError(absl::StrCat("shard sums: elements is ", options.elements));
  }
  BRIGADE_ASSIGN_OR_RETURN(auto memory, context.Allocate(Bytes(options), device::Purpose::kScratch,
                                                         "sums over tensor shards"));
  if (options.shards.ranks > 1) {
    BRIGADE_RETURN_IF_ERROR(ranks->Reserve(SignatureOf(options, options.elements)));
    BRIGADE_RETURN_IF_ERROR(ranks->Reserve(SignatureOfOne(options, options.elements)));
  }
  return std::unique_ptr<ShardSums>(new ShardSums(options, ranks, std::move(memory)));
}

ShardSums::ShardSums(const ShardSumOptions& options, collectives::Communicator* ranks,
                     device::Buffer memory)
    : options_(options), ranks_(ranks), memory_(std::move(memory)) {}

void* ShardSums::Level(int level) const {
  return static_cast<char*>(memory_.data()) + level * LevelBytes(options_);
}

absl::Status ShardSums::AddLocal(int64_t elements, Product product, void* to,
                                 device::Stream& stream) {
  const DType dtype = PartialType(options_);
  const int local = local_shards();
  int level = 0;
  for (int shard = 0; shard < local; ++shard) {
    BRIGADE_RETURN_IF_ERROR(product(shard, Level(level++), dtype));
    // As many subtrees are complete as there are ones at the end of `shard`.
    for (int bit = 1; (shard & bit) != 0; bit *= 2) {
      --level;
      const void* const halves[] = {Level(level - 1), Level(level)};
      void* const sum[] = {2 * bit == local ? to : Level(level - 1)};
      BRIGADE_RETURN_IF_ERROR(kernels::Reduce(halves, sum, elements, {.dtype = dtype}, stream));
    }
  }
  return absl::OkStatus();
}

absl::Status ShardSums::CheckSize(int64_t rows, int64_t columns) const {
  const int ranks = options_.shards.ranks;
  const bool cut = options_.part == SumPart::kOwn;
  if (rows >= 0 && columns >= 0 && (!cut || rows % ranks == 0) &&
      (columns == 0 || rows <= options_.elements / columns)) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("shard sums: [", rows, ", ", columns, "] on ", ranks, " ranks; at most ",
                   options_.elements, " elements", cut ? ", of rows that the ranks divide" : ""));
}

absl::Status ShardSums::Sum(int64_t rows, int64_t columns, Product product, void* out,
                            device::Stream& stream) {
  BRIGADE_RETURN_IF_ERROR(CheckSize(rows, columns));
  const int ranks = options_.shards.ranks;
  const int64_t elements = rows * columns;
  if (options_.shards.count == 1) return product(0, out, options_.dtype);
  const DType partial = PartialType(options_), wire = WireType(options_);
  // What is last writes where the sum is wanted.
  const bool rounds_last = wire != options_.dtype;
  void* sum = ranks == 1 && !rounds_last && partial == wire ? out : Level(0);
  if (local_shards() == 1) {
    BRIGADE_RETURN_IF_ERROR(product(0, sum, partial));
  } else {
    BRIGADE_RETURN_IF_ERROR(AddLocal(elements, product, sum, stream));
  }
  if (partial != wire) {
    void* const rounded = ranks == 1 ? out : Level(1);
    const kernels::CastSegment segments[] = {{sum, rounded, elements}};
    BRIGADE_RETURN_IF_ERROR(
        kernels::Cast(segments, {.source_dtype = partial, .target_dtype = wire}, stream));
    sum = rounded;
  }
  const collectives::CollectiveSignature signature = SignatureOf(options_, elements);
  if (ranks > 1) {
    const collectives::ReduceOptions how = {.reduction = signature.reduction,
                                            .algorithm = signature.algorithm};
    const bool cut = options_.part == SumPart::kOwn;
    const int64_t own = cut ? options_.shards.rank * signature.count : 0;
    void* const to = rounds_last ? static_cast<char*>(sum) + own * precision::SizeOf(wire) : out;
    BRIGADE_RETURN_IF_ERROR(cut ? ranks_->ReduceScatter(sum, to, signature.count, wire, how, stream)
                                : ranks_->AllReduce(sum, to, signature.count, wire, how, stream));
    sum = to;
  }
  if (!rounds_last) return absl::OkStatus();
  const kernels::CastSegment segments[] = {{sum, out, signature.count}};
  return kernels::Cast(segments, {.source_dtype = wire, .target_dtype = options_.dtype}, stream);
}

absl::Status ShardSums::SumOfOne(int64_t rows, int64_t columns, Product product, void* out,
                                 device::Stream& stream) {
  BRIGADE_RETURN_IF_ERROR(CheckSize(rows, columns));
  const int64_t elements = rows * columns;
  const DType dtype = options_.dtype;
  if (options_.shards.ranks == 1) return product(0, out, dtype);
  if (options_.part == SumPart::kAll) {
    BRIGADE_RETURN_IF_ERROR(product(0, out, dtype));
    return ranks_->AllReduce(out, out, elements, dtype, {}, stream);
  }
  BRIGADE_RETURN_IF_ERROR(product(0, Level(0), dtype));
  return ranks_->ReduceScatter(Level(0), out, elements / options_.shards.ranks, dtype, {}, stream);
}

}  // namespace brigade::parallel
