#include "brigade/nn/lora.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "brigade/nn/linear.h"
#include "brigade/nn/philox.h"
#include "brigade/tests/nn/types_lab.h"

namespace brigade::nn {
namespace {

using precision::DType;

constexpr int64_t kRows = 5, kInputs = 33, kOutputs = 7, kRank = 3, kLeading = kOutputs + 2;

// W = [[1, 2], [3, 4]], x = (1, 1), A = (1, 0), B = 0, alpha 2, dy = (1, 1): by hand.
TEST(LoraTest, TheFirstStepMovesBAlone) {
  Lab lab;
  auto blas = Blas::Create(lab.context(), 0).value();
  const auto array = [&](const std::vector<float>& values) {
    const auto made = lab.Raw<float>(static_cast<int64_t>(values.size()));
    std::copy(values.begin(), values.end(), made.begin());
    return made;
  };
  const auto values = [](absl::Span<const float> x) {
    return std::vector<float>(x.begin(), x.end());
  };
  const auto w = array({1, 2, 3, 4}), x = array({1, 1}), a = array({1, 0}), b = array({0, 0});
  const auto dy = array({1, 1}), y = array({-1, -1}), hidden = array({-1}), dhidden = array({-1});
  const auto da = array({-1, -1}), db = array({-1, -1});
  const LoraInput input = {DType::kFloat32, x.data(), a.data(), b.data(), 1, 2, 2, 1, 2.0};
  const LoraScratch scratch = {nullptr, hidden.data(), dhidden.data()};
  const LinearInput linear = {DType::kFloat32, x.data(), w.data(), 1, 2, 2};
  const auto forward = [&] {
    EXPECT_OK(Linear(linear, nullptr, y.data(), *blas, lab.stream()));
    EXPECT_OK(Lora(input, scratch, y.data(), *blas, lab.stream()));
    EXPECT_OK(lab.stream().Synchronize());
    return values(y);
  };
  EXPECT_EQ(forward(), (std::vector<float>{3, 7}));
  // dx = W^T dy, to which the adapter adds nothing yet.
  const auto dx = array({4, 6});
  ASSERT_OK(LoraBackward(input, scratch, dy.data(), dx.data(), {da.data()}, {db.data()}, *blas,
                         lab.stream()));
  ASSERT_OK(lab.stream().Synchronize());
  EXPECT_EQ(values(db), (std::vector<float>{2, 2}));
  EXPECT_EQ(values(da), (std::vector<float>{0, 0}));
  EXPECT_EQ(values(dx), (std::vector<float>{4, 6}));
  for (size_t i = 0; i < 2; ++i) b[i] -= 0.1f * db[i];
  const std::vector<float> after = forward();
  EXPECT_FLOAT_EQ(after[0], 2.6f);
  EXPECT_FLOAT_EQ(after[1], 6.6f);
}

// Of rows of a longer matrix what is dropped is what is dropped of that.
TEST(LoraTest, RunsOfRowsDropWhatTheLongerMatrixDoes) {
  if (kOnGpu) GTEST_SKIP() << "products of doubles are for the CPU";
  constexpr int64_t kLonger = 9;
  Lab lab;
  auto blas = Blas::Create(lab.context(), 0).value();
  const RowRun runs[] = {{0, 1, 2}, {2, 6, 3}};
  const auto x = lab.Noise<double>(kLonger * kInputs), a = lab.Noise<double>(kRank * kInputs);
  const auto b = lab.Noise<double>(kOutputs * kRank), dy = lab.Noise<double>(kLonger * kOutputs);
  const auto step = lab.Raw<int64_t>(1);
  step[0] = 3;
  struct Results {
    absl::Span<double> y, dx;
  };
  const auto run = [&](int64_t rows, const double* from, const double* up,
                       absl::Span<const RowRun> of) -> Results {
    const auto y = lab.Raw<double>(rows * kOutputs), dx = lab.Raw<double>(rows * kInputs);
    std::fill(y.begin(), y.end(), 0.0);
    std::fill(dx.begin(), dx.end(), 0.0);
    const auto dropped = lab.Raw<double>(rows * kInputs);
    const auto hidden = lab.Raw<double>(rows * kRank), dhidden = lab.Raw<double>(rows * kRank);
    const LoraScratch scratch = {dropped.data(), hidden.data(), dhidden.data()};
    const LoraInput input = {
        .dtype = DType::kFloat64,
        .x = from,
        .a = a.data(),
        .b = b.data(),
        .rows = rows,
        .inputs = kInputs,
        .outputs = kOutputs,
        .rank = kRank,
        .scale = 1,
        .dropout = {.probability = 0.4, .seed = 9, .step = step.data(), .first_element = 66},
        .runs = of};
    EXPECT_OK(Lora(input, scratch, y.data(), *blas, lab.stream()));
    EXPECT_OK(LoraBackward(input, scratch, up, dx.data(), {}, {}, *blas, lab.stream()));
    EXPECT_OK(lab.stream().Synchronize());
    return {y, dx};
  };
  const Results longer = run(kLonger, x.data(), dy.data(), {});
  const auto own_x = lab.Raw<double>(5 * kInputs), own_dy = lab.Raw<double>(5 * kOutputs);
  const auto cut = [&](absl::Span<const double> all, int64_t columns, absl::Span<double> own) {
    for (const RowRun& each : runs) {
      std::copy_n(all.begin() + each.global * columns, each.count * columns,
                  own.begin() + each.local * columns);
    }
  };
  cut(x, kInputs, own_x);
  cut(dy, kOutputs, own_dy);
  const Results own = run(5, own_x.data(), own_dy.data(), runs);
  const auto expected_y = lab.Raw<double>(5 * kOutputs), expected_dx = lab.Raw<double>(5 * kInputs);
  cut(longer.y, kOutputs, expected_y);
  cut(longer.dx, kInputs, expected_dx);
  int zeros = 0;
  for (size_t i = 0; i < own.y.size(); ++i) EXPECT_NEAR(own.y[i], expected_y[i], 1e-14) << i;
  for (size_t i = 0; i < own.dx.size(); ++i) {
    EXPECT_NEAR(own.dx[i], expected_dx[i], 1e-14) << i;
    EXPECT_EQ(own.dx[i] == 0, expected_dx[i] == 0) << i;
    zeros += own.dx[i] == 0;
  }
  EXPECT_GT(zeros, 0);
  // By their own numbers they would not.
  const Results neighbours = run(5, own_x.data(), own_dy.data(), {});
  EXPECT_FALSE(std::equal(neighbours.dx.begin(), neighbours.dx.end(), own.dx.begin()));
}

TEST(LoraTest, GradientsAreThoseOfTheProductWithAndWithoutDropout) {
  if (kOnGpu) GTEST_SKIP() << "products of doubles are for the CPU";
  for (const double probability : {0.0, 0.4}) {
    SCOPED_TRACE(probability);
    Lab lab;
    auto blas = Blas::Create(lab.context(), 0).value();
    const auto x = lab.Noise<double>(kRows * kInputs), a = lab.Noise<double>(kRank * kInputs);
    const auto b = lab.Noise<double>(kOutputs * kRank);
    const auto y = lab.Raw<double>(kRows * kLeading), dy = lab.Noise<double>(kRows * kLeading);
    const auto dropped = lab.Raw<double>(x.size());
    const auto hidden = lab.Raw<double>(kRows * kRank), dhidden = lab.Raw<double>(hidden.size());
    const auto step = lab.Raw<int64_t>(1);
    step[0] = 3;
    for (int64_t r = 0; r < kRows; ++r) {
      for (int64_t c = kOutputs; c < kLeading; ++c) dy[static_cast<size_t>(r * kLeading + c)] = 0;
    }
    LoraInput input = {DType::kFloat64, x.data(), a.data(), b.data(), kRows,
                       kInputs,         kOutputs, kRank,    0.7};
    input.y_leading = kLeading;
    input.dropout = {.probability = probability,
                     .seed = 9,
                     .layer = 4,
                     .step = step.data(),
                     .first_element = 66};
    const LoraScratch scratch = {dropped.data(), hidden.data(), dhidden.data()};
    const auto f = [&] {
      std::fill(y.begin(), y.end(), 0.25);
      EXPECT_OK(Lora(input, scratch, y.data(), *blas, lab.stream()));
      EXPECT_OK(lab.stream().Synchronize());
      // Behind a row's outputs nothing is written.
      for (int64_t r = 0; r < kRows; ++r) {
        for (int64_t c = kOutputs; c < kLeading; ++c) {
          EXPECT_EQ(y[static_cast<size_t>(r * kLeading + c)], 0.25);
        }
      }
      return Dot(y, dy);
    };
    // dx and da are added to what is there, db is not.
    const auto dx = lab.Noise<double>(x.size()), da = lab.Noise<double>(a.size());
    const auto db = lab.Raw<double>(b.size());
    const std::vector<double> x_before(dx.begin(), dx.end()), a_before(da.begin(), da.end());
    ASSERT_OK(LoraBackward(input, scratch, dy.data(), dx.data(), {da.data(), true}, {db.data()},
                           *blas, lab.stream()));
    ASSERT_OK(lab.stream().Synchronize());
    int zeros = 0;
    for (size_t i = 0; i < dx.size(); ++i) {
      dx[i] -= x_before[i];
      zeros += dx[i] == 0;
    }
    for (size_t i = 0; i < da.size(); ++i) da[i] -= a_before[i];
    EXPECT_EQ(zeros > 0, probability > 0);
    ExpectGradient(x, dx, f);
    ExpectGradient(a, da, f);
    ExpectGradient(b, db, f);
  }
}

TYPED_TEST(TypesTest, LoraIsThatOfDouble) {
  auto blas = Blas::Create(this->lab_.context(), int64_t{1} << 20).value();
  auto reference = Blas::Create(this->reference_.context(), 0).value();
  const auto x = this->Noise(kRows * kInputs), a = this->Noise(kRank * kInputs);
  const auto b = this->Noise(kOutputs * kRank), y = this->Noise(kRows * kOutputs);
  const auto hidden = this->Raw(kRows * kRank);
  const LoraInput narrow = {precision::kDType<TypeParam>,
                            x.narrow.data(),
                            a.narrow.data(),
                            b.narrow.data(),
                            kRows,
                            kInputs,
                            kOutputs,
                            kRank,
                            0.5};
  LoraInput wide = narrow;
  wide.dtype = DType::kFloat64;
  wide.x = x.wide.data();
  wide.a = a.wide.data();
  wide.b = b.wide.data();
  ASSERT_OK(
      Lora(narrow, {.hidden = hidden.narrow.data()}, y.narrow.data(), *blas, this->lab_.stream()));
  ASSERT_OK(Lora(wide, {.hidden = hidden.wide.data()}, y.wide.data(), *reference,
                 this->reference_.stream()));
  ASSERT_OK(this->lab_.stream().Synchronize());
  ASSERT_OK(this->reference_.stream().Synchronize());
  // The rounding of hidden, by which sums of `rank` products are off, and that of y.
  this->ExpectNear(y, sizeof(TypeParam) == 4 ? 40 : 6);
}

}  // namespace
}  // namespace brigade::nn
