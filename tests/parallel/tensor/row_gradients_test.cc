#include "brigade/parallel/tensor/row_gradients.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "brigade/nn/layer_norm.h"
#include "brigade/nn/pointwise.h"
#include "brigade/tests/parallel/tensor/tensor_lab.h"
#include "gmock/gmock.h"

namespace brigade::parallel {
namespace {

using ::brigade::testing::StatusIs;
using precision::BFloat16;
using precision::DType;
using precision::Half;
using ::testing::HasSubstr;

constexpr int64_t kRows = 48, kWidth = 20;

template <typename T>
class RowGradientsTest : public ::testing::Test {};
using Types = ::testing::Types<float, Half, BFloat16>;
TYPED_TEST_SUITE(RowGradientsTest, Types);

template <typename T>
struct Gradients {
  std::vector<T> dx, dweight, dnorm_bias, dbias;
};

// Of a norm and of a bias, whose gradient is added to ones. Ranks must agree on them.
template <typename T>
Gradients<T> Run(int count, int ranks, int most_pieces = 1) {
  const auto x = Noise<T>(kRows * kWidth, 1), dy = Noise<T>(kRows * kWidth, 2);
  const auto weight = Noise<T>(kWidth, 3), norm_bias = Noise<T>(kWidth, 4);
  Gradients<T> whole = {std::vector<T>(x.size()), std::vector<T>(kWidth), std::vector<T>(kWidth),
                        std::vector<T>(kWidth)};
  std::vector<std::vector<T>> of_ranks(static_cast<size_t>(ranks));
  OnTensorRanks(count, ranks, [&](TensorLab& lab) {
    constexpr DType kType = precision::kDType<T>;
    const RowPieces pieces = {kRows, most_pieces, SumPart::kOwn, lab.shards()};
    const auto my_x = lab.CutRows(pieces, kWidth, x), my_dy = lab.CutRows(pieces, kWidth, dy);
    const auto my_weight = lab.Cut({.shape = {kWidth}}, weight);
    const auto my_norm_bias = lab.Cut({.shape = {kWidth}}, norm_bias);
    const int64_t local = pieces.own_rows();
    const auto y = lab.Raw<T>(local * kWidth), dx = lab.Raw<T>(local * kWidth);
    const auto mean = lab.Raw<float>(local), inverse = lab.Raw<float>(local);
    const auto dweight = lab.Raw<T>(kWidth), dnorm_bias = lab.Raw<T>(kWidth);
    const auto dbias = lab.Array(std::vector<T>(kWidth, T(1.0f)));
    auto gradients = RowGradients::Create({.shards = lab.shards(),
                                           .dtype = kType,
                                           .elements = 3 * kWidth,
                                           .pieces = pieces.count()},
                                          lab.self().communicator.get(), *lab.self().context)
                         .value();
    ASSERT_OK(nn::LayerNorm(
        {kType, my_x.data(), my_weight.data(), mean.data(), inverse.data(), local, kWidth},
        my_norm_bias.data(), y.data(), lab.stream()));
    for (int p = 0; p < pieces.count(); ++p) {
      for (int b = 0; b < lab.shards().local(); ++b) {
        const auto [row, rows] = pieces.Block(p, b);
        const int64_t at = row * kWidth;
        ASSERT_OK(nn::LayerNormBackward(
            {kType, &my_x[at], my_weight.data(), &mean[row], &inverse[row], rows, kWidth},
            &my_dy[at], {&dx[at]}, {gradients->Block(p, b, 0)}, {gradients->Block(p, b, kWidth)},
            lab.workspace(), lab.stream()));
        ASSERT_OK(nn::BiasBackward({kType, rows, kWidth}, &my_dy[at],
                                   {gradients->Block(p, b, 2 * kWidth)}, lab.workspace(),
                                   lab.stream()));
      }
    }
    ASSERT_OK(gradients->Sum({{0, kWidth, {dweight.data()}},
                              {kWidth, kWidth, {dnorm_bias.data()}},
                              {2 * kWidth, kWidth, {dbias.data(), true}}},
                             lab.stream()));
    ASSERT_OK(lab.self().communicator->Synchronize(lab.stream()));
    lab.JoinRows<T>(pieces, kWidth, dx, whole.dx);
    auto& mine = of_ranks[static_cast<size_t>(lab.shards().rank)];
    for (const auto& each_gradient : {dweight, dnorm_bias, dbias}) {
      const std::vector<T> values = lab.Read(each_gradient);
      mine.insert(mine.end(), values.begin(), values.end());
    }
  });
  for (const std::vector<T>& of_rank : of_ranks) {
    EXPECT_TRUE(SameBits(of_rank, of_ranks[0])) << "ranks have other bits";
  }
  std::copy_n(of_ranks[0].begin(), kWidth, whole.dweight.begin());
  std::copy_n(of_ranks[0].begin() + kWidth, kWidth, whole.dnorm_bias.begin());
  std::copy_n(of_ranks[0].begin() + 2 * kWidth, kWidth, whole.dbias.begin());
  return whole;
}

TYPED_TEST(RowGradientsTest, OneShardHasTheBitsOfNnsLayers) {
  using T = TypeParam;
  const Gradients<T> gradients = Run<T>(1, 1);
  const auto x = Noise<T>(kRows * kWidth, 1), dy = Noise<T>(kRows * kWidth, 2);
  OnTensorRanks(1, 1, [&](TensorLab& lab) {
    constexpr DType kType = precision::kDType<T>;
    const auto my_x = lab.Cut({.shape = {kRows, kWidth}}, x);
    const auto my_dy = lab.Cut({.shape = {kRows, kWidth}}, dy);
    const auto weight = lab.Cut({.shape = {kWidth}}, Noise<T>(kWidth, 3));
    const auto bias = lab.Cut({.shape = {kWidth}}, Noise<T>(kWidth, 4));
    const auto y = lab.Raw<T>(kRows * kWidth), dx = lab.Raw<T>(kRows * kWidth);
    const auto mean = lab.Raw<float>(kRows), inverse = lab.Raw<float>(kRows);
    const auto dweight = lab.Raw<T>(kWidth), dbias = lab.Raw<T>(kWidth);
    const nn::LayerNormInput input = {kType,          my_x.data(), weight.data(), mean.data(),
                                      inverse.data(), kRows,       kWidth};
    ASSERT_OK(nn::LayerNorm(input, bias.data(), y.data(), lab.stream()));
    ASSERT_OK(nn::LayerNormBackward(input, my_dy.data(), {dx.data()}, {dweight.data()},
                                    {dbias.data()}, lab.workspace(), lab.stream()));
    ASSERT_OK(lab.stream().Synchronize());
    EXPECT_TRUE(SameBits(gradients.dweight, lab.Read(dweight)));
    EXPECT_TRUE(SameBits(gradients.dnorm_bias, lab.Read(dbias)));
    EXPECT_TRUE(SameBits(gradients.dx, lab.Read(dx)));
  });
}

TYPED_TEST(RowGradientsTest, TheNumberOfRanksChangesNoBit) {
  using T = TypeParam;
  for (const int count : Counts()) {
    // Of 48 rows: four pieces of eight shards are unequal.
    for (const int pieces : {1, 2, 4}) {
      const Gradients<T> one = Run<T>(count, 1, pieces);
      for (int ranks = 2; ranks <= count; ranks *= 2) {
        SCOPED_TRACE(absl::StrCat(count, " shards, ", ranks, " ranks, ", pieces, " pieces"));
        const Gradients<T> gradients = Run<T>(count, ranks, pieces);
        EXPECT_TRUE(SameBits(gradients.dx, one.dx));
        EXPECT_TRUE(SameBits(gradients.dweight, one.dweight));
        EXPECT_TRUE(SameBits(gradients.dnorm_bias, one.dnorm_bias));
        EXPECT_TRUE(SameBits(gradients.dbias, one.dbias));
      }
    }
  }
}

// Sums over all rows in double: blocks are summed, never averaged, and nothing counts twice.
TYPED_TEST(RowGradientsTest, IsTheSumOverAllRows) {
  using T = TypeParam;
  const auto x = InDouble(Noise<T>(kRows * kWidth, 1)), dy = InDouble(Noise<T>(kRows * kWidth, 2));
  std::vector<double> dweight(kWidth), dbias(kWidth);
  for (int64_t r = 0; r < kRows; ++r) {
    const auto at = [&](int64_t c) { return static_cast<size_t>(r * kWidth + c); };
    double mean = 0, variance = 0;
    for (int64_t c = 0; c < kWidth; ++c) mean += x[at(c)] / kWidth;
    for (int64_t c = 0; c < kWidth; ++c) variance += std::pow(x[at(c)] - mean, 2) / kWidth;
    for (int64_t c = 0; c < kWidth; ++c) {
      dweight[static_cast<size_t>(c)] += dy[at(c)] * (x[at(c)] - mean) / std::sqrt(variance + 1e-5);
      dbias[static_cast<size_t>(c)] += dy[at(c)];
    }
  }
  // Of each block's gradient and of the sum, with those of 48 terms in float.
  const double bound = 9 * UnitRoundoff<T>() * 8 + 48 * 0x1p-24 * 16;
  for (const auto& [count, pieces] : {std::pair(1, 1), std::pair(3, 1), std::pair(4, 1),
                                      std::pair(4, 5), std::pair(6, 3), std::pair(8, 1)}) {
    if (testing::IsEmulated() && count > 4) continue;
    const Gradients<T> gradients = Run<T>(count, count, pieces);
    for (size_t c = 0; c < size_t{kWidth}; ++c) {
      EXPECT_NEAR(static_cast<double>(nn::Widen(gradients.dweight[c])), dweight[c], bound) << c;
      EXPECT_NEAR(static_cast<double>(nn::Widen(gradients.dnorm_bias[c])), dbias[c], bound) << c;
      EXPECT_NEAR(static_cast<double>(nn::Widen(gradients.dbias[c])), dbias[c] + 1,
                  bound + 16 * UnitRoundoff<T>())
          << c;
    }
  }
}

TEST(RowGradientsTest, SendsOneAllReduceAndHasTheMemoryItSays) {
  constexpr int64_t kElements = 64;
  OnTensorRanks(4, 4, [](TensorLab& lab) {
    collectives::Communicator& group = *lab.self().communicator;
    const int64_t before = lab.scratch_bytes();
    auto gradients = RowGradients::Create(
                         {.shards = lab.shards(), .dtype = DType::kBFloat16, .elements = kElements},
                         &group, *lab.self().context)
                         .value();
    // Threads need no workspace of the communicator.
    EXPECT_EQ(lab.scratch_bytes() - before,
              RowGradients::Bytes(
                  {.shards = lab.shards(), .dtype = DType::kBFloat16, .elements = kElements}));
    EXPECT_EQ(lab.scratch_bytes() - before, 2 * kElements * 2 + kElements * 4);
    const int64_t sent_before = lab.sent_bytes();
    // More targets than are delivered at once.
    const auto target = lab.Raw<BFloat16>(kElements);
    std::vector<RowGradients::Target> targets;
    lab.Write(std::vector<BFloat16>(kElements, BFloat16(1.0f)),
              absl::MakeSpan(static_cast<BFloat16*>(gradients->Block(0, 0, 0)), kElements));
    for (int64_t i = 0; i < kElements; ++i) targets.push_back({i, 1, {&target[i]}});
    ASSERT_OK(gradients->Sum(targets, lab.stream()));
    ASSERT_OK(group.Synchronize(lab.stream()));
    lab.self().AwaitOthers();
    EXPECT_EQ(lab.sent_bytes() - sent_before, 2 * 3 * kElements / 4 * 4);
    for (const BFloat16 value : lab.Read(target)) EXPECT_EQ(static_cast<float>(value), 4.0f);
  });
}

TEST(RowGradientsTest, WrongUsesAreNamed) {
  OnTensorRanks(2, 2, [](TensorLab& lab) {
    const auto create = [&](DType dtype) {
      return RowGradients::Create({.shards = lab.shards(), .dtype = dtype, .elements = 8},
                                  lab.self().communicator.get(), *lab.self().context);
    };
    EXPECT_THAT(RowGradients::Create({.shards = lab.shards(), .elements = 8, .pieces = 0},
                                     lab.self().communicator.get(), *lab.self().context),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         HasSubstr("pieces is 0; it must be 1 to 256")));
    EXPECT_THAT(create(DType::kFloat64),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("dtype is fp64")));
    auto gradients = create(DType::kFloat32).value();
    const auto target = lab.Raw<float>(16);
    EXPECT_THAT(gradients->Sum({{4, 8, {target.data()}}}, lab.stream()),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         HasSubstr("[1, 12] on 2 ranks; at most 8 elements")));
  });
}

}  // namespace
}  // namespace brigade::parallel
