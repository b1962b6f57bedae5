#include "brigade/parallel/tensor/shard_sums.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "brigade/device/status_macros.h"
#include "brigade/kernels/cast/cast.h"
#include "brigade/kernels/reduce/reduce.h"
#include "brigade/precision/dtype_names.h"

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

// Elements of the largest piece of the largest sum.
int64_t LargestPiece(const ShardSumOptions& options) {
  if (options.pieces == 1 || options.rows == 0) return options.elements;
  const RowPieces pieces = {options.rows, options.pieces, options.part, options.shards};
  return pieces.largest() * (options.elements / options.rows);
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

collectives::CollectiveSignature ShardSums::SignatureOfGather(const ShardSumOptions& options,
                                                              int64_t elements) {
  return {.kind = CollectiveKind::kAllGather,
          .algorithm = collectives::GatherOptions().algorithm,
          .dtype = options.dtype,
          .count = elements / options.shards.ranks};
}

absl::StatusOr<std::unique_ptr<ShardSums>> ShardSums::Create(const ShardSumOptions& options,
                                                             collectives::Communicator* ranks,
                                                             device::Context& context) {
  BRIGADE_RETURN_IF_ERROR(CheckRanks(options.shards, ranks));
  if (!precision::IsTrainingFormat(options.dtype) && options.dtype != DType::kFloat64) {
    return absl::InvalidArgumentError(absl::StrCat("shard sums: dtype is ",
                                                   precision::ShortName(options.dtype),
                                                   "; it must be fp32, fp16, bf16 or "
                                                   "fp64"));
  }
  if (options.elements < 0) {
    return absl::InvalidArgumentError(absl::StrCat("shard sums: elements is ", options.elements));
  }
  if (options.pieces < 1 || options.pieces > kMostPieces) {
    return absl::InvalidArgumentError(
        absl::StrCat("shard sums: pieces is ", options.pieces, "; it must be 1 to ", kMostPieces));
  }
  if (options.pieces > 1 && (options.rows < 1 || options.elements % options.rows != 0)) {
    return absl::InvalidArgumentError(absl::StrCat("shard sums: ", options.pieces,
                                                   " pieces need rows, of which ", options.elements,
                                                   " elements are; rows is ", options.rows));
  }
  BRIGADE_ASSIGN_OR_RETURN(auto memory, context.Allocate(Bytes(options), device::Purpose::kScratch,
                                                         "sums over tensor shards"));
  const bool has_others = options.shards.ranks > 1;
  if (has_others) {
    const int64_t piece = LargestPiece(options);
    BRIGADE_RETURN_IF_ERROR(ranks->Reserve(SignatureOf(options, piece)));
    if (options.part == SumPart::kOwn) {
      BRIGADE_RETURN_IF_ERROR(ranks->Reserve(SignatureOfOne(options, piece)));
      BRIGADE_RETURN_IF_ERROR(ranks->Reserve(SignatureOfGather(options, piece)));
    } else {
      BRIGADE_RETURN_IF_ERROR(ranks->Reserve(SignatureOfOne(options, options.elements)));
    }
  }
  BRIGADE_ASSIGN_OR_RETURN(
      auto exchange,
      internal::Exchange::Create(options.pieces, options.overlap && has_others, context));
  return std::unique_ptr<ShardSums>(
      new ShardSums(options, ranks, std::move(memory), std::move(exchange)));
}

ShardSums::ShardSums(const ShardSumOptions& options, collectives::Communicator* ranks,
                     device::Buffer memory, std::unique_ptr<internal::Exchange> exchange)
    : options_(options),
      ranks_(ranks),
      memory_(std::move(memory)),
      exchange_(std::move(exchange)) {}

RowPieces ShardSums::PiecesOf(int64_t rows) const {
  return {rows, options_.pieces, options_.part, options_.shards};
}

RowPieces ShardSums::GatheredPiecesOf(int64_t rows) const {
  RowPieces pieces = PiecesOf(rows);
  if (!pieces.shares_rows()) pieces.pieces = 1;
  return pieces;
}

void* ShardSums::Level(int level, int64_t first) const {
  return static_cast<char*>(memory_.data()) + level * LevelBytes(options_) +
         first * precision::SizeOf(PartialType(options_));
}

absl::Status ShardSums::AddLocal(const RowRange& rows, int64_t columns, Product product, void* to,
                                 device::Stream& stream) {
  const DType dtype = PartialType(options_);
  const int64_t first = rows.first * columns;
  const int local = local_shards();
  int level = 0;
  for (int shard = 0; shard < local; ++shard) {
    BRIGADE_RETURN_IF_ERROR(product(shard, rows, Level(level++, first), dtype));
    // As many subtrees are complete as there are ones at the end of `shard`.
    for (int bit = 1; (shard & bit) != 0; bit *= 2) {
      --level;
      const void* const halves[] = {Level(level - 1, first), Level(level, first)};
      void* const sum[] = {2 * bit == local ? to : Level(level - 1, first)};
      BRIGADE_RETURN_IF_ERROR(
          kernels::Reduce(halves, sum, rows.count * columns, {.dtype = dtype}, stream));
    }
  }
  return absl::OkStatus();
}

absl::Status ShardSums::CheckSize(int64_t rows, int64_t columns) const {
  const RowPieces pieces = PiecesOf(std::max<int64_t>(rows, 0));
  const bool is_whole = pieces.rows % pieces.unit() == 0;
  const auto fits = [&](int64_t count, int64_t most) {
    return columns == 0 || count <= most / columns;
  };
  if (rows >= 0 && columns >= 0 && is_whole && fits(rows, options_.elements) &&
      fits(pieces.largest(), LargestPiece(options_))) {
    return absl::OkStatus();
  }
  const std::string cut =
      !pieces.shares_rows() ? ""
      : options_.pieces == 1
          ? ", of rows that the ranks divide"
          : absl::StrCat(", of rows that the ", options_.shards.count, " shards divide");
  const std::string piece =
      options_.pieces == 1
          ? ""
          : absl::StrCat(", in ", options_.pieces, " pieces of at most ", LargestPiece(options_));
  return absl::InvalidArgumentError(absl::StrCat("shard sums: [", rows, ", ", columns, "] on ",
                                                 options_.shards.ranks, " ranks; at most ",
                                                 options_.elements, " elements", piece, cut));
}

absl::Status ShardSums::Sum(int64_t rows, int64_t columns, Product product, void* out,
                            device::Stream& stream) {
  BRIGADE_RETURN_IF_ERROR(StartSum(rows, columns, product, out, stream));
  return FinishSum(stream);
}

absl::Status ShardSums::StartSum(int64_t rows, int64_t columns, Product product, void* out,
                                 device::Stream& stream) {
  BRIGADE_RETURN_IF_ERROR(CheckSize(rows, columns));
  const RowPieces pieces = PiecesOf(rows);
  for (int p = 0; p < pieces.count(); ++p) {
    void* const own =
        static_cast<char*>(out) + pieces.Own(p).first * columns * precision::SizeOf(options_.dtype);
    BRIGADE_RETURN_IF_ERROR(SumPiece(pieces.Piece(p), columns, product, own, stream));
  }
  return absl::OkStatus();
}

absl::Status ShardSums::FinishSum(device::Stream& stream) { return exchange_->AwaitSums(stream); }

absl::Status ShardSums::SumPiece(const RowRange& rows, int64_t columns, Product product, void* out,
                                 device::Stream& stream) {
  const int ranks = options_.shards.ranks;
  const int64_t first = rows.first * columns, elements = rows.count * columns;
  if (options_.shards.count == 1) return product(0, rows, out, options_.dtype);
  const DType partial = PartialType(options_), wire = WireType(options_);
  // What is last writes where the sum is wanted.
  const bool rounds_last = wire != options_.dtype;
  void* sum = ranks == 1 && !rounds_last && partial == wire ? out : Level(0, first);
  if (local_shards() == 1) {
    BRIGADE_RETURN_IF_ERROR(product(0, rows, sum, partial));
  } else {
    BRIGADE_RETURN_IF_ERROR(AddLocal(rows, columns, product, sum, stream));
  }
  BRIGADE_RETURN_IF_ERROR(exchange_->AfterCompute(internal::WaitPoint::kPieceReady, stream));
  device::Stream& beside = exchange_->stream(stream);
  if (partial != wire) {
    void* const rounded = ranks == 1 ? out : Level(1, first);
    const kernels::CastSegment segments[] = {{sum, rounded, elements}};
    BRIGADE_RETURN_IF_ERROR(
        kernels::Cast(segments, {.source_dtype = partial, .target_dtype = wire}, beside));
    sum = rounded;
  }
  const collectives::CollectiveSignature signature = SignatureOf(options_, elements);
  if (ranks > 1) {
    const collectives::ReduceOptions how = {.reduction = signature.reduction,
                                            .algorithm = signature.algorithm};
    const bool cut = options_.part == SumPart::kOwn;
    const int64_t own = cut ? options_.shards.rank * signature.count : 0;
    void* const to = rounds_last ? static_cast<char*>(sum) + own * precision::SizeOf(wire) : out;
    BRIGADE_RETURN_IF_ERROR(cut ? ranks_->ReduceScatter(sum, to, signature.count, wire, how, beside)
                                : ranks_->AllReduce(sum, to, signature.count, wire, how, beside));
    sum = to;
  }
  if (!rounds_last) return absl::OkStatus();
  const kernels::CastSegment segments[] = {{sum, out, signature.count}};
  return kernels::Cast(segments, {.source_dtype = wire, .target_dtype = options_.dtype}, beside);
}

absl::Status ShardSums::SumOfOne(int64_t rows, int64_t columns, Product product, void* out,
                                 device::Stream& stream) {
  BRIGADE_RETURN_IF_ERROR(CheckSize(rows, columns));
  const RowRange all = {0, rows};
  const DType dtype = options_.dtype;
  if (options_.shards.ranks == 1) return product(0, all, out, dtype);
  if (options_.part == SumPart::kAll) {
    BRIGADE_RETURN_IF_ERROR(product(0, all, out, dtype));
    return ranks_->AllReduce(out, out, rows * columns, dtype, {}, stream);
  }
  void* const whole = Level(0, 0);
  BRIGADE_RETURN_IF_ERROR(product(0, all, whole, dtype));
  const RowPieces pieces = PiecesOf(rows);
  const int64_t row_bytes = columns * precision::SizeOf(dtype);
  for (int p = 0; p < pieces.count(); ++p) {
    const RowRange own = pieces.Own(p);
    BRIGADE_RETURN_IF_ERROR(ranks_->ReduceScatter(
        static_cast<char*>(whole) + pieces.Piece(p).first * row_bytes,
        static_cast<char*>(out) + own.first * row_bytes, own.count * columns, dtype, {}, stream));
  }
  return absl::OkStatus();
}

absl::Status ShardSums::GatherRows(const void* own, void* all, int64_t rows, int64_t columns,
                                   device::Stream& stream) {
  if (options_.part != SumPart::kOwn) {
    return absl::InvalidArgumentError("shard sums: each rank has all rows, so none are gathered");
  }
  BRIGADE_RETURN_IF_ERROR(CheckSize(rows, columns));
  if (options_.shards.ranks == 1) return absl::OkStatus();
  BRIGADE_RETURN_IF_ERROR(exchange_->AfterCompute(internal::WaitPoint::kRowsReady, stream));
  exchange_->BeginGather();
  const RowPieces pieces = PiecesOf(rows);
  const int64_t row_bytes = columns * precision::SizeOf(options_.dtype);
  for (int p = 0; p < pieces.count(); ++p) {
    const RowRange mine = pieces.Own(p);
    const char* const from =
        own == nullptr ? static_cast<const char*>(all) + pieces.OwnAmongAll(p).first * row_bytes
                       : static_cast<const char*>(own) + mine.first * row_bytes;
    BRIGADE_RETURN_IF_ERROR(
        ranks_->AllGather(from, static_cast<char*>(all) + pieces.Piece(p).first * row_bytes,
                          mine.count * columns, options_.dtype, {}, exchange_->stream(stream)));
    BRIGADE_RETURN_IF_ERROR(exchange_->Gathered(p, stream));
  }
  return absl::OkStatus();
}

}  // namespace brigade::parallel
