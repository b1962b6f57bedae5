#include "brigade/nn/dropout.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include "brigade/nn/philox.h"
#include "brigade/tests/nn/types_lab.h"

namespace brigade::nn {
namespace {

using precision::DType;

// From the contract: whether element i of the mask stays.
bool Stays(const DropoutMask& mask, int64_t step, int64_t i) {
  const auto index = static_cast<uint64_t>(mask.first_element + i), block = index / 4;
  const PhiloxWords words =
      Philox({{static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32), mask.layer,
               static_cast<uint32_t>(step)}},
             mask.seed);
  return static_cast<double>(words.word[index % 4]) >= mask.probability * 0x1p32;
}

// The elements that stay, as 0 and 1, of a mask whose step is on the device.
std::vector<int> Kept(Lab& lab, DropoutMask mask, int64_t step, int64_t size) {
  const auto of_step = lab.Raw<int64_t>(1);
  of_step[0] = step;
  mask.step = of_step.data();
  const auto ones = lab.Raw<float>(size), y = lab.Raw<float>(size);
  std::fill(ones.begin(), ones.end(), 1.0f);
  EXPECT_OK(Dropout(DType::kFloat32, size, mask, ones.data(), nullptr, y.data(), lab.stream()));
  EXPECT_OK(lab.stream().Synchronize());
  std::vector<int> kept(static_cast<size_t>(size));
  for (int64_t i = 0; i < size; ++i) kept[static_cast<size_t>(i)] = y[i] != 0;
  return kept;
}

using AllTypes = ::testing::Types<float, precision::Half, precision::BFloat16, double>;
template <typename T>
class DropoutTest : public ::testing::Test {};
TYPED_TEST_SUITE(DropoutTest, AllTypes);

// Sizes around the blocks of 4 words and the rows of 1024, from beginnings that are not theirs.
TYPED_TEST(DropoutTest, IsTheMaskOfTheContractWithTheSameBitsOnEveryDevice) {
  using T = TypeParam;
  constexpr double kProbability = 0.25;
  for (const int64_t first : {int64_t{0}, int64_t{3}, int64_t{1022}, (int64_t{1} << 34) - 2}) {
    for (const int64_t size : {0, 1, 3, 4, 5, 1023, 1024, 1025, 2500}) {
      SCOPED_TRACE(::testing::Message() << size << " from " << first);
      const int64_t step = 7 + (int64_t{5} << 32);
      DropoutMask mask = {kProbability, 0x123456789abcdef0u, 9, nullptr, first};
      const std::vector<T> both = SameBits<T>([&](Lab& lab) {
        const auto x = lab.Noise<T>(size), residual = lab.Noise<T>(size);
        const auto of_step = lab.Raw<int64_t>(1);
        of_step[0] = step;
        mask.step = of_step.data();
        const auto y = lab.Raw<T>(2 * size);
        EXPECT_OK(
            Dropout(precision::kDType<T>, size, mask, x.data(), nullptr, y.data(), lab.stream()));
        EXPECT_OK(Dropout(precision::kDType<T>, size, mask, x.data(), residual.data(),
                          y.data() + size, lab.stream()));
        EXPECT_OK(lab.stream().Synchronize());
        return y;
      });
      ASSERT_EQ(both.size(), static_cast<size_t>(2 * size));
      // Noise is the same in every lab.
      Lab lab;
      const auto x = lab.Noise<T>(size), residual = lab.Noise<T>(size);
      using W = Wide<T>;
      for (int64_t i = 0; i < size; ++i) {
        const W scaled = Stays(mask, step, i) ? Widen(x[i]) * (W(1) / W(0.75)) : W(0);
        ASSERT_EQ(Widen(both[static_cast<size_t>(i)]), Widen(T(scaled))) << i;
        ASSERT_EQ(Widen(both[static_cast<size_t>(size + i)]), Widen(T(scaled + Widen(residual[i]))))
            << i;
      }
    }
  }
}

TYPED_TEST(DropoutTest, OfProbabilityZeroIsTheIdentityToTheBit) {
  using T = TypeParam;
  constexpr int64_t kSize = 2000;
  Lab lab;
  const auto x = lab.Noise<T>(kSize), y = lab.Raw<T>(kSize);
  x[5] = T(-0.0f);
  ASSERT_OK(Dropout(precision::kDType<T>, kSize, {}, x.data(), nullptr, y.data(), lab.stream()));
  ASSERT_OK(lab.stream().Synchronize());
  EXPECT_EQ(std::memcmp(x.data(), y.data(), kSize * sizeof(T)), 0);
}

TEST(DropoutMaskTest, KeepsItsShareAndNeighboursAreIndependent) {
  constexpr int64_t kSize = 40'000;
  for (const double p : {0.1, 0.5, 0.9}) {
    SCOPED_TRACE(p);
    Lab lab;
    const DropoutMask mask = {p, 42, 3};
    const std::vector<int> base = Kept(lab, mask, 11, kSize);
    DropoutMask other_layer = mask, other_seed = mask;
    other_layer.layer = 4;
    other_seed.seed = 43;
    const double n = static_cast<double>(kSize), stays = 1 - p;
    double kept = 0;
    for (const int one : base) kept += one;
    EXPECT_NEAR(kept, n * stays, 5 * std::sqrt(n * p * stays));
    // Of pairs that are independent, stays^2 are both kept.
    const auto expect_independent = [&](const std::vector<int>& other, int64_t shift) {
      double both = 0;
      for (int64_t i = 0; i + shift < kSize; ++i) both += base[i] * other[i + shift];
      const double pairs = n - static_cast<double>(shift), wanted = stays * stays;
      EXPECT_NEAR(both, pairs * wanted, 6 * std::sqrt(pairs * wanted * (1 - wanted)));
    };
    for (const int64_t shift : {1, 2, 3, 4, 5, 64, 768, 1024}) expect_independent(base, shift);
    expect_independent(Kept(lab, mask, 12, kSize), 0);
    expect_independent(Kept(lab, other_layer, 11, kSize), 0);
    expect_independent(Kept(lab, other_seed, 11, kSize), 0);
  }
}

// Ranks and micro-batches take parts of one mask.
TEST(DropoutMaskTest, CutInPartsIsTheSameMask) {
  Lab lab;
  DropoutMask mask = {0.4, 1, 2};
  const std::vector<int> whole = Kept(lab, mask, 3, 5000);
  for (const int64_t begin : {1, 4, 1023, 1024, 3001}) {
    mask.first_element = begin;
    const std::vector<int> part = Kept(lab, mask, 3, 5000 - begin);
    EXPECT_TRUE(std::equal(part.begin(), part.end(), whole.begin() + begin)) << begin;
  }
}

// The host waits for nothing between the steps.
TEST(DropoutMaskTest, TheStepIsReadWhereAndWhenTheStreamIs) {
  Lab lab;
  constexpr int64_t kSize = 500;
  const auto step = lab.Raw<int64_t>(1), next = lab.Raw<int64_t>(1);
  step[0] = 1;
  next[0] = 2;
  const auto ones = lab.Raw<float>(kSize), y = lab.Raw<float>(2 * kSize);
  std::fill(ones.begin(), ones.end(), 1.0f);
  const DropoutMask mask = {0.5, 6, 0, step.data()};
  ASSERT_OK(Dropout(DType::kFloat32, kSize, mask, ones.data(), nullptr, y.data(), lab.stream()));
  ASSERT_OK(lab.stream().Copy(step.data(), next.data(), sizeof(int64_t)));
  ASSERT_OK(
      Dropout(DType::kFloat32, kSize, mask, ones.data(), nullptr, y.data() + kSize, lab.stream()));
  ASSERT_OK(lab.stream().Synchronize());
  for (int64_t i = 0; i < kSize; ++i) {
    ASSERT_EQ(y[i] != 0, Stays(mask, 1, i)) << i;
    ASSERT_EQ(y[kSize + i] != 0, Stays(mask, 2, i)) << i;
  }
}

TEST(DropoutGradientTest, IsThatOfTheForwardPass) {
  Lab lab;
  constexpr int64_t kSize = 101;
  const auto step = lab.Raw<int64_t>(1);
  step[0] = 5;
  const DropoutMask mask = {0.3, 8, 1, step.data(), 2};
  const auto x = lab.Noise<double>(kSize), y = lab.Raw<double>(kSize);
  const auto residual = lab.Noise<double>(kSize), dy = lab.Noise<double>(kSize);
  const auto f = [&] {
    EXPECT_OK(
        Dropout(DType::kFloat64, kSize, mask, x.data(), residual.data(), y.data(), lab.stream()));
    EXPECT_OK(lab.stream().Synchronize());
    return Dot(y, dy);
  };
  const auto dx = lab.Raw<double>(kSize), added = lab.Noise<double>(kSize);
  const std::vector<double> before(added.begin(), added.end());
  ASSERT_OK(DropoutBackward(DType::kFloat64, kSize, mask, dy.data(), {dx.data()}, lab.stream()));
  ASSERT_OK(
      DropoutBackward(DType::kFloat64, kSize, mask, dy.data(), {added.data(), true}, lab.stream()));
  ASSERT_OK(lab.stream().Synchronize());
  ExpectGradient(x, dx, f);
  ExpectGradient(residual, dy, f);
  for (int64_t i = 0; i < kSize; ++i) EXPECT_EQ(added[i], dx[i] + before[i]) << i;
}

TEST(DropoutAliasingTest, TheResultMayLieOnEitherInput) {
  Lab lab;
  constexpr int64_t kSize = 1500;
  const auto step = lab.Raw<int64_t>(1);
  step[0] = 5;
  const DropoutMask mask = {0.3, 8, 1, step.data(), 2};
  const auto x = lab.Noise<float>(kSize), residual = lab.Noise<float>(kSize);
  const auto y = lab.Raw<float>(kSize), on_x = lab.Raw<float>(kSize);
  std::copy(x.begin(), x.end(), on_x.begin());
  const auto run = [&](const float* in, float* out) {
    EXPECT_OK(Dropout(DType::kFloat32, kSize, mask, in, residual.data(), out, lab.stream()));
  };
  run(x.data(), y.data());
  run(on_x.data(), on_x.data());
  run(x.data(), residual.data());
  ASSERT_OK(lab.stream().Synchronize());
  EXPECT_EQ(std::memcmp(on_x.data(), y.data(), kSize * sizeof(float)), 0);
  EXPECT_EQ(std::memcmp(residual.data(), y.data(), kSize * sizeof(float)), 0);
}

TEST(DropoutErrorsTest, ADroppedElementIsZeroWhateverItWas) {
  Lab lab;
  const auto step = lab.Raw<int64_t>(1);
  step[0] = 0;
  const DropoutMask mask = {0.5, 1, 1, step.data()};
  const auto nan = lab.Raw<float>(200), y = lab.Raw<float>(200);
  std::fill(nan.begin(), nan.end(), std::nanf(""));
  ASSERT_OK(Dropout(DType::kFloat32, 200, mask, nan.data(), nullptr, y.data(), lab.stream()));
  ASSERT_OK(lab.stream().Synchronize());
  for (int64_t i = 0; i < 200; ++i) {
    if (Stays(mask, 0, i)) {
      EXPECT_TRUE(std::isnan(y[i])) << i;
    } else {
      EXPECT_EQ(y[i], 0) << i;
    }
  }
}

TEST(DropoutErrorsTest, BadNumbersAreRefusedByName) {
  Lab lab;
  const auto error = [&](const DropoutMask& mask) {
    return Dropout(DType::kFloat32, 10, mask, nullptr, nullptr, nullptr, lab.stream());
  };
  for (const double p : {-0.1, 1.0, 1.5, std::nan("")}) {
    EXPECT_EQ(error({.probability = p}),
              absl::InvalidArgumentError(absl::StrCat("dropout: probability is ", p,
                                                      "; it must be at least 0 and below 1")));
  }
  EXPECT_EQ(error({.probability = 0.5}),
            absl::InvalidArgumentError("dropout: step is null; the probability is 0.5"));
  EXPECT_EQ(error({.first_element = -1}),
            absl::InvalidArgumentError("dropout: 10 elements from -1 on are not in 0 to 2^63 - 1"));
  EXPECT_EQ(DropoutBackward(DType::kInt32, 10, {}, nullptr, {}, lab.stream()),
            absl::InvalidArgumentError("dropout_backward: dtype is int32; it must be fp32, "
                                       "fp16, bf16 or fp64"));
}

// All but one of 2^32 words drop their element.
TEST(DropoutErrorsTest, AProbabilityThatRoundsToOneStaysBelowIt) {
  Lab lab;
  const auto step = lab.Raw<int64_t>(1);
  step[0] = 0;
  const auto ones = lab.Raw<float>(100), y = lab.Raw<float>(100);
  std::fill(ones.begin(), ones.end(), 1.0f);
  ASSERT_OK(Dropout(DType::kFloat32, 100, {1 - 0x1p-40, 1, 1, step.data()}, ones.data(), nullptr,
                    y.data(), lab.stream()));
  ASSERT_OK(lab.stream().Synchronize());
  for (const float value : y) EXPECT_EQ(value, 0);
}

}  // namespace
}  // namespace brigade::nn
