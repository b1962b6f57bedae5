// Attention of blocks of queries and keys, which are merged, against whole attention.

#include "brigade/nn/attention_block.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "absl/strings/str_cat.h"
#include "brigade/nn/functions.h"
#include "brigade/tests/nn/lab.h"
#include "brigade/tests/nn/plain_attention.h"

namespace brigade::nn {
namespace {

using precision::BFloat16;
using precision::DType;
using precision::Half;

constexpr double kNone = -std::numeric_limits<double>::infinity();

template <typename T>
class AttentionBlockTest : public ::testing::Test {};
using Types = ::testing::Types<float, Half, BFloat16, double>;
TYPED_TEST_SUITE(AttentionBlockTest, Types);

// Both passes over a text that is cut after `cut` positions: causal blocks of each part, and the
// second part's queries against the first part's keys.
template <typename T>
class CutPass {
 public:
  using W = Wide<T>;

  CutPass(const AttentionShape& shape, const std::vector<double>& inputs,
          const std::vector<double>& upstream)
      : shape_(shape),
        qkv(lab_.Raw<T>(shape.rows() * 3 * shape.width)),
        keys(lab_.Raw<T>(shape.rows() * 2 * shape.width)),
        dout(lab_.Raw<T>(shape.rows() * shape.width)),
        out(lab_.Raw<W>(shape.rows() * shape.width)),
        lse(lab_.Raw<W>(shape.statistics())),
        rounded(lab_.Raw<T>(shape.rows() * shape.width)),
        dqueries(lab_.Raw<W>(shape.rows() * shape.width)),
        dkeys(lab_.Raw<W>(shape.rows() * 2 * shape.width)),
        part_(lab_.Raw<W>(shape.rows() * 2 * shape.width)),
        part_lse_(lab_.Raw<W>(shape.statistics())),
        workspace_(lab_.Raw<char>(AttentionWorkspaceBytes(shape, lab_.context().device()))) {
    for (size_t i = 0; i < inputs.size(); ++i) qkv[i] = T(static_cast<W>(inputs[i]));
    for (size_t i = 0; i < upstream.size(); ++i) dout[i] = T(static_cast<W>(upstream[i]));
    const int64_t width = shape.width;
    for (int64_t row = 0; row < shape.rows(); ++row) {
      std::copy_n(&qkv[row * 3 * width + width], 2 * width, &keys[row * 2 * width]);
    }
  }

  AttentionBlock Block(int64_t query, int64_t queries, int64_t key, int64_t count) const {
    return {shape_, query, queries, key, count, query == key};
  }

  void Forward(int64_t cut) {
    const int64_t rest = shape_.context - cut;
    Attend(Block(0, cut, 0, cut), out, lse);
    if (rest == 0) return;
    Attend(Block(cut, rest, cut, rest), out, lse);
    Attend(Block(cut, rest, 0, cut), part_, part_lse_);
    ASSERT_OK(MergeAttention(shape_, cut, rest, part_.data(), part_lse_.data(), out.data(),
                             lse.data(), lab_.stream()));
    ASSERT_OK(lab_.stream().Synchronize());
  }

  // Of `out`, rounded.
  void Backward(int64_t cut) {
    for (size_t i = 0; i < rounded.size(); ++i) rounded[i] = T(out[i]);
    const int64_t rest = shape_.context - cut;
    ASSERT_OK(
        AttentionDelta(shape_, rounded.data(), dout.data(), workspace_.data(), lab_.stream()));
    Gradients(Block(0, cut, 0, cut), false, dkeys);
    if (rest == 0) return;
    Gradients(Block(cut, rest, cut, rest), false, dkeys);
    Gradients(Block(cut, rest, 0, cut), true, part_);
    for (int64_t row = 0; row < shape_.rows(); ++row) {
      if (row % shape_.context >= cut) continue;
      for (int64_t c = 0; c < 2 * shape_.width; ++c) {
        dkeys[row * 2 * shape_.width + c] += part_[row * 2 * shape_.width + c];
      }
    }
  }

