// Where a block has its arrays, for every option and type.

#include "brigade/examples/gpt/block_layout.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "brigade/examples/gpt/activations.h"
#include "brigade/precision/dtype.h"
#include "brigade/recompute/chain.h"
#include "brigade/recompute/planner.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::gpt {
namespace {

using precision::DType;

// Sizes are no multiples of 256 bytes.
constexpr ModelOptions kModel = {.layers = 1, .heads = 3, .width = 21, .context = 7};
constexpr int64_t kBatch = 3, kRows = kBatch * kModel.context;

constexpr int kOptions = static_cast<int>(std::size(kBlockSaveOptions));

// Of the arrays by their contract, not by the layout's own sums.
int64_t BytesOf(BlockArray array, DType dtype) {
  const int64_t width = kRows * kModel.width * precision::SizeOf(dtype);
  const int64_t sums = kRows * (dtype == DType::kFloat64 ? 8 : 4);
  switch (array) {
    case kMean1:
    case kInverse1:
    case kMean2:
    case kInverse2:
      return sums;
    case kLogSumExp:
      return kModel.heads * sums;
    case kQkv:
      return 3 * width;
    case kHeadQkv:
    case kHeadAttention:
      return 0;
    case kExpanded:
    case kGelu:
      return 4 * width;
    default:
      return width;
  }
}

int64_t Rounded(int64_t bytes) { return (bytes + 255) / 256 * 256; }

struct Piece {
  std::string name;
  const char* begin = nullptr;
  int64_t bytes = 0;

  const char* end() const { return begin + bytes; }
};

// What is in memory at some moment of a pass.
class Moment {
 public:
  Moment(const BlockMemory& memory, DType dtype) : memory_(memory), dtype_(dtype) {}

  Moment& Has(BlockArray array) {
    return Has(absl::StrCat("array ", array), memory_.arrays[array], BytesOf(array, dtype_));
  }
  Moment& Has(const std::string& name, const void* begin, int64_t bytes) {
    if (bytes > 0) pieces_.push_back({name, static_cast<const char*>(begin), bytes});
    return *this;
  }
  // Of so many widths.
  Moment& HasWidths(const std::string& name, const void* begin, int widths) {
    return Has(name, begin, widths * BytesOf(kMiddle, dtype_));
  }

  // Each begins at a multiple of 256 bytes in one of the areas, and has it for itself.
  void Expect(const Piece& saved, const Piece& transient, const Piece& deferred = {}) const {
    for (size_t i = 0; i < pieces_.size(); ++i) {
      const Piece& a = pieces_[i];
      const auto is_in = [&](const Piece& area) {
        return a.begin >= area.begin && a.end() <= area.end() && (a.begin - area.begin) % 256 == 0;
      };
      EXPECT_TRUE(is_in(saved) || is_in(transient) || is_in(deferred)) << a.name;
      for (size_t j = 0; j < i; ++j) {
        const Piece& b = pieces_[j];
        EXPECT_TRUE(a.end() <= b.begin || b.end() <= a.begin) << a.name << " and " << b.name;
      }
    }
  }

 private:
  const BlockMemory& memory_;
  const DType dtype_;
  std::vector<Piece> pieces_;
};

class BlockLayoutTest : public ::testing::TestWithParam<DType> {
 protected:
  const DType dtype_ = GetParam();
  const BlockLayout layout_{{kModel, kBatch, dtype_}};
  std::vector<char> saved_ = std::vector<char>(1 << 20), transient_ = std::vector<char>(1 << 20);

