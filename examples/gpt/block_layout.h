#ifndef BRIGADE_EXAMPLES_GPT_BLOCK_LAYOUT_H_
#define BRIGADE_EXAMPLES_GPT_BLOCK_LAYOUT_H_

#include <cstdint>
#include <iterator>
#include <optional>

#include "brigade/examples/gpt/model.h"
#include "brigade/precision/dtype.h"

namespace brigade::gpt {

// What a block's forward pass computes, in this order; rows of the micro-batch by so many columns.
// The means and inverse deviations of the norms and the log-sum-exps are in the type of sums.
enum BlockArray : uint8_t {
  kNorm1,      // width
  kMean1,      // 1
  kInverse1,   // 1
  kQkv,        // 3 width
  kAttention,  // width
  kLogSumExp,  // heads
  kMiddle,     // width: the residual stream between attention and MLP
  kNorm2,      // width
  kMean2,      // 1
  kInverse2,   // 1
  kExpanded,   // 4 width
  kGelu,       // 4 width
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

bool IsSaved(const BlockSaveOption& option, BlockArray array);

// Where a block has its arrays in a pass.
struct BlockMemory {
  void* arrays[kBlockArrays] = {};
  // Of the forward pass, the residual stream behind the block.
  void* output = nullptr;
  // Of the backward pass: gradients of norm1, norm2 and attention, by turns; of the MLP's inside,
  // in the place of kGelu, which nobody reads after that; of queries, keys and values, there too
  // if kGelu is saved. With dropout the gradients of what the MLP, and attention, add to the
  // residual stream are in dwidth, and in dqkv, before them.
  void *dwidth = nullptr, *dmlp = nullptr, *dqkv = nullptr;
};

// The memory of a block's passes, which is the same for all blocks. Arrays begin at multiples of
// recompute::kAlignmentBytes. What is saved lies in one piece, the output at its begin; what is
// only there during a pass in another, where the attention's part and the MLP's part have the same
// place.
class BlockLayout {
 public:
  BlockLayout(const ModelOptions& model, int64_t batch, precision::DType dtype);

  // `option`: of kBlockSaveOptions. A forward pass without one saves nothing.
  int64_t SavedBytes(int option) const;
  int64_t ForwardTransientBytes(std::optional<int> option) const;
  int64_t BackwardTransientBytes(int option) const;

  BlockMemory Forward(char* output, char* transient) const;
  BlockMemory Forward(int option, char* saved, char* transient) const;
  BlockMemory Backward(int option, char* saved, char* transient) const;

 private:
  class Pieces;

  int64_t BytesOf(BlockArray array) const;
  void PlaceForward(const BlockSaveOption* option, Pieces& pieces, BlockMemory& memory) const;
  void PlaceBackward(const BlockSaveOption& option, Pieces& pieces, BlockMemory& memory) const;

  // Of [rows, width], and of a number in the type of sums for each row.
  int64_t width_bytes_, column_bytes_;
  int64_t heads_;
};

}  // namespace brigade::gpt

#endif  // BRIGADE_EXAMPLES_GPT_BLOCK_LAYOUT_H_
