#ifndef BRIGADE_PARALLEL_TENSOR_SHARD_SUMS_H_
#define BRIGADE_PARALLEL_TENSOR_SHARD_SUMS_H_

#include <cstdint>
#include <memory>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "brigade/collectives/communicator.h"
#include "brigade/device/buffer.h"
#include "brigade/device/context.h"
#include "brigade/device/stream.h"
#include "brigade/parallel/shard.h"
#include "brigade/parallel/tensor/exchange.h"
#include "brigade/parallel/tensor/row_pieces.h"
#include "brigade/precision/dtype.h"

namespace brigade::parallel {

// In which type sums of a rank's shards go to the other ranks.
//
// kFloat32    Not rounded before the end: the same bits for any number of ranks.
// kModel      In the model's type: half the bytes of 16-bit types. Each rank's sum Y_j is rounded,
//             they are added in fp32 in the order of ranks, and the sum is rounded once more: to
//             first order the result Y is off by u sum_j |Y_j| + 2 u |Y| beside what kFloat32
//             gives, u being the type's unit roundoff. Bits depend on the number of ranks. Of
//             float32 and float64 no type changes, but the order of the sum.
enum class SumWire : uint8_t { kFloat32, kModel };

struct ShardSumOptions {
  TensorShards shards = {};
  precision::DType dtype = precision::DType::kFloat32;
  SumWire wire = SumWire::kFloat32;
  SumPart part = SumPart::kAll;
  // Rows times columns of the largest sum.
  int64_t elements = 0;
  // Into how many pieces rows are cut (RowPieces), at most kMostPieces. Products of pieces have
  // their own shapes, so that bits may depend on it.
  int pieces = 1;
  // The rows of that sum; only pieces need them.
  int64_t rows = 0;
  // Whether ranks exchange a piece while others are multiplied, on a stream of the sums' own. It
  // changes no bit.
  bool overlap = false;
};

// InvalidArgument unless the shards are those of this rank of `ranks`; null stands for a rank
// alone.
absl::Status CheckRanks(const TensorShards& shards, const collectives::Communicator* ranks);

// Sums over the tensor shards of a model: what row-parallel products and the gradients of
// column-parallel ones end with; and with SumPart::kOwn the gathers of rows that they begin with.
//
// Precision    Products of shards are in fp32 (float64 for it), and are added as the aligned binary
//              tree over the model's shards: neighbours, then pairs of them, and so on; in a rank,
//              then between ranks (Algorithm::kHalvingDoubling, whose order that is). Of a number
//              of ranks that is no power of two the order is that algorithm's. The sum is rounded
//              once. With one shard it is the product, rounded once.
// Memory       Bytes, scratch, and the communicator's workspace for these calls; at Create. Neither
//              pieces nor overlap take more: each piece has its place.
// Traffic      With n elements and t ranks, a power of two, each sends 2 (t-1)/t n elements for
//              kAll, (t-1)/t n for kOwn, of 4 bytes or as the wire says; a gather (t-1)/t n of the
//              model's type. Of other numbers what WireBytes says of the signatures. In pieces
//              all ranks together send as much, in more calls; and each one of them, but for the
//              blocks of an all-reduce, which are cut at cache lines.
// Overlap      With it the communicator's calls, and the casts behind them, are on a stream of the
//              sums' own, which waits for `stream` by events, and `stream` for it: a piece of a
//              product, then its sum beside the next piece. Without, the same calls are on
//              `stream`. What is exposed is the first piece of a gather before the first product,
//              and the last piece of a sum behind the last one.
// Stream       Enqueued as the communicator's calls are; allocates nothing and waits for no stream.
//              All calls on one stream.
// Determinism  On a CPU neither the number of ranks nor overlap changes a bit, with kFloat32; the
//              number of pieces may: it is a part of the model, like that of shards. On a GPU that
//              rests on cuBLAS, which may choose its kernels by more than a product's shape.
// Source       Shoeybi et al. 2019 (arXiv 1909.08053); Korthikanti et al. 2022 (2205.05198).
class ShardSums {
 public:
  // `ranks`, with whose size and rank options.shards must agree, must outlive the sums; null for
  // one rank.
  //
  // Errors       InvalidArgument naming what does not fit: shards, type, elements; those of
  //              Context::Allocate and Communicator::Reserve.
  static absl::StatusOr<std::unique_ptr<ShardSums>> Create(const ShardSumOptions& options,
                                                           collectives::Communicator* ranks,
                                                           device::Context& context);