  Piece Saved(int64_t bytes) { return {"saved", saved_.data(), bytes}; }
  Piece Transient(int64_t bytes) { return {"transient", transient_.data(), bytes}; }
};
INSTANTIATE_TEST_SUITE_P(All, BlockLayoutTest,
                         ::testing::Values(DType::kFloat16, DType::kFloat32, DType::kFloat64),
                         [](const auto& info) { return std::string(precision::Name(info.param)); });

TEST_P(BlockLayoutTest, WhatIsSavedIsTheOutputAndTheArraysOfTheOption) {
  // By hand, in widths beside the output: what each option keeps of norms (1 each), middle 1, qkv
  // 3, attention 1, and of the MLP's inside twice 4. Statistics are always kept.
  constexpr int kWidths[] = {1 + 1 + 1 + 3 + 1 + 4 + 4,
                             1 + 3 + 1 + 4,
                             3 + 1 + 4,
                             1 + 1 + 4,
                             1 + 4,
                             1 + 3 + 1,
                             3 + 1,
                             1 + 1,
                             1,
                             1 + 3 + 4,
                             1 + 4,
                             1 + 3,
                             1};
  ASSERT_EQ(std::size(kWidths), std::size(kBlockSaveOptions));
  for (int o = 0; o < kOptions; ++o) {
    SCOPED_TRACE(kBlockSaveOptions[o].name);
    int64_t bytes = Rounded(BytesOf(kMiddle, dtype_)), widths = 0;
    for (int a = 0; a < kBlockArrays; ++a) {
      const auto array = static_cast<BlockArray>(a);
      if (!IsSaved(kBlockSaveOptions[o], array)) continue;
      bytes += Rounded(BytesOf(array, dtype_));
      widths += BytesOf(array, dtype_) / BytesOf(kMiddle, dtype_);
    }
    EXPECT_EQ(layout_.SavedBytes(o), bytes);
    EXPECT_EQ(widths, kWidths[o]);
    for (const BlockArray array : {kMean1, kInverse1, kMean2, kInverse2}) {
      EXPECT_TRUE(IsSaved(kBlockSaveOptions[o], array)) << array;
    }
    // One of the two is there: what is made again begins with it, or with the block's input.
    EXPECT_TRUE(IsSaved(kBlockSaveOptions[o], kAttention) ||
                IsSaved(kBlockSaveOptions[o], kMiddle));
    EXPECT_EQ(IsSaved(kBlockSaveOptions[o], kAttention), IsSaved(kBlockSaveOptions[o], kLogSumExp));
  }
}

TEST_P(BlockLayoutTest, ForwardPassesHaveRoomForWhatIsThereAtATime) {
  for (int o = -1; o < kOptions; ++o) {
    SCOPED_TRACE(o < 0 ? "nothing" : kBlockSaveOptions[o].name);
    const auto option = o < 0 ? std::nullopt : std::optional<int>(o);
    const Piece saved = Saved(o < 0 ? BytesOf(kMiddle, dtype_) : layout_.SavedBytes(o));
    const Piece transient = Transient(layout_.ForwardTransientBytes(option));
    const BlockMemory memory = o < 0 ? layout_.Forward(saved_.data(), transient_.data())
                                     : layout_.Forward(o, saved_.data(), transient_.data());
    const auto is_saved = [&](BlockArray array) {
      return o >= 0 && IsSaved(kBlockSaveOptions[o], array);
    };
    // While attention is computed, and while the MLP is; what is saved is there from the moment it
    // is computed, and the next stage reads the output where the saved set begins.
    EXPECT_EQ(memory.output, saved_.data());
    Moment attention(memory, dtype_), mlp(memory, dtype_);
    int64_t always = 0, of_attention = 0, of_mlp = 0;
    for (int a = 0; a < kBlockArrays; ++a) {
      const auto array = static_cast<BlockArray>(a);
      const bool before = array == kNorm1 || array == kQkv;
      const bool behind = array == kNorm2 || array == kExpanded || array == kGelu;
      if (!behind || is_saved(array)) attention.Has(array);
      if (!before || is_saved(array)) mlp.Has(array);
      if (is_saved(array)) {
        EXPECT_TRUE(memory.arrays[a] >= saved_.data() && memory.arrays[a] < saved.end());
      } else {
        (before ? of_attention : behind ? of_mlp : always) += Rounded(BytesOf(array, dtype_));
      }
    }
    attention.HasWidths("output", memory.output, 1).Expect(saved, transient);
    mlp.HasWidths("output", memory.output, 1).Expect(saved, transient);
    EXPECT_EQ(transient.bytes, always + std::max(of_attention, of_mlp));
  }
}

TEST_P(BlockLayoutTest, BackwardPassesFindWhatForwardPassesSaved) {
  for (int o = 0; o < kOptions; ++o) {
    SCOPED_TRACE(kBlockSaveOptions[o].name);
    const BlockMemory forward = layout_.Forward(o, saved_.data(), transient_.data());
    const BlockMemory backward = layout_.Backward(o, saved_.data(), transient_.data());
    EXPECT_EQ(backward.output, forward.output);
    for (int a = 0; a < kBlockArrays; ++a) {
      if (!IsSaved(kBlockSaveOptions[o], static_cast<BlockArray>(a))) continue;
      EXPECT_EQ(backward.arrays[a], forward.arrays[a]) << a;
    }
  }
}

// What a planner counts is what the model takes: a byte more would not show in any pass.
TEST_P(BlockLayoutTest, TheChainHasTheSizesOfTheLayout) {
  const recompute::Chain chain = ActivationChain({kModel, kBatch, dtype_});
  const int64_t width = Rounded(BytesOf(kMiddle, dtype_));
  ASSERT_EQ(chain.stages.size(), 3u);
  for (const recompute::Stage& stage : chain.stages) EXPECT_EQ(stage.gradient_bytes, width);
  const recompute::Stage& embedding = chain.stages[0];
  EXPECT_EQ(embedding.output_bytes, width);
  EXPECT_EQ(embedding.transient_bytes, 0);
  ASSERT_EQ(embedding.options.size(), 1u);
  EXPECT_EQ(embedding.options[0].saved_bytes, width);
  EXPECT_EQ(embedding.options[0].forward_transient_bytes, 0);
  EXPECT_EQ(embedding.options[0].backward_transient_bytes, 0);

  const recompute::Stage& block = chain.stages[1];
  EXPECT_EQ(block.output_bytes, width);
  EXPECT_EQ(block.transient_bytes, layout_.ForwardTransientBytes({}));
  ASSERT_EQ(block.options.size(), std::size(kBlockSaveOptions));
  for (int o = 0; o < kOptions; ++o) {
    const recompute::SaveOption& option = block.options[static_cast<size_t>(o)];
    EXPECT_EQ(option.name, kBlockSaveOptions[o].name);
    EXPECT_EQ(option.saved_bytes, layout_.SavedBytes(o));
    EXPECT_EQ(option.forward_transient_bytes, layout_.ForwardTransientBytes(o));
    EXPECT_EQ(option.backward_transient_bytes, layout_.BackwardTransientBytes(o));
  }

  // The head saves its norm, two statistics and the logits, and has a gradient of the width.
  const recompute::Stage& head = chain.stages[2];
  EXPECT_EQ(head.output_bytes, 0);
  ASSERT_EQ(head.options.size(), 1u);
  const int64_t logits = Rounded(kRows * 256 * precision::SizeOf(dtype_));
  EXPECT_EQ(head.options[0].saved_bytes, width + 2 * Rounded(BytesOf(kMean1, dtype_)) + logits);
  EXPECT_EQ(head.options[0].forward_transient_bytes, 0);
  EXPECT_EQ(head.options[0].backward_transient_bytes, width);
  EXPECT_EQ(head.transient_bytes, head.options[0].saved_bytes);
}

// Where the context is shorter than the width, attention is the cheapest array of its size.
TEST(BlockSaveOptionTest, WideModelsDropAttentionForLess) {
  const ModelOptions model = {.layers = 8, .heads = 32, .width = 4096, .context = 1024};
  recompute::Chain chain = ActivationChain({model, 1, DType::kBFloat16});
  const int64_t half = recompute::PlanNone(chain)->peak_bytes / 2;
  const double with = recompute::PlanBudget(chain, half)->time;
  for (recompute::Stage& stage : chain.stages) {
    if (stage.options.size() == 1) continue;
    std::vector<recompute::SaveOption> kept;
    for (int o = 0; o < kOptions; ++o) {
      if (IsSaved(kBlockSaveOptions[o], kAttention)) {
        kept.push_back(stage.options[static_cast<size_t>(o)]);
      }
    }
    ASSERT_LT(kept.size(), stage.options.size());
    stage.options = std::move(kept);
  }
  const double without = recompute::PlanBudget(chain, half)->time;
  const double least = recompute::PlanNone(chain)->time;
  EXPECT_LT(with - least, 0.8 * (without - least));
}

// The moments of BackwardBlock: at each the arrays that something reads from there on.
TEST_P(BlockLayoutTest, BackwardPassesKeepWhatIsReadLater) {
  for (int o = 0; o < kOptions; ++o) {
    const BlockSaveOption& option = kBlockSaveOptions[o];
    SCOPED_TRACE(option.name);
    const Piece saved = Saved(layout_.SavedBytes(o)),
                transient = Transient(layout_.BackwardTransientBytes(o));
    const BlockMemory memory = layout_.Backward(o, saved_.data(), transient_.data());
    const auto moment = [&](std::vector<BlockArray> arrays) {
      Moment result(memory, dtype_);
      for (const BlockArray array : arrays) result.Has(array);
      // Of the attention's part, what is saved must survive the MLP's part.
      for (const BlockArray array : {kMean1, kInverse1}) result.Has(array);
      return result;
    };
    const auto with_saved = [&](Moment result) {
      for (const BlockArray array : {kNorm1, kQkv, kAttention, kLogSumExp}) {
        if (IsSaved(option, array)) result.Has(array);
      }
      return result;
    };
    // The MLP's inside is made again; dwidth has the gradient of the branch.
    with_saved(moment({kMiddle, kMean2, kInverse2, kNorm2, kExpanded, kGelu}))
        .HasWidths("dwidth", memory.dwidth, 1)
        .Expect(saved, transient);
    // dmlp in the place of GELU.
    EXPECT_EQ(memory.dmlp, memory.arrays[kGelu]);
    with_saved(moment({kMiddle, kMean2, kInverse2, kNorm2, kExpanded}))
        .HasWidths("dmlp", memory.dmlp, 4)
        .HasWidths("dwidth", memory.dwidth, 1)
        .Expect(saved, transient);
    // Behind the MLP: queries, keys and values with their gradient, where the gradient of the
    // branch is before.
    moment({kNorm1, kQkv, kAttention, kLogSumExp})
        .HasWidths("dqkv", memory.dqkv, 3)
        .HasWidths("dwidth", memory.dwidth, 1)
        .Expect(saved, transient);

    // The sizes: dwidth, and the larger one of the two parts.
    int64_t of_attention = 0, of_mlp = 0;
    for (const BlockArray array : {kNorm1, kQkv, kAttention, kLogSumExp}) {
      if (!IsSaved(option, array)) of_attention += Rounded(BytesOf(array, dtype_));
    }
    if (!IsSaved(option, kGelu)) of_attention += Rounded(BytesOf(kQkv, dtype_));
    for (const BlockArray array : {kMiddle, kNorm2, kExpanded, kGelu}) {
      if (!IsSaved(option, array)) of_mlp += Rounded(BytesOf(array, dtype_));
    }
    EXPECT_EQ(transient.bytes, Rounded(BytesOf(kMiddle, dtype_)) + std::max(of_attention, of_mlp));
  }
}

// The second half reads inputs of products, the gradients of their outputs, and rows.
TEST_P(BlockLayoutTest, WhatASplitBackwardPassLeavesLiesApart) {
  const BlockLayout layout({kModel, kBatch, dtype_}, {.splits_backward = true});
  std::vector<char> deferred_area(1 << 20);
  for (int o = 0; o < kOptions; ++o) {
    const BlockSaveOption& option = kBlockSaveOptions[o];
    SCOPED_TRACE(option.name);
    EXPECT_EQ(layout.SavedBytes(o), layout_.SavedBytes(o));
    const Piece saved = Saved(layout.SavedBytes(o)),
                transient = Transient(layout.BackwardTransientBytes(o)),
                deferred = {"deferred", deferred_area.data(), layout.DeferredBytes(o)};
    const BlockMemory memory =
        layout.Backward(o, saved_.data(), transient_.data(), deferred_area.data());
    const int64_t rows = 6 * kModel.width * precision::SizeOf(dtype_);
    const auto moment = [&](std::vector<BlockArray> arrays) {
      Moment result(memory, dtype_);
      for (const BlockArray array : arrays) result.Has(array);
      return result.HasWidths("dmlp", memory.dmlp, 4)
          .HasWidths("dqkv", memory.dqkv, 3)
          .HasWidths("gradient of the MLP's branch", memory.dmlp_branch, 1)
          .HasWidths("gradient of attention's branch", memory.dattention_branch, 1)
          .Has("row gradients", memory.row_gradients, rows);
    };
    moment({kMiddle, kMean1, kInverse1, kMean2, kInverse2, kNorm2, kExpanded, kGelu})
        .HasWidths("dwidth", memory.dwidth, 1)
        .Expect(saved, transient, deferred);
    moment({kNorm1, kMean1, kInverse1, kQkv, kAttention, kLogSumExp, kNorm2, kGelu})
        .HasWidths("dwidth", memory.dwidth, 1)
        .Expect(saved, transient, deferred);
    // Of the second half, in which nothing is transient.
    moment({kNorm1, kAttention, kNorm2, kGelu}).Expect(saved, {}, deferred);
    int64_t bytes = Rounded(rows);
    for (const int widths : {4, 3, 1, 1}) bytes += Rounded(widths * BytesOf(kMiddle, dtype_));
    for (const BlockArray array : {kNorm1, kAttention, kNorm2, kGelu}) {
      if (!IsSaved(option, array)) bytes += Rounded(BytesOf(array, dtype_));
    }
    EXPECT_EQ(deferred.bytes, bytes);
  }
}

TEST_P(BlockLayoutTest, AnOutputOfTheCallersIsNotSaved) {
  const BlockLayout layout({kModel, kBatch, dtype_}, {.saves_output = false});
  for (int o = 0; o < kOptions; ++o) {
    EXPECT_EQ(layout.SavedBytes(o), layout_.SavedBytes(o) - Rounded(BytesOf(kMiddle, dtype_)));
    EXPECT_EQ(layout.DeferredBytes(o), 0);
    const BlockMemory memory = layout.Forward(o, saved_.data(), transient_.data());
    EXPECT_EQ(memory.output, nullptr);
    EXPECT_EQ(layout.Backward(o, saved_.data(), transient_.data()).arrays[kMean1],
              memory.arrays[kMean1]);
  }
}

}  // namespace
}  // namespace brigade::gpt
