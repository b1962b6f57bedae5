// Where a block has its arrays on ranks that share a model, rows and texts: whatever is there at
// the same time lies apart.

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "brigade/examples/gpt/block_layout.h"
#include "brigade/examples/gpt/pass_shape.h"
#include "gtest/gtest.h"

namespace brigade::gpt {
namespace {

constexpr int64_t kWidth = 48, kBatch = 3, kContext = 16, kHeads = 16;

// One place in one of two areas.
struct Piece {
  std::string name;
  const char* begin = nullptr;
  int64_t bytes = 0;
};

class SharedBlock {
 public:
  explicit SharedBlock(const PassShape& shape) : shape_(shape), layout_(shape) {}

  // By the contract of the arrays, not by the layout's own sums.
  int64_t BytesOf(BlockArray array, bool has_own_norms) const {
    const int64_t element = precision::SizeOf(shape_.dtype);
    const int64_t rows = kBatch * kContext / shape_.context_ranks;
    const bool shares_rows = shape_.model.sequence_parallel;
    const int64_t own = shares_rows ? rows / shape_.tensor_ranks : rows;
    const int64_t cut = rows * kWidth / shape_.tensor_ranks * element;
    const int64_t of_heads = ExchangesHeads() ? cut : 0;
    switch (array) {
      case kNorm1:
      case kNorm2:
        return (has_own_norms ? own : rows) * kWidth * element;
      case kMean1:
      case kInverse1:
      case kMean2:
      case kInverse2:
        return own * 4;
      case kLogSumExp:
        return rows * kHeads / shape_.tensor_ranks * 4;
      case kQkv:
        return 3 * cut;
      case kHeadQkv:
        return 3 * of_heads;
      case kHeadAttention:
        return of_heads;
      case kAttention:
        return cut;
      case kExpanded:
      case kGelu:
        return 4 * cut;
      default:
        return own * kWidth * element;
    }
  }
  // Ranks of a ring keep what they have of all heads.
  bool ExchangesHeads() const {
    return shape_.context_ranks > 1 && shape_.context_exchange == train::ContextExchange::kUlysses;
  }
  int64_t residual() const { return BytesOf(kMiddle, false); }
  int64_t gathered() const {
    const bool gathers = shape_.model.sequence_parallel && shape_.tensor_ranks > 1;
    return gathers ? BytesOf(kNorm1, false) : 0;
  }

  void Check(int o) {
    const BlockSaveOption& option = kBlockSaveOptions[o];
    const bool saves_own = gathered() > 0 && !shape_.keep_gathered && !option.drops_pointwise;
    saved_.assign(static_cast<size_t>(layout_.SavedBytes(o)), 0);
    transient_.assign(static_cast<size_t>(layout_.ForwardTransientBytes(o)), 0);
    memory_ = layout_.Forward(o, saved_.data(), transient_.data());
    EXPECT_EQ(memory_.has_own_norms, saves_own);
    const std::vector<BlockArray> statistics = {kMean1, kInverse1, kMean2, kInverse2};
    const std::vector<BlockArray> attention = {kNorm1,     kQkv,       kHeadQkv, kHeadAttention,
                                               kAttention, kLogSumExp, kMiddle};
    const std::vector<BlockArray> mlp = {kMiddle, kNorm2, kExpanded, kGelu};
    std::vector<Piece> of_forward = {{"output", Data(memory_.output), residual()}};
    if (saves_own) of_forward.push_back({"gathered", Data(memory_.gathered), gathered()});
    for (const std::vector<BlockArray>& part : {attention, mlp}) {
      std::vector<Piece> pieces = of_forward;
      Add(statistics, pieces);
      Add(part, pieces);
      ExpectApart(pieces, "forward");
    }

    transient_.assign(static_cast<size_t>(layout_.BackwardTransientBytes(o)), 0);
    memory_ = layout_.Backward(o, saved_.data(), transient_.data());
    EXPECT_EQ(memory_.has_own_norms, saves_own);
    std::vector<Piece> always = {
        {"dwidth", Data(memory_.dwidth), std::max(residual(), BytesOf(kAttention, false))}};
    if (gathered() > 0) always.push_back({"gathered", Data(memory_.gathered), gathered()});
    Add({kMean1, kInverse1}, always);
    // Of the attention's part, what is saved must survive the MLP's.
    std::vector<Piece> saved = always;
    for (const BlockArray array : {kNorm1, kHeadQkv, kHeadAttention, kAttention, kLogSumExp}) {
      if (IsSaved(option, array)) Add({array}, saved);
    }
    if (!option.drops_qkv && !ExchangesHeads()) Add({kQkv}, saved);
    Add({kMean2, kInverse2}, saved);
    Add({kMiddle, kNorm2, kExpanded, kGelu}, saved);
    ExpectApart(saved, "backward of the MLP");
    if (shape_.gathers_pieces()) {
      // Of gathered pieces the gradient comes while kGelu is still read.
      saved.push_back({"dmlp", Data(memory_.dmlp), BytesOf(kGelu, false)});
      ExpectApart(saved, "backward of the MLP in pieces");
    } else {
      EXPECT_EQ(memory_.dmlp, memory_.arrays[kGelu]);
    }
    std::vector<Piece> behind = always;
    Add({kNorm1, kHeadQkv, kHeadAttention, kAttention, kLogSumExp}, behind);
    const bool has_qkv = !ExchangesHeads() || option.drops_qkv;
    if (has_qkv) Add({kQkv}, behind);
    behind.push_back({"dqkv", Data(memory_.dqkv), std::max(BytesOf(kQkv, false), residual())});
    ExpectApart(behind, "backward of attention");
  }