 private:
  void Attend(const AttentionBlock& block, absl::Span<W> to, absl::Span<W> to_lse) {
    ASSERT_OK(
        AttentionOfBlock(block, qkv.data(), keys.data(), to.data(), to_lse.data(), lab_.stream()));
    ASSERT_OK(lab_.stream().Synchronize());
  }
  void Gradients(const AttentionBlock& block, bool adds, absl::Span<W> to) {
    ASSERT_OK(AttentionBackwardOfBlock(block, qkv.data(), keys.data(), lse.data(),
                                       workspace_.data(), dout.data(), workspace_.data(),
                                       dqueries.data(), adds, to.data(), lab_.stream()));
    ASSERT_OK(lab_.stream().Synchronize());
  }

  const AttentionShape shape_;
  Lab lab_;

 public:
  absl::Span<T> qkv, keys, dout;
  absl::Span<W> out, lse;
  absl::Span<T> rounded;
  absl::Span<W> dqueries, dkeys;

 private:
  absl::Span<W> part_, part_lse_;
  absl::Span<char> workspace_;
};

AttentionShape Shape(DType dtype, int64_t batch, int64_t context, int64_t heads, int64_t width) {
  return {dtype, batch, context, heads, heads * width};
}

std::vector<double> Exact(int64_t size, uint64_t seed) {
  Random random(seed, 0);
  std::vector<double> values(static_cast<size_t>(size));
  for (double& value : values) value = std::round(64 * (2 * random.Uniform() - 1)) / 64;
  return values;
}

// Scores 0 and ln 3, values 1 and 5: one of each in a block of its own.
TYPED_TEST(AttentionBlockTest, TwoKeysMergeToTheKnownAnswer) {
  using W = Wide<TypeParam>;
  Lab lab;
  const AttentionShape shape = Shape(precision::kDType<TypeParam>, 1, 1, 1, 1);
  const auto out = lab.Raw<W>(1), lse = lab.Raw<W>(1), from = lab.Raw<W>(1), l = lab.Raw<W>(1);
  out[0] = 1, lse[0] = 0;
  from[0] = 5, l[0] = std::log(W(3));
  ASSERT_OK(
      MergeAttention(shape, 0, 1, from.data(), l.data(), out.data(), lse.data(), lab.stream()));
  ASSERT_OK(lab.stream().Synchronize());
  const double u = sizeof(W) == 8 ? 0x1p-53 : 0x1p-24;
  EXPECT_NEAR(static_cast<double>(lse[0]), std::log(4.0), 4 * u);
  EXPECT_NEAR(static_cast<double>(out[0]), 4, 40 * u);
}

TYPED_TEST(AttentionBlockTest, RowsThatHaveSeenNothingTakeWhatComesAndAddNothing) {
  using W = Wide<TypeParam>;
  Lab lab;
  const AttentionShape shape = Shape(precision::kDType<TypeParam>, 1, 3, 1, 1);
  const auto out = lab.Raw<W>(3), lse = lab.Raw<W>(3), from = lab.Raw<W>(3), l = lab.Raw<W>(3);
  const W nan = std::numeric_limits<W>::quiet_NaN();
  const auto none = static_cast<W>(kNone);
  out[0] = nan, lse[0] = none, from[0] = 5, l[0] = 2;
  out[1] = 7, lse[1] = 3, from[1] = nan, l[1] = none;
  out[2] = nan, lse[2] = none, from[2] = nan, l[2] = none;
  ASSERT_OK(
      MergeAttention(shape, 0, 3, from.data(), l.data(), out.data(), lse.data(), lab.stream()));
  ASSERT_OK(lab.stream().Synchronize());
  EXPECT_EQ(out[0], W(5));
  EXPECT_EQ(lse[0], W(2));
  EXPECT_EQ(out[1], W(7));
  EXPECT_EQ(lse[1], W(3));
  EXPECT_EQ(lse[2], none);
}

TYPED_TEST(AttentionBlockTest, MergingTouchesItsPositionsAlone) {
  using W = Wide<TypeParam>;
  Lab lab;
  const AttentionShape shape = Shape(precision::kDType<TypeParam>, 2, 3, 2, 2);
  const auto out = lab.Raw<W>(24), lse = lab.Raw<W>(12), from = lab.Raw<W>(24), l = lab.Raw<W>(12);
  std::fill(out.begin(), out.end(), W(1));
  std::fill(from.begin(), from.end(), W(3));
  std::fill(lse.begin(), lse.end(), W(0));
  std::fill(l.begin(), l.end(), W(0));
  ASSERT_OK(
      MergeAttention(shape, 1, 1, from.data(), l.data(), out.data(), lse.data(), lab.stream()));
  ASSERT_OK(lab.stream().Synchronize());
  for (int64_t i = 0; i < 24; ++i) {
    EXPECT_NEAR(static_cast<double>(out[i]), i / 4 % 3 == 1 ? 2 : 1, 1e-6) << i;
  }
  for (int64_t i = 0; i < 12; ++i) EXPECT_EQ(lse[i] != 0, i % 3 == 1) << i;
}

TYPED_TEST(AttentionBlockTest, ACausalBlockOfAllPositionsHasTheBitsOfAttention) {
  using T = TypeParam;
  for (const int64_t context :
       kOnGpu ? std::vector<int64_t>{20} : std::vector<int64_t>{1, 65, 200}) {
    SCOPED_TRACE(context);
    const AttentionShape shape = Shape(precision::kDType<T>, 2, context, 2, 32);
    const auto qkv = Exact(shape.rows() * 3 * shape.width, 1);
    CutPass<T> cut(shape, qkv, {});
    cut.Forward(context);
    Lab lab;
    const auto out = lab.Raw<T>(shape.rows() * shape.width);
    const auto lse = lab.Raw<Wide<T>>(shape.statistics());
    ASSERT_OK(Attention(shape, cut.qkv.data(), out.data(), lse.data(), lab.stream()));
    ASSERT_OK(lab.stream().Synchronize());
    for (size_t i = 0; i < out.size(); ++i) ASSERT_EQ(Widen(T(cut.out[i])), Widen(out[i])) << i;
    EXPECT_EQ(std::memcmp(lse.data(), cut.lse.data(), lse.size() * sizeof(lse[0])), 0);
  }
}

template <typename T>
void ExpectCutIsPlain(const AttentionShape& shape, int64_t cut) {
  SCOPED_TRACE(
      absl::StrCat("context ", shape.context, " cut at ", cut, ", heads of ", shape.head_width()));
  const auto qkv = Exact(shape.rows() * 3 * shape.width, 1),
             dout = Exact(shape.rows() * shape.width, 2);
  const PlainAttention plain(shape, qkv, dout);
  CutPass<T> pass(shape, qkv, dout);
  pass.Forward(cut);
  pass.Backward(cut);
  double largest = 0;
  for (const double lse : plain.log_sum_exp) largest = std::max(largest, std::abs(lse));
  const Roundoffs u = Merged(RoundoffsOf<T>(shape, kOnGpu), 1, largest);
  for (int64_t head = 0; head < shape.batch * shape.heads; ++head) {
    for (int64_t i = 0; i < shape.context; ++i) {
      const size_t at = plain.Statistic(head, i);
      ASSERT_NEAR(static_cast<double>(pass.lse[at]), plain.log_sum_exp[at],
                  plain.LogSumExpBound(u, head, i));
      for (int64_t c = 0; c < shape.head_width(); ++c) {
        const auto column = static_cast<size_t>(c);
        const size_t o = plain.At(head, i, 0, 1) + column;
        ASSERT_NEAR(static_cast<double>(pass.out[o]), plain.out[o], plain.OutBound(u, head, i, c));
        ASSERT_NEAR(static_cast<double>(pass.dqueries[o]),
                    plain.dqkv[plain.At(head, i, 0, 3) + column],
                    plain.GradientBound(u, head, i, 0, c));
        for (const int part : {1, 2}) {
          ASSERT_NEAR(static_cast<double>(pass.dkeys[plain.At(head, i, part - 1, 2) + column]),
                      plain.dqkv[plain.At(head, i, part, 3) + column],
                      plain.GradientBound(u, head, i, part, c))
              << "part " << part << " of position " << i;
        }
      }
    }
  }
}

TYPED_TEST(AttentionBlockTest, BlocksMergeToPlainAttention) {
  using T = TypeParam;
  const DType dtype = precision::kDType<T>;
  const std::vector<int64_t> widths =
      kOnGpu ? std::vector<int64_t>{5, 32} : std::vector<int64_t>{1, 16, 33, 64};
  for (const int64_t width : widths) {
    for (const auto& [context, cut] : std::vector<std::pair<int64_t, int64_t>>{
             {2, 1}, {20, 7}, {70, 67}, {200, 64}, {330, 131}}) {
      // The emulator takes seconds for more.
      if (kOnGpu && context > (width == 32 ? 70 : 20)) break;
      ExpectCutIsPlain<T>(Shape(dtype, context < 100 ? 2 : 1, context, 2, width), cut);
    }
  }
}

// What is not there would have a probability of infinity, by a log-sum-exp far below 0.
TYPED_TEST(AttentionBlockTest, KeysThatAreNotThereAddNothingWhereAllScoresAreFarBelowZero) {
  using T = TypeParam;
  const AttentionShape shape = Shape(precision::kDType<T>, 1, 6, 1, 32);
  std::vector<double> qkv(static_cast<size_t>(shape.rows() * 3 * shape.width), 1);
  for (int64_t row = 0; row < shape.rows(); ++row) {
    for (int64_t c = 0; c < shape.width; ++c) {
      qkv[static_cast<size_t>(row * 3 * shape.width + c)] = -30;
      qkv[static_cast<size_t>((row * 3 + 1) * shape.width + c)] = 30;
    }
  }
  CutPass<T> pass(shape, qkv, Exact(shape.rows() * shape.width, 2));
  pass.Forward(3);
  pass.Backward(3);
  for (const auto value : pass.out) EXPECT_NEAR(static_cast<double>(value), 1, 0x1p-7);
  for (const auto value : pass.dqueries) EXPECT_TRUE(std::isfinite(static_cast<double>(value)));
  for (const auto value : pass.dkeys) EXPECT_TRUE(std::isfinite(static_cast<double>(value)));
}

TEST(AttentionBlockErrorTest, BlocksThatArraysDoNotHaveAreNamed) {
  Lab lab;
  const auto attend = [&](const AttentionBlock& block) {
    return AttentionOfBlock(block, nullptr, nullptr, nullptr, nullptr, lab.stream());
  };
  const AttentionShape shape = Shape(DType::kFloat32, 1, 8, 2, 4);
  EXPECT_EQ(attend({shape, 4, 5, 0, 8}),
            absl::InvalidArgumentError("attention_of_block: 5 queries from 4 on, of 8 positions"));
  EXPECT_EQ(attend({shape, 0, 8, -1, 2}),
            absl::InvalidArgumentError("attention_of_block: 2 keys from -1 on, of 8 positions"));
  EXPECT_EQ(attend({shape, 0, 8, 0, 0}),
            absl::InvalidArgumentError("attention_of_block: 0 keys from 0 on, of 8 positions"));
  EXPECT_EQ(attend({shape, 0, 4, 0, 8, true}),
            absl::InvalidArgumentError("attention_of_block: a causal block has 4 queries and 8 "
                                       "keys; it must have as many of both"));
  EXPECT_EQ(attend({Shape(DType::kInt32, 1, 8, 2, 4), 0, 8, 0, 8}),
            absl::InvalidArgumentError("attention_of_block: dtype is int32; it must be fp32, "
                                       "fp16, bf16 or fp64"));
  EXPECT_EQ(AttentionBackwardOfBlock({shape, 0, 9, 0, 8}, nullptr, nullptr, nullptr, nullptr,
                                     nullptr, nullptr, nullptr, false, nullptr, lab.stream()),
            absl::InvalidArgumentError(
                "attention_backward_of_block: 9 queries from 0 on, of 8 positions"));
  EXPECT_EQ(MergeAttention(shape, 7, 2, nullptr, nullptr, nullptr, nullptr, lab.stream()),
            absl::InvalidArgumentError("merge_attention: 2 queries from 7 on, of 8 positions"));
}

}  // namespace
}  // namespace brigade::nn
