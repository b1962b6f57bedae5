#ifndef BRIGADE_EXAMPLES_GPT_BLOCK_LAYOUT_H_
#define BRIGADE_EXAMPLES_GPT_BLOCK_LAYOUT_H_

#include <cstdint>
#include <iterator>
#include <optional>

#include "brigade/examples/gpt/pass_shape.h"

namespace brigade::gpt {

// What a block's forward pass computes, in this order; rows of the micro-batch by so many columns.
// The means and inverse deviations of the norms and the log-sum-exps are in the type of sums. Where
// ranks share the model, "cut" columns are those of this rank's tensor shards, [shards, rows,
// columns of a shard], and "own" rows those of the residual stream that it has.
enum BlockArray : uint8_t {
  kNorm1,          // width; of own rows if it is saved so (PassShape::keep_gathered)
  kMean1,          // 1, own
  kInverse1,       // 1, own
  kQkv,            // 3 width, cut
  kHeadQkv,        // 3 width, cut: of all positions of some heads, where ranks exchange these
  kHeadAttention,  // width, cut: likewise
  kAttention,      // width, cut
  kLogSumExp,      // heads, cut
  kMiddle,         // width, own: the residual stream between attention and MLP
  kNorm2,          // as kNorm1
  kMean2,          // 1, own
  kInverse2,       // 1, own
  kExpanded,       // 4 width, cut
  kGelu,           // 4 width, cut
  kBlockArrays,
};

// What the forward pass does not keep for the backward pass, which makes it again: by one product
// each, or, what is pointwise (norms and GELU), by none. Attention, of one width, takes as long as
// the middle where the context has the length of a width, so wide models drop it first. Not both:
// the middle is made again from attention, in the MLP's part, which comes before attention's.
struct BlockSaveOption {
  const char* name;
  bool drops_pointwise = false;
  bool drops_middle = false;
  bool drops_qkv = false;
  bool drops_expanded = false;
  bool drops_attention = false;
};
inline constexpr BlockSaveOption kBlockSaveOptions[] = {
    {"all"},
    {"no pointwise", true},
    {"no middle", true, true},
    {"no qkv", true, false, true},
    {"no middle, qkv", true, true, true},
    {"no expanded", true, false, false, true},
    {"no middle, expanded", true, true, false, true},
    {"no qkv, expanded", true, false, true, true},
    {"attention alone", true, true, true, true},
    {"no attention", true, false, false, false, true},
    {"no qkv, attention", true, false, true, false, true},
    {"no expanded, attention", true, false, false, true, true},
    {"middle alone", true, false, true, true, true},
};
inline constexpr int kBlockSaveOptionCount = std::size(kBlockSaveOptions);
// Which of them is everything, and which the policy "selective"; and two which drop, between them,
// all that an option may drop.
inline constexpr int kSaveAll = 0, kSaveProducts = 1;
inline constexpr int kSaveAttention = 8, kSaveMiddle = 12;

// Where an option says nothing of an array it is saved.
bool IsSaved(const BlockSaveOption& option, BlockArray array);

// Where a block has its arrays in a pass.
struct BlockMemory {
  void* arrays[kBlockArrays] = {};
  // Of the forward pass, the residual stream behind the block.
  void* output = nullptr;
  // Of the backward pass: gradients of norm1, norm2 and attention, by turns; of the MLP's inside,
  // in the place of kGelu, which nobody reads after that, or in one of its own where the gradient
  // begins with pieces (PassShape::gathers_pieces) while kGelu is still read; of queries, keys and
  // values, in the place of kGelu if it is saved. With dropout the gradients of what the MLP, and
  // attention, add to the residual stream are in dwidth, and in dqkv, before them.
  void *dwidth = nullptr, *dmlp = nullptr, *dqkv = nullptr;
  // Of a split backward pass, what its first half leaves to the second, beside dmlp, dqkv and the
  // inputs of products: the gradients of what MLP and attention add to the residual stream, of own
  // rows; and those of the norms' and the row products' parameters, one width each.
  void *dmlp_branch = nullptr, *dattention_branch = nullptr, *row_gradients = nullptr;
  // Where ranks share rows, all of them: of a norm that is saved of own rows, and of the gradient
  // of a branch. Null where nothing is gathered.
  void* gathered = nullptr;
  // Norms are of own rows.
  bool has_own_norms = false;
};

// The gradients of a block that are sums over own rows, in the order of the collective that adds
// them up under sequence parallelism: of both norms and the biases of both row products.
inline constexpr int kBlockRowGradients = 6;

// What the weights' gradients of the products read.
inline bool IsProductInput(BlockArray array) {
  return array == kNorm1 || array == kAttention || array == kNorm2 || array == kGelu;
}

struct BlockLayoutOptions {
  // Without, the output is the caller's, and no part of what is saved.
  bool saves_output = true;
  // The backward pass is split into gradients of inputs and of weights: what the second half reads
  // is saved, or in a third piece that no other array of the first half has.
  bool splits_backward = false;
};

// The memory of a block's passes, which is the same for all blocks. Arrays begin at multiples of
// recompute::kAlignmentBytes. What is saved lies in one piece, the output at its begin; what is
// only there during a pass in another, where the attention's part and the MLP's part have the same
// place; what a split backward pass leaves to its second half in a third.
class BlockLayout {
 public:
  explicit BlockLayout(const PassShape& shape, const BlockLayoutOptions& options = {})
      : shape_(shape), options_(options) {}

  // `option`: of kBlockSaveOptions. A forward pass without one saves nothing.
  int64_t SavedBytes(int option) const;
  int64_t ForwardTransientBytes(std::optional<int> option) const;
  int64_t BackwardTransientBytes(int option) const;
  // 0 unless the backward pass is split.
  int64_t DeferredBytes(int option) const;
  // Of SavedBytes, inputs of products.
  int64_t ProductInputBytes(int option) const;

  BlockMemory Forward(char* output, char* transient) const;
  // `product_inputs`: of what is saved, these lie there, and the rest alone in `saved`.
  BlockMemory Forward(int option, char* saved, char* transient,
                      char* product_inputs = nullptr) const;
  // Of both halves, if it is split.
  BlockMemory Backward(int option, char* saved, char* transient, char* deferred = nullptr,
                       char* product_inputs = nullptr) const;

 private:
  class Pieces;

  bool Saves(const BlockSaveOption& option, BlockArray array) const;
  // Whether what is saved of norms is the own rows.
  bool SavesOwnNorms(const BlockSaveOption& option) const;
  int64_t BytesOf(BlockArray array, bool has_own_norms) const;
  void PlaceForward(const BlockSaveOption* option, Pieces& pieces, BlockMemory& memory) const;
  void PlaceBackward(const BlockSaveOption& option, Pieces& pieces, BlockMemory& memory) const;

  const PassShape shape_;
  const BlockLayoutOptions options_;
};

}  // namespace brigade::gpt

#endif  // BRIGADE_EXAMPLES_GPT_BLOCK_LAYOUT_H_
