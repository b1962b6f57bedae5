#ifndef BRIGADE_BENCHMARKS_PARALLEL_BLOCK_H_
#define BRIGADE_BENCHMARKS_PARALLEL_BLOCK_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "brigade/benchmarks/parallel/rank.h"
#include "brigade/collectives/collective.h"
#include "brigade/device/buffer.h"
#include "brigade/device/stream.h"
#include "brigade/nn/attention.h"
#include "brigade/nn/blas.h"
#include "brigade/nn/gradient.h"
#include "brigade/nn/layer_norm.h"
#include "brigade/nn/linear.h"
#include "brigade/nn/pointwise.h"
#include "brigade/nn/workspace.h"
#include "brigade/parallel/shard.h"
#include "brigade/parallel/tensor/row_gradients.h"
#include "brigade/parallel/tensor/row_pieces.h"
#include "brigade/parallel/tensor/shard_sums.h"
#include "brigade/precision/dtype.h"

namespace brigade::benchmarks {

// A transformer's block whose matrices `ranks` tensor ranks share, in one shard each.
struct BlockShape {
  precision::DType dtype = precision::DType::kFloat32;
  int64_t batch = 0, context = 0, width = 0, heads = 0;
  int ranks = 1;
  // The ranks also share the rows between the products.
  bool sequence_parallel = false;
  // Into how many pieces rows are cut where ranks exchange them, and whether that runs beside
  // products (parallel::ShardSumOptions).
  int pieces = 1;
  bool overlap = false;

  int64_t rows() const { return batch * context; }
  int64_t own_rows() const { return sequence_parallel ? rows() / ranks : rows(); }
  int64_t of_rank(int64_t columns) const { return columns / ranks; }

  // Multiply-adds of a rank's matrix products, forward and backward, as operations: 2 each.
  double ProductOperations() const;
};

// Forward and backward pass of one block: norms before attention and before the MLP, biases
// everywhere, GELU, residuals. Sums of shards and gathered rows come from parallel/.
class Block {
 public:
  // `exchanges`: with the other ranks. Else only this rank's products and passes over its rows are
  // computed, of what is in the arrays that the others would have written to.
  static absl::StatusOr<std::unique_ptr<Block>> Create(const BlockShape& shape, bool exchanges,
                                                       ParallelRank& rank);

  // Enqueued.
  absl::Status Run();

  // What the two passes exchange.
  static std::vector<collectives::CollectiveSignature> Collectives(const BlockShape& shape,
                                                                   int rank);

 private:
  Block(const BlockShape& shape, bool exchanges, ParallelRank& rank);

  absl::Status Forward();
  absl::Status Backward();

  // All rows of what is `own`, which may still be on their way.
  absl::StatusOr<const void*> GatherRows(const void* own);
  nn::LayerNormInput NormOf(const char* x, const char* name);
  // Calls visit for this rank's rows of each piece, whose row gradients are apart.
  absl::Status ForEachPiece(
      absl::FunctionRef<absl::Status(int piece, const parallel::RowRange& own)> visit);
  nn::Gradient RowGradientOf(const std::string& name, int piece, int64_t place);
  absl::Status NormBackward(const nn::LayerNormInput& input, const std::string& name,
                            int64_t place);
  absl::Status BiasBackward(const std::string& name, int64_t place);
  nn::LinearInput LinearOf(const void* x, const char* weight, int64_t inputs, int64_t outputs);
  nn::Gradient GradientOf(const std::string& name) { return {at("d" + name)}; }
  nn::MatrixShape OwnRows() const { return {shape_.dtype, shape_.own_rows(), shape_.width}; }
  char* at(const std::string& name) { return static_cast<char*>(arrays_.at(name).data()); }

  const BlockShape shape_;
  const bool exchanges_;
  ParallelRank& rank_;
  nn::AttentionShape attention_;
  std::map<std::string, device::Buffer> arrays_;
  nn::Workspace workspace_;
  std::unique_ptr<nn::Blas> blas_;
  std::unique_ptr<parallel::ShardSums> sums_;
  // With sequence parallelism.
  std::unique_ptr<parallel::RowGradients> row_gradients_;
};

}  // namespace brigade::benchmarks

#endif  // BRIGADE_BENCHMARKS_PARALLEL_BLOCK_H_
