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

// Which rows of a sum a rank gets: all, or, of as many equal parts as there are ranks, the one that
// has its number (sequence parallelism).
enum class SumPart : uint8_t { kAll, kOwn };

struct ShardSumOptions {
  TensorShards shards = {};
  precision::DType dtype = precision::DType::kFloat32;
  SumWire wire = SumWire::kFloat32;
  SumPart part = SumPart::kAll;
  // Rows times columns of the largest sum.
  int64_t elements = 0;
};

// InvalidArgument unless the shards are those of this rank of `ranks`; null stands for a rank
// alone.
absl::Status CheckRanks(const TensorShards& shards, const collectives::Communicator* ranks);

// Sums over the tensor shards of a model: what row-parallel products and the gradients of
// column-parallel ones end with.
//
// Precision    Products of shards are in fp32 (float64 for it), and are added as the aligned binary
//              tree over the model's shards: neighbours, then pairs of them, and so on; in a rank,
//              then between ranks (Algorithm::kHalvingDoubling, whose order that is). Of a number
//              of ranks that is no power of two the order is that algorithm's. The sum is rounded
//              once. With one shard it is the product, rounded once.
// Memory       Bytes, scratch, and the communicator's workspace for these sums; at Create.
// Traffic      With n elements and t ranks, a power of two, each sends 2 (t-1)/t n elements for
//              kAll, (t-1)/t n for kOwn, of 4 bytes or as the wire says. Of other numbers what
//              WireBytes says of SignatureOf.
// Stream       Enqueued as the communicator's calls are; allocates nothing. All calls on one
//              stream.
// Determinism  On a CPU the number of ranks changes no bit, with kFloat32. On a GPU that rests on
//              cuBLAS, which may choose its kernels by more than a product's shape.
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

  // What a sum is between ranks.
  static collectives::CollectiveSignature SignatureOf(const ShardSumOptions& options,
                                                      int64_t elements);
  static collectives::CollectiveSignature SignatureOfOne(const ShardSumOptions& options,
                                                         int64_t elements);

  const ShardSumOptions& options() const { return options_; }
  int local_shards() const { return options_.shards.local(); }

  // Enqueues the product of one of this rank's shards, counted from 0, to `partial`, [rows,
  // columns] of `dtype`.
  using Product = absl::FunctionRef<absl::Status(int shard, void* partial, precision::DType dtype)>;

  // out = the sum over all shards: [rows, columns], or the own part of the rows, of the model's
  // type. A call of all ranks. InvalidArgument for more elements than Create was told, or with kOwn
  // rows that the ranks do not divide.
  absl::Status Sum(int64_t rows, int64_t columns, Product product, void* out,
                   device::Stream& stream);

  // The same of sums of which no element has more than one term that is not 0, as of rows that one
  // rank looks up in its part of a table: nothing rounds, so that they go between ranks in the
  // model's type whatever the wire. `product` is called once, for all of this rank's shards.
  absl::Status SumOfOne(int64_t rows, int64_t columns, Product product, void* out,
                        device::Stream& stream);

 private:
  ShardSums(const ShardSumOptions& options, collectives::Communicator* ranks,
            device::Buffer memory);

  absl::Status CheckSize(int64_t rows, int64_t columns) const;
  // A partial sum, by its level in the tree.
  void* Level(int level) const;
  // The sum over this rank's shards, at least two, which `to` gets.
  absl::Status AddLocal(int64_t elements, Product product, void* to, device::Stream& stream);

  const ShardSumOptions options_;
  collectives::Communicator* const ranks_;
  const device::Buffer memory_;
};

}  // namespace brigade::parallel

#endif  // BRIGADE_PARALLEL_TENSOR_SHARD_SUMS_H_
