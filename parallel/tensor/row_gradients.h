#ifndef BRIGADE_PARALLEL_TENSOR_ROW_GRADIENTS_H_
#define BRIGADE_PARALLEL_TENSOR_ROW_GRADIENTS_H_

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "brigade/collectives/communicator.h"
#include "brigade/device/buffer.h"
#include "brigade/device/context.h"
#include "brigade/device/stream.h"
#include "brigade/nn/gradient.h"
#include "brigade/parallel/shard.h"
#include "brigade/parallel/tensor/shard_sums.h"
#include "brigade/precision/dtype.h"

namespace brigade::parallel {

struct RowGradientOptions {
  TensorShards shards = {};
  // float32, float16 or bfloat16.
  precision::DType dtype = precision::DType::kFloat32;
  // Of all parameters of the largest sum.
  int64_t elements = 0;
  // RowPieces::count of the rows.
  int pieces = 1;
};

// Sequence parallelism: norms, dropout, residuals and biases behind row-parallel products see a
// part of the rows on each rank. The gradients of their parameters, which every rank has whole, are
// then sums over ranks. Rows, or each piece of them (RowPieces), are cut as the model is, into a
// block for each tensor shard, which must divide them: a gradient is made for each of a rank's
// blocks, and the blocks' are added.
//
//   for each piece p and block b:
//     nn::LayerNormBackward(rows of Block(p, b), ..., {gradients.Block(p, b, offset)}, ...)
//   gradients.Sum({{offset, size, target}, ...}, stream)
//
// Precision    Gradients of blocks are rounded to the model's type and added in fp32: those of a
//              shard in the order of pieces, then those of shards as the tree of ShardSums. The sum
//              is rounded once; where it is added to what is there, once more. Of a model of one
//              shard pieces are added in the model's type. On a CPU the number of ranks changes no
//              bit.
// Memory       Bytes, scratch, and the communicator's workspace; at Create.
// Traffic      One all-reduce of `elements` fp32 for all of a sum's parameters: 2 (t-1)/t of it.
// Stream       Enqueued as the communicator's calls are; allocates nothing. All calls on one
//              stream.
class RowGradients {
 public:
  // A parameter in the memory of a block, and where its gradient goes.
  struct Target {
    int64_t offset = 0;
    int64_t size = 0;
    nn::Gradient gradient = {};
  };

  // `ranks` must outlive it; null for one rank. InvalidArgument for another type or for no piece;
  // errors of ShardSums::Create.
  static absl::StatusOr<std::unique_ptr<RowGradients>> Create(const RowGradientOptions& options,
                                                              collectives::Communicator* ranks,
                                                              device::Context& context);

  static int64_t Bytes(const RowGradientOptions& options);

  // What the ranks exchange for a sum of so many elements.
  static collectives::CollectiveSignature SignatureOf(const RowGradientOptions& options,
                                                      int64_t elements);

  // The gradient of a parameter from the rows of one of this rank's blocks in one of the pieces,
  // both counted from 0: device memory, from element `offset` of the block's on.
  void* Block(int piece, int block, int64_t offset) const;

  // The sums over all blocks of all ranks, written where the targets say or added to what is there.
  // A call of all ranks, with the same offsets and sizes.
  absl::Status Sum(absl::Span<const Target> targets, device::Stream& stream);

 private:
  RowGradients(const RowGradientOptions& options, std::unique_ptr<ShardSums> sums,
               device::Buffer memory);

  // Behind the blocks: the sum.
  void* Total() const { return Block(options_.pieces, 0, 0); }

  const RowGradientOptions options_;
  const std::unique_ptr<ShardSums> sums_;
  const device::Buffer memory_;
};

}  // namespace brigade::parallel

#endif  // BRIGADE_PARALLEL_TENSOR_ROW_GRADIENTS_H_
