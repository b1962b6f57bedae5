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
      return !option.drops_qkv;
    case kExpanded:
      return !option.drops_expanded;
    case kAttention:
    case kLogSumExp:
      return !option.drops_attention;
    default:
      return true;
  }
}

// What is saved, and what is transient: what is there all the time, and behind it the two parts
// that follow each other. Without memory they only count.
class BlockLayout::Pieces {
 public:
  enum Part { kAlways, kAttentionPart, kMlpPart, kParts };

  Pieces(char* saved, char* transient) : saved_(saved), transient_(transient) {}

  void* Save(int64_t bytes) { return Cut(saved_, saved_bytes_, bytes); }
  // kAlways first.
  void* Take(Part part, int64_t bytes) {
    return Cut(transient_, part == kAlways ? parts_[kAlways] : parts_[part], bytes,
               part == kAlways ? 0 : parts_[kAlways]);
  }

  int64_t saved_bytes() const { return saved_bytes_; }
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
  int64_t saved_bytes_ = 0;
  int64_t parts_[kParts] = {};
};

BlockLayout::BlockLayout(const ModelOptions& model, int64_t batch, precision::DType dtype)
    : width_bytes_(batch * model.context * model.width * precision::SizeOf(dtype)),
      column_bytes_(batch * model.context *
                    static_cast<int64_t>(dtype == precision::DType::kFloat64 ? sizeof(double)
                                                                             : sizeof(float))),
      heads_(model.heads) {}

int64_t BlockLayout::BytesOf(BlockArray array) const {
  switch (array) {
    case kMean1:
    case kInverse1:
    case kMean2:
    case kInverse2:
      return column_bytes_;
    case kLogSumExp:
      return heads_ * column_bytes_;
    case kQkv:
      return 3 * width_bytes_;
    case kExpanded:
    case kGelu:
      return 4 * width_bytes_;
    default:
      return width_bytes_;
  }
}

// Null: nothing is saved.
void BlockLayout::PlaceForward(const BlockSaveOption* option, Pieces& pieces,
                               BlockMemory& memory) const {
  const auto part_of = [](BlockArray array) {
    switch (array) {
      case kNorm1:
      case kQkv:
        return Pieces::kAttentionPart;
      case kNorm2:
      case kExpanded:
      case kGelu:
        return Pieces::kMlpPart;
      default:
        return Pieces::kAlways;
    }
  };
  for (const Pieces::Part part : {Pieces::kAlways, Pieces::kAttentionPart, Pieces::kMlpPart}) {
    for (int a = 0; a < kBlockArrays; ++a) {
      const auto array = static_cast<BlockArray>(a);
      if (part_of(array) != part || (option != nullptr && IsSaved(*option, array))) continue;
      memory.arrays[a] = pieces.Take(part, BytesOf(array));
    }
  }
  if (option == nullptr) return;
  memory.output = pieces.Save(width_bytes_);
  for (int a = 0; a < kBlockArrays; ++a) {
    const auto array = static_cast<BlockArray>(a);
    if (IsSaved(*option, array)) memory.arrays[a] = pieces.Save(BytesOf(array));
  }
}

void BlockLayout::PlaceBackward(const BlockSaveOption& option, Pieces& pieces,
                                BlockMemory& memory) const {
  memory.dwidth = pieces.Take(Pieces::kAlways, width_bytes_);
  memory.output = pieces.Save(width_bytes_);
  for (int a = 0; a < kBlockArrays; ++a) {
    const auto array = static_cast<BlockArray>(a);
    const bool is_of_attention =
        array == kNorm1 || array == kQkv || array == kAttention || array == kLogSumExp;
    memory.arrays[a] = IsSaved(option, array) ? pieces.Save(BytesOf(array))
                                              : pieces.Take(is_of_attention ? Pieces::kAttentionPart
                                                                            : Pieces::kMlpPart,
                                                            BytesOf(array));
  }
  memory.dmlp = memory.arrays[kGelu];
  memory.dqkv = IsSaved(option, kGelu) ? memory.arrays[kGelu]
                                       : pieces.Take(Pieces::kAttentionPart, 3 * width_bytes_);
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

BlockMemory BlockLayout::Forward(char* output, char* transient) const {
  Pieces pieces(nullptr, transient);
  BlockMemory memory;
  PlaceForward(nullptr, pieces, memory);
  memory.output = output;
  return memory;
}

BlockMemory BlockLayout::Forward(int option, char* saved, char* transient) const {
  Pieces pieces(saved, transient);
  BlockMemory memory;
  PlaceForward(&kBlockSaveOptions[option], pieces, memory);
  return memory;
}

BlockMemory BlockLayout::Backward(int option, char* saved, char* transient) const {
  Pieces pieces(saved, transient);
  BlockMemory memory;
  PlaceBackward(kBlockSaveOptions[option], pieces, memory);
  return memory;
}

}  // namespace brigade::gpt
