#include "brigade/examples/gpt/block_layout.h"

#include <algorithm>

#include "brigade/recompute/chain.h"

namespace brigade::gpt {

bool IsSaved(const BlockSaveOption& option, BlockArray array) {
  switch (array) {
    case kNorm1:
    case kNorm2:
    case kGelu:
      return !option.drops_pointwise;
    case kMiddle:
      return !option.drops_middle;
    case kQkv:
    case kHeadQkv:
      return !option.drops_qkv;
    case kExpanded:
      return !option.drops_expanded;
    case kHeadAttention:
    case kAttention:
    case kLogSumExp:
      return !option.drops_attention;
    default:
      return true;
  }
}

// What is saved, what is deferred, and what is transient: what is there all the time, and behind it
// the two parts that follow each other. Without memory they only count.
class BlockLayout::Pieces {
 public:
  enum Part { kAlways, kAttentionPart, kMlpPart, kParts };

  Pieces(char* saved, char* transient, char* deferred = nullptr, char* product_inputs = nullptr)
      : saved_(saved),
        transient_(transient),
        deferred_(deferred),
        product_inputs_(product_inputs) {}

  void* Save(int64_t bytes) { return Cut(saved_, saved_bytes_, bytes); }
  void* Save(BlockArray array, int64_t bytes) {
    if (product_inputs_ == nullptr || !IsProductInput(array)) return Save(bytes);
    return Cut(product_inputs_, product_input_bytes_, bytes);
  }
  void* Defer(int64_t bytes) { return Cut(deferred_, deferred_bytes_, bytes); }
  // kAlways first.
  void* Take(Part part, int64_t bytes) {
    return Cut(transient_, part == kAlways ? parts_[kAlways] : parts_[part], bytes,
               part == kAlways ? 0 : parts_[kAlways]);
  }

  int64_t saved_bytes() const { return saved_bytes_; }
  int64_t deferred_bytes() const { return deferred_bytes_; }
  int64_t transient_bytes() const {
    return parts_[kAlways] + std::max(parts_[kAttentionPart], parts_[kMlpPart]);
  }

 private:
  static void* Cut(char* memory, int64_t& used, int64_t bytes, int64_t begin = 0) {
    void* const array = memory == nullptr ? nullptr : memory + begin + used;
    used += recompute::AlignedBytes(bytes);
    return array;
  }