 private:
  static const char* Data(const void* data) { return static_cast<const char*>(data); }

  void Add(const std::vector<BlockArray>& arrays, std::vector<Piece>& pieces) const {
    for (const BlockArray array : arrays) {
      pieces.push_back({absl::StrCat("array ", array), Data(memory_.arrays[array]),
                        BytesOf(array, memory_.has_own_norms)});
    }
  }

  void ExpectApart(const std::vector<Piece>& pieces, const char* moment) const {
    for (size_t i = 0; i < pieces.size(); ++i) {
      const Piece& a = pieces[i];
      if (a.bytes == 0) continue;
      const auto is_in = [&](const std::vector<char>& area) {
        return a.begin >= area.data() && a.begin + a.bytes <= area.data() + area.size();
      };
      EXPECT_TRUE(is_in(saved_) || is_in(transient_)) << moment << ": " << a.name;
      for (size_t j = 0; j < i; ++j) {
        const Piece& b = pieces[j];
        EXPECT_TRUE(b.bytes == 0 || a.begin + a.bytes <= b.begin || b.begin + b.bytes <= a.begin)
            << moment << ": " << a.name << " and " << b.name;
      }
    }
  }

  const PassShape shape_;
  const BlockLayout layout_;
  std::vector<char> saved_, transient_;
  BlockMemory memory_;
};

TEST(SharedBlockLayoutTest, WhatIsThereAtATimeLiesApart) {
  struct Sharing {
    bool sequence_parallel, keep_gathered;
    int pieces;
  };
  for (const int tensor : {1, 2, 4, 8}) {
    // 4: two in a ring.
    for (const int context : {1, 2, 4}) {
      for (const auto& [sequence_parallel, keep_gathered, pieces] :
           {Sharing{false, false, 1}, Sharing{false, false, 2}, Sharing{true, false, 1},
            Sharing{true, true, 1}, Sharing{true, false, 2}, Sharing{true, true, 2}}) {
        const PassShape shape = {.model = {.layers = 1,
                                           .heads = kHeads,
                                           .width = kWidth,
                                           .context = kContext,
                                           .tensor_shards = 8,
                                           .sequence_parallel = sequence_parallel,
                                           .tensor_pieces = pieces},
                                 .batch = kBatch,
                                 .dtype = precision::DType::kBFloat16,
                                 .tensor_ranks = tensor,
                                 .tensor_rank = tensor - 1,
                                 .context_ranks = std::min(context, 2),
                                 .context_exchange = context == 4
                                                         ? train::ContextExchange::kRing
                                                         : train::ContextExchange::kUlysses,
                                 .keep_gathered = keep_gathered};
        ASSERT_TRUE(Validate(shape).ok()) << Validate(shape);
        EXPECT_EQ(shape.gathers_pieces(), sequence_parallel && pieces > 1);
        for (int o = 0; o < kBlockSaveOptionCount; ++o) {
          SCOPED_TRACE(absl::StrCat("tensor ", tensor, ", context ", context,
                                    sequence_parallel ? ", rows shared" : "",
                                    keep_gathered ? ", gathered kept, " : ", ", pieces, " pieces, ",
                                    kBlockSaveOptions[o].name));
          SharedBlock(shape).Check(o);
        }
      }
    }
  }
}

TEST(SharedBlockLayoutTest, ARankOfARingHasWhatOneAloneWithItsPositionsWould) {
  const ModelOptions model = {
      .layers = 1, .heads = 3, .width = kWidth, .context = kContext, .tensor_shards = 1};
  const PassShape ring = {.model = model,
                          .batch = kBatch,
                          .dtype = precision::DType::kBFloat16,
                          .context_ranks = 2,
                          .context_exchange = train::ContextExchange::kRing};
  ASSERT_TRUE(Validate(ring).ok()) << Validate(ring);
  PassShape alone = ring;
  alone.model.context = kContext / 2;
  alone.context_ranks = 1;
  for (int o = 0; o < kBlockSaveOptionCount; ++o) {
    SCOPED_TRACE(kBlockSaveOptions[o].name);
    const BlockLayout a(ring), b(alone);
    EXPECT_EQ(a.SavedBytes(o), b.SavedBytes(o));
    EXPECT_EQ(a.ForwardTransientBytes(o), b.ForwardTransientBytes(o));
    EXPECT_EQ(a.BackwardTransientBytes(o), b.BackwardTransientBytes(o));
  }
}

}  // namespace
}  // namespace brigade::gpt
