#ifndef BRIGADE_BENCHMARKS_PARALLEL_LAYER_CASE_H_
#define BRIGADE_BENCHMARKS_PARALLEL_LAYER_CASE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "brigade/benchmarks/parallel/rank.h"
#include "brigade/collectives/collective.h"
#include "brigade/device/buffer.h"
#include "brigade/nn/blas.h"
#include "brigade/nn/workspace.h"
#include "brigade/parallel/tensor/row_pieces.h"
#include "brigade/parallel/tensor/shard_sums.h"

namespace brigade::benchmarks {

// The passes of linear layers beside which tensor ranks exchange rows.
enum class LayerPass : uint8_t { kColumnForward, kRowForward, kRowBackward, kColumnBackward };

// A pass of the two products of an MLP, [rows, width] to [rows, 4 width] and back, in fp32.
struct LayerShape {
  LayerPass pass = LayerPass::kRowForward;
  // kOwn: what a product begins with is gathered.
  parallel::SumPart part = parallel::SumPart::kAll;
  int64_t rows = 0, width = 0;
  int ranks = 2, pieces = 4;
  // Unless it is 0, a product of all rows waits so long instead of computing: as a GPU's, it then
  // takes no processor, of which other ranks and other processes may leave it none.
  double product_seconds = 0;

  bool gathers() const;
  bool sums() const;
  // Products of equal size: one of the outputs or of the inputs' gradient, in pieces; backward one
  // of the weight's gradient behind it.
  int products() const;
};

// "row_forward_all_rows"
std::string ToString(const LayerShape& shape);

// How long a pass takes at least whose parts take so long alone: products and exchange run beside
// each other, but a product waits for the piece that it multiplies, and a sum for its piece; what
// ranks exchange goes one after the other.
double ShortestSeconds(const LayerShape& shape, double products, double gather, double sum);

// One of these passes on one rank.
class LayerCase {
 public:
  // Without `exchanges` only the products are computed.
  static absl::StatusOr<std::unique_ptr<LayerCase>> Create(const LayerShape& shape, bool exchanges,
                                                           bool overlap, ParallelRank& rank);

  // Enqueued.
  absl::Status Run();

  // What it exchanges: first the gather, then the sum.
  static std::vector<collectives::CollectiveSignature> Gathers(const LayerShape& shape);
  static std::vector<collectives::CollectiveSignature> Sums(const LayerShape& shape);

 private:
  LayerCase(const LayerShape& shape, bool exchanges, ParallelRank& rank)
      : shape_(shape), exchanges_(exchanges), rank_(rank) {}

  const LayerShape shape_;
  const bool exchanges_;
  ParallelRank& rank_;
  // Rows of the width, those of this rank and of all; rows of the MLP's part; the weight.
  device::Buffer own_, all_, cut_, out_, dcut_, weight_, dweight_;
  nn::Workspace workspace_;
  std::unique_ptr<nn::Blas> blas_;
  std::unique_ptr<parallel::ShardSums> sums_;
};

}  // namespace brigade::benchmarks

#endif  // BRIGADE_BENCHMARKS_PARALLEL_LAYER_CASE_H_