  static int64_t Bytes(const ShardSumOptions& options);

  // What a sum of so many elements is between ranks, of all rows or of a piece; and a gather of
  // rows that have so many between them.
  static collectives::CollectiveSignature SignatureOf(const ShardSumOptions& options,
                                                      int64_t elements);
  static collectives::CollectiveSignature SignatureOfOne(const ShardSumOptions& options,
                                                         int64_t elements);
  static collectives::CollectiveSignature SignatureOfGather(const ShardSumOptions& options,
                                                            int64_t elements);

  const ShardSumOptions& options() const { return options_; }
  int local_shards() const { return options_.shards.local(); }

  // How sums of so many rows are cut; and products of rows that are gathered, which have one piece
  // where nothing is.
  RowPieces PiecesOf(int64_t rows) const;
  RowPieces GatheredPiecesOf(int64_t rows) const;

  // Enqueues the product of one of this rank's shards, counted from 0, of these rows, to `partial`,
  // [rows.count, columns] of `dtype`.
  using Product = absl::FunctionRef<absl::Status(int shard, const RowRange& rows, void* partial,
                                                 precision::DType dtype)>;

  // out = the sum over all shards: [rows, columns], or the own part of the rows, of the model's
  // type. A call of all ranks. InvalidArgument for more elements, or a larger piece, than Create
  // was told, or with kOwn rows that are no multiple of RowPieces::unit.
  absl::Status Sum(int64_t rows, int64_t columns, Product product, void* out,
                   device::Stream& stream);

  // The same in two: what is enqueued between them runs beside what the ranks still exchange. It
  // must not use `out`, nor these sums: their memory is in use until FinishSum.
  absl::Status StartSum(int64_t rows, int64_t columns, Product product, void* out,
                        device::Stream& stream);
  absl::Status FinishSum(device::Stream& stream);

  // The same of sums of which no element has more than one term that is not 0, as of rows that one
  // rank looks up in its part of a table: nothing rounds, so that they go between ranks in the
  // model's type whatever the wire. `product` is called once, for all of this rank's shards and all
  // rows.
  absl::Status SumOfOne(int64_t rows, int64_t columns, Product product, void* out,
                        device::Stream& stream);

  // With kOwn: all = the rows of all ranks, [rows, columns], from each one's own; null where those
  // are in their places in `all` already (RowPieces::OwnAmongAll). The products below wait for
  // their pieces; whoever else reads `all` calls AwaitRows first, and nobody writes to `own` before
  // that. A call of all ranks, but for a rank alone, which has all. Errors as of Sum.
  absl::Status GatherRows(const void* own, void* all, int64_t rows, int64_t columns,
                          device::Stream& stream);
  // What is enqueued from now on reads all rows of the latest gather, or of a piece and of those
  // before it.
  absl::Status AwaitRows(device::Stream& stream) { return exchange_->AwaitGathered(stream); }
  absl::Status AwaitRows(int piece, device::Stream& stream) {
    return exchange_->AwaitGathered(piece, stream);
  }

 private:
  friend class ShardSumsTestPeer;

  ShardSums(const ShardSumOptions& options, collectives::Communicator* ranks, device::Buffer memory,
            std::unique_ptr<internal::Exchange> exchange);

  absl::Status CheckSize(int64_t rows, int64_t columns) const;
  // Where partial sums of elements from `first` on are, by their level in the tree.
  void* Level(int level, int64_t first) const;
  // The sum over this rank's shards, at least two, which `to` gets.
  absl::Status AddLocal(const RowRange& rows, int64_t columns, Product product, void* to,
                        device::Stream& stream);
  // `out`: of these rows, or the own ones of them.
  absl::Status SumPiece(const RowRange& rows, int64_t columns, Product product, void* out,
                        device::Stream& stream);

  const ShardSumOptions options_;
  collectives::Communicator* const ranks_;
  const device::Buffer memory_;
  const std::unique_ptr<internal::Exchange> exchange_;
};

}  // namespace brigade::parallel

#endif  // BRIGADE_PARALLEL_TENSOR_SHARD_SUMS_H_