  char* const saved_;
  char* const transient_;
  char* const deferred_;
  // Null: with what is saved.
  char* const product_inputs_;
  int64_t saved_bytes_ = 0;
  int64_t deferred_bytes_ = 0;
  int64_t product_input_bytes_ = 0;
  int64_t parts_[kParts] = {};
};

bool BlockLayout::Saves(const BlockSaveOption& option, BlockArray array) const {
  // Where ranks exchange heads, attention is that of these.
  if (array == kQkv && shape_.exchanges_heads()) return false;
  return IsSaved(option, array);
}

bool BlockLayout::SavesOwnNorms(const BlockSaveOption& option) const {
  return shape_.shares_rows() && !shape_.keep_gathered && IsSaved(option, kNorm1);
}

int64_t BlockLayout::BytesOf(BlockArray array, bool has_own_norms) const {
  const int64_t width = shape_.model.width;
  const auto sums = shape_.dtype == precision::DType::kFloat64 ? precision::DType::kFloat64
                                                               : precision::DType::kFloat32;
  const bool has_heads = shape_.exchanges_heads();
  switch (array) {
    case kNorm1:
    case kNorm2:
      return shape_.bytes_of((has_own_norms ? shape_.own_rows() : shape_.rows()) * width);
    case kMean1:
    case kInverse1:
    case kMean2:
    case kInverse2:
      return shape_.own_rows() * precision::SizeOf(sums);
    case kLogSumExp:
      return shape_.Cut(shape_.model.heads) * precision::SizeOf(sums);
    case kQkv:
      return shape_.bytes_of(shape_.Cut(3 * width));
    case kHeadQkv:
      return has_heads ? shape_.bytes_of(shape_.Cut(3 * width)) : 0;
    case kHeadAttention:
      return has_heads ? shape_.bytes_of(shape_.Cut(width)) : 0;
    case kAttention:
      return shape_.bytes_of(shape_.Cut(width));
    case kExpanded:
    case kGelu:
      return shape_.bytes_of(shape_.Cut(4 * width));
    default:
      return shape_.residual_bytes();
  }
}

// Null: nothing is saved.
void BlockLayout::PlaceForward(const BlockSaveOption* option, Pieces& pieces,
                               BlockMemory& memory) const {
  const auto part_of = [](BlockArray array) {
    switch (array) {
      case kNorm1:
      case kQkv:
      case kHeadQkv:
      case kHeadAttention:
        return Pieces::kAttentionPart;
      case kNorm2:
      case kExpanded:
      case kGelu:
        return Pieces::kMlpPart;
      default:
        return Pieces::kAlways;
    }
  };
  memory.has_own_norms = option != nullptr && SavesOwnNorms(*option);
  const auto bytes_of = [&](BlockArray array) { return BytesOf(array, memory.has_own_norms); };
  if (memory.has_own_norms) {
    memory.gathered = pieces.Take(Pieces::kAlways, BytesOf(kNorm1, /*has_own_norms=*/false));
  }
  for (const Pieces::Part part : {Pieces::kAlways, Pieces::kAttentionPart, Pieces::kMlpPart}) {
    for (int a = 0; a < kBlockArrays; ++a) {
      const auto array = static_cast<BlockArray>(a);
      if (part_of(array) != part || (option != nullptr && Saves(*option, array))) continue;
      memory.arrays[a] = pieces.Take(part, bytes_of(array));
    }
  }
  if (option == nullptr) return;
  if (options_.saves_output) memory.output = pieces.Save(shape_.residual_bytes());
  for (int a = 0; a < kBlockArrays; ++a) {
    const auto array = static_cast<BlockArray>(a);
    if (Saves(*option, array)) memory.arrays[a] = pieces.Save(array, bytes_of(array));
  }
}

void BlockLayout::PlaceBackward(const BlockSaveOption& option, Pieces& pieces,
                                BlockMemory& memory) const {
  memory.has_own_norms = SavesOwnNorms(option);
  const auto bytes_of = [&](BlockArray array) { return BytesOf(array, memory.has_own_norms); };
  memory.dwidth =
      pieces.Take(Pieces::kAlways, std::max(shape_.residual_bytes(), bytes_of(kAttention)));
  if (shape_.shares_rows()) {
    memory.gathered = pieces.Take(Pieces::kAlways, BytesOf(kNorm1, /*has_own_norms=*/false));
  }
  if (options_.saves_output) memory.output = pieces.Save(shape_.residual_bytes());
  for (int a = 0; a < kBlockArrays; ++a) {
    const auto array = static_cast<BlockArray>(a);
    // Only on the way to all positions, when those are made again.
    if (array == kQkv && shape_.exchanges_heads() && IsSaved(option, kQkv)) continue;
    const bool is_of_attention = array == kNorm1 || (array >= kQkv && array <= kLogSumExp);
    const Pieces::Part part = is_of_attention ? Pieces::kAttentionPart : Pieces::kMlpPart;
    memory.arrays[a] = Saves(option, array) ? pieces.Save(array, bytes_of(array))
                       : options_.splits_backward && IsProductInput(array)
                           ? pieces.Defer(bytes_of(array))
                           : pieces.Take(part, bytes_of(array));
  }
  if (options_.splits_backward) {
    memory.dmlp = pieces.Defer(bytes_of(kGelu));
    memory.dqkv = pieces.Defer(bytes_of(kQkv));
    memory.dmlp_branch = pieces.Defer(shape_.residual_bytes());
    memory.dattention_branch = pieces.Defer(shape_.residual_bytes());
    memory.row_gradients = pieces.Defer(shape_.bytes_of(kBlockRowGradients * shape_.model.width));
    return;
  }
  memory.dmlp = shape_.gathers_pieces() ? pieces.Take(Pieces::kMlpPart, bytes_of(kGelu))
                                        : memory.arrays[kGelu];
  const int64_t dqkv_bytes = std::max(bytes_of(kQkv), shape_.residual_bytes());
  memory.dqkv = Saves(option, kGelu) && dqkv_bytes <= bytes_of(kGelu)
                    ? memory.arrays[kGelu]
                    : pieces.Take(Pieces::kAttentionPart, dqkv_bytes);
}

int64_t BlockLayout::SavedBytes(int option) const {
  Pieces pieces(nullptr, nullptr);
  BlockMemory memory;
  PlaceForward(&kBlockSaveOptions[option], pieces, memory);
  return pieces.saved_bytes();
}

int64_t BlockLayout::ForwardTransientBytes(std::optional<int> option) const {
  Pieces pieces(nullptr, nullptr);
  BlockMemory memory;
  PlaceForward(option.has_value() ? &kBlockSaveOptions[*option] : nullptr, pieces, memory);
  return pieces.transient_bytes();
}

int64_t BlockLayout::BackwardTransientBytes(int option) const {
  Pieces pieces(nullptr, nullptr);
  BlockMemory memory;
  PlaceBackward(kBlockSaveOptions[option], pieces, memory);
  return pieces.transient_bytes();
}

int64_t BlockLayout::DeferredBytes(int option) const {
  Pieces pieces(nullptr, nullptr);
  BlockMemory memory;
  PlaceBackward(kBlockSaveOptions[option], pieces, memory);
  return pieces.deferred_bytes();
}

int64_t BlockLayout::ProductInputBytes(int option) const {
  const BlockSaveOption& saves = kBlockSaveOptions[option];
  int64_t bytes = 0;
  for (int a = 0; a < kBlockArrays; ++a) {
    const auto array = static_cast<BlockArray>(a);
    if (!IsProductInput(array) || !Saves(saves, array)) continue;
    bytes += recompute::AlignedBytes(BytesOf(array, SavesOwnNorms(saves)));
  }
  return bytes;
}

BlockMemory BlockLayout::Forward(char* output, char* transient) const {
  Pieces pieces(nullptr, transient);
  BlockMemory memory;
  PlaceForward(nullptr, pieces, memory);
  memory.output = output;
  return memory;
}

BlockMemory BlockLayout::Forward(int option, char* saved, char* transient,
                                 char* product_inputs) const {
  Pieces pieces(saved, transient, nullptr, product_inputs);
  BlockMemory memory;
  PlaceForward(&kBlockSaveOptions[option], pieces, memory);
  return memory;
}

BlockMemory BlockLayout::Backward(int option, char* saved, char* transient, char* deferred,
                                  char* product_inputs) const {
  Pieces pieces(saved, transient, deferred, product_inputs);
  BlockMemory memory;
  PlaceBackward(kBlockSaveOptions[option], pieces, memory);
  return memory;
}

}  // namespace brigade::gpt
