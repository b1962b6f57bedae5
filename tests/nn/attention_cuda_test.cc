// Tiled attention beside attention in double, from the formulas of Vaswani et al. 2017: each
// element within a bound that is made of the roundings that went into it.

#include "brigade/nn/attention_cuda.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "brigade/nn/functions.h"
#include "brigade/nn/random.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::nn {
namespace {

using precision::BFloat16;
using precision::Half;

// A device array that is as long as its values, with what is behind it in no allocation.
template <typename T>
class Array {
 public:
  explicit Array(const std::vector<T>& values) : size_(values.size()) {
    EXPECT_EQ(cudaMalloc(&data_, std::max<size_t>(size_, 1) * sizeof(T)), cudaSuccess);
    EXPECT_EQ(cudaMemcpy(data_, values.data(), size_ * sizeof(T), cudaMemcpyDefault), cudaSuccess);
  }
  // Of unwritten memory.
  explicit Array(int64_t size) : size_(static_cast<size_t>(size)) {
    EXPECT_EQ(cudaMalloc(&data_, std::max<size_t>(size_, 1) * sizeof(T)), cudaSuccess);
  }
  ~Array() { cudaFree(data_); }
  Array(const Array&) = delete;
  Array& operator=(const Array&) = delete;

  T* data() const { return static_cast<T*>(data_); }
  std::vector<T> Values() const {
    std::vector<T> values(size_);
    EXPECT_EQ(cudaMemcpy(values.data(), data_, size_ * sizeof(T), cudaMemcpyDefault), cudaSuccess);
    return values;
  }

 private:
  const size_t size_;
  void* data_ = nullptr;
};

// In [-1, 1), the same for one seed.
template <typename T>
std::vector<T> Noise(int64_t size, uint64_t seed) {
  std::vector<T> values;
  Random random(9, seed);
  for (int64_t i = 0; i < size; ++i) {
    values.push_back(T(static_cast<float>(2 * random.Uniform() - 1)));
  }
  return values;
}

template <typename T>
std::vector<double> Wide(const std::vector<T>& values) {
  std::vector<double> wide;
  for (const T value : values) wide.push_back(static_cast<double>(static_cast<float>(value)));
  return wide;
}

// Half a unit in the last place of 1.
template <typename T>
constexpr double kRounding = std::is_same_v<T, Half> ? 0x1p-11 : 0x1p-8;
// The same of fp32, twice: the hardware's sums may cut off instead of rounding.
constexpr double kSumRounding = 0x1p-23;

// What is right, and by how much a result may differ.
struct Expected {
  std::vector<double> value, bound;

  explicit Expected(int64_t size)
      : value(static_cast<size_t>(size)), bound(static_cast<size_t>(size)) {}
};

struct Gradients {
  Expected out, log_sum_exp, dqkv;
};

// In double, position by position. To first order in the roundings of
//   scores           head_width terms and the result, in fp32: `of_score`, absolute;
//   exponentials     two units in the last place, their sum of as many terms as are visible; and
//                    in the backward pass the log_sum_exp they are made with: `of_p`, relative;
//   p and ds         to T, where they are multiplied;
//   results          to T.
template <typename T>
Gradients Reference(const TiledAttentionShape& shape, const std::vector<double>& qkv,
                    const std::vector<double>& dout) {
  const int64_t width = shape.heads * shape.head_width, w = shape.head_width;
  const int64_t rows = shape.batch * shape.context;
  const double scale = 1 / std::sqrt(static_cast<double>(w));
  Gradients all = {Expected(rows * width), Expected(rows * shape.heads),
                   Expected(rows * 3 * width)};
  for (int64_t b = 0; b < shape.batch; ++b) {
    for (int64_t h = 0; h < shape.heads; ++h) {
      const auto index = [&](int64_t position, int part) {
        return static_cast<size_t>((b * shape.context + position) * 3 * width + part * width +
                                   h * w);
      };
      const auto out_index = [&](int64_t position) {
        return static_cast<size_t>((b * shape.context + position) * width + h * w);
      };
      for (int64_t i = 0; i < shape.context; ++i) {
        const auto count = static_cast<size_t>(i + 1);
        const double* const q = &qkv[index(i, 0)];
        std::vector<double> s(count), p(count), dp(count);
        double magnitude = 0, largest = -INFINITY, sum = 0;
        for (size_t j = 0; j < count; ++j) {
          const double* const k = &qkv[index(static_cast<int64_t>(j), 1)];
          double of_terms = 0;
          for (int64_t c = 0; c < w; ++c) s[j] += scale * q[c] * k[c];
          for (int64_t c = 0; c < w; ++c) of_terms += scale * std::abs(q[c] * k[c]);
          magnitude = std::max(magnitude, of_terms);
          largest = std::max(largest, s[j]);
        }
        for (size_t j = 0; j < count; ++j) sum += p[j] = std::exp(s[j] - largest);
        for (size_t j = 0; j < count; ++j) p[j] /= sum;
        const double log_sum_exp = largest + std::log(sum);
        const double of_score = (static_cast<double>(w) + 4) * kSumRounding * magnitude;
        const double of_p = 2 * of_score + (8 + static_cast<double>(count)) * kSumRounding +
                            4 * kSumRounding * std::abs(log_sum_exp);
        const auto l = static_cast<size_t>((b * shape.heads + h) * shape.context + i);
        all.log_sum_exp.value[l] = log_sum_exp;
        all.log_sum_exp.bound[l] = of_p;

        double delta = 0, of_delta = 0;
        for (int64_t c = 0; c < w; ++c) {
          const size_t o = out_index(i) + static_cast<size_t>(c);
          double value = 0, absolute = 0;
          for (size_t j = 0; j < count; ++j) {
            const double v = qkv[index(static_cast<int64_t>(j), 2) + static_cast<size_t>(c)];
            value += p[j] * v;
            absolute += p[j] * std::abs(v);
          }
          all.out.value[o] = value;
          all.out.bound[o] = absolute * (kRounding<T> + of_p) + kRounding<T> * std::abs(value);
          delta += dout[o] * value;
          of_delta += std::abs(dout[o]) *
                      (all.out.bound[o] + static_cast<double>(w) * kSumRounding * std::abs(value));
        }
        for (size_t j = 0; j < count; ++j) {
          const size_t k = index(static_cast<int64_t>(j), 1), v = index(static_cast<int64_t>(j), 2);
          double absolute = 0;
          for (int64_t c = 0; c < w; ++c) {
            const double d = dout[out_index(i) + static_cast<size_t>(c)];
            dp[j] += d * qkv[v + static_cast<size_t>(c)];
            absolute += std::abs(d * qkv[v + static_cast<size_t>(c)]);
          }
          const double ds = p[j] * (dp[j] - delta);
          const double of_ds = std::abs(ds) * (kRounding<T> + of_p) +
                               p[j] * (of_delta + static_cast<double>(w) * kSumRounding * absolute);
          for (int64_t c = 0; c < w; ++c) {
            const auto at = static_cast<size_t>(c);
            const auto add = [&](size_t to, double value, double bound) {
              all.dqkv.value[to] += value;
              // And the sum over the positions, in fp32.
              all.dqkv.bound[to] +=
                  bound + static_cast<double>(shape.context) * kSumRounding * std::abs(value);
            };
            add(index(i, 0) + at, scale * ds * qkv[k + at], scale * of_ds * std::abs(qkv[k + at]));
            add(k + at, scale * ds * q[c], scale * of_ds * std::abs(q[c]));
            const double d = dout[out_index(i) + at];
            add(v + at, p[j] * d, p[j] * std::abs(d) * (kRounding<T> + of_p));
          }
        }
      }
    }
  }
  for (size_t i = 0; i < all.dqkv.value.size(); ++i) {
    all.dqkv.bound[i] += kRounding<T> * std::abs(all.dqkv.value[i]) + kRounding<T> * 0x1p-13;
  }
  return all;
}

// The largest error as a part of its bound.
template <typename T>
void ExpectNear(const std::vector<T>& values, const Expected& expected, const char* name) {
  ASSERT_EQ(values.size(), expected.value.size());
  double worst = 0;
  size_t at = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    const double error =
        std::abs(static_cast<double>(static_cast<float>(values[i])) - expected.value[i]);
    const double part = error / expected.bound[i];
    // Of a NaN as well.
    if (part <= worst) continue;
    worst = part;
    at = i;
    if (!(part <= 1)) break;
  }
  EXPECT_LE(worst, 1) << name << " element " << at << ": " << static_cast<float>(values[at])
                      << " instead of " << expected.value[at] << ", bound " << expected.bound[at];
}

template <typename T>
struct Results {
  std::vector<T> out, dqkv;
  std::vector<float> log_sum_exp;
};

template <typename T>
Results<T> Run(const TiledAttentionShape& shape, const std::vector<T>& qkv,
               const std::vector<T>& dout) {
  const int64_t rows = shape.batch * shape.context, width = shape.heads * shape.head_width;
  const Array<T> in(qkv), up(dout), out(rows * width), dqkv(rows * 3 * width);
  const Array<float> log_sum_exp(rows * shape.heads), delta(rows * shape.heads);
  EXPECT_EQ(LaunchTiledAttention(shape, in.data(), out.data(), log_sum_exp.data(), nullptr),
            cudaSuccess);
  EXPECT_EQ(LaunchTiledAttentionBackward(shape, in.data(), out.data(), log_sum_exp.data(),
                                         up.data(), delta.data(), dqkv.data(), nullptr),
            cudaSuccess);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  return {out.Values(), dqkv.Values(), log_sum_exp.Values()};
}

template <typename T>
class AttentionCudaTest : public ::testing::Test {};
using Types = ::testing::Types<Half, BFloat16>;
TYPED_TEST_SUITE(AttentionCudaTest, Types);

template <typename T>
void ExpectAttention(const TiledAttentionShape& shape) {
  SCOPED_TRACE(testing::Message() << "context " << shape.context << " heads of "
                                  << shape.head_width);
  const int64_t rows = shape.batch * shape.context, width = shape.heads * shape.head_width;
  const std::vector<T> qkv = Noise<T>(rows * 3 * width, 1), dout = Noise<T>(rows * width, 2);
  const Results<T> results = Run(shape, qkv, dout);
  const Gradients expected = Reference<T>(shape, Wide(qkv), Wide(dout));
  ExpectNear(results.out, expected.out, "out");
  ExpectNear(results.log_sum_exp, expected.log_sum_exp, "log_sum_exp");
  ExpectNear(results.dqkv, expected.dqkv, "dqkv");
}

// Less than a tile, tiles, and a little more, of every width.
TYPED_TEST(AttentionCudaTest, IsAttentionForEveryContextAndWidthOfHeads) {
  for (const int64_t context : {1, 2, 63, 64, 65, 130}) {
    for (const int64_t head_width : {32, 64, 96, 128}) {
      ExpectAttention<TypeParam>(
          {.batch = 1, .context = context, .heads = 1, .head_width = head_width});
    }
  }
}

// Of the narrowest head: an emulator's time goes with the square of the context.
TYPED_TEST(AttentionCudaTest, IsAttentionForALongContext) {
  ExpectAttention<TypeParam>({.batch = 1, .context = 1000, .heads = 1, .head_width = 32});
}

TYPED_TEST(AttentionCudaTest, SoakIsAttentionForTheLongestContext) {
  ExpectAttention<TypeParam>({.batch = 1, .context = 4096, .heads = 1, .head_width = 32});
}

TYPED_TEST(AttentionCudaTest, HeadsAndTextsAreApart) {
  ExpectAttention<TypeParam>({.batch = 3, .context = 65, .heads = 5, .head_width = 32});
}

// Scores of a hundred and more, all on one key: exponentials are 0 and 1, and nothing overflows.
TYPED_TEST(AttentionCudaTest, LargeScoresStayFinite) {
  const TiledAttentionShape shape = {.batch = 1, .context = 70, .heads = 1, .head_width = 64};
  std::vector<TypeParam> qkv = Noise<TypeParam>(70 * 192, 3);
  for (size_t i = 0; i < qkv.size(); ++i) {
    if (i % 192 < 128) qkv[i] = TypeParam(static_cast<float>(qkv[i]) * 16);
  }
  const std::vector<TypeParam> dout = Noise<TypeParam>(70 * 64, 4);
  const Results<TypeParam> results = Run(shape, qkv, dout);
  const Gradients expected = Reference<TypeParam>(shape, Wide(qkv), Wide(dout));
  ExpectNear(results.out, expected.out, "out");
  ExpectNear(results.log_sum_exp, expected.log_sum_exp, "log_sum_exp");
  ExpectNear(results.dqkv, expected.dqkv, "dqkv");
}

// Each launch has another order of blocks and warps where the device is emulated.
TYPED_TEST(AttentionCudaTest, GivesTheSameBitsInAnyOrder) {
  const auto bits = [](const auto& values) {
    return std::string(reinterpret_cast<const char*>(values.data()),
                       values.size() * sizeof(values[0]));
  };
  const TiledAttentionShape shape = {.batch = 1, .context = 130, .heads = 2, .head_width = 64};
  const std::vector<TypeParam> qkv = Noise<TypeParam>(130 * 384, 5);
  const std::vector<TypeParam> dout = Noise<TypeParam>(130 * 128, 6);
  const Results<TypeParam> first = Run(shape, qkv, dout);
  for (int i = 0; i < 2; ++i) {
    const Results<TypeParam> again = Run(shape, qkv, dout);
    EXPECT_EQ(bits(again.out), bits(first.out));
    EXPECT_EQ(bits(again.log_sum_exp), bits(first.log_sum_exp));
    EXPECT_EQ(bits(again.dqkv), bits(first.dqkv));
  }
}

TYPED_TEST(AttentionCudaTest, RefusesWhatItHasNoKernelsFor) {
  const Array<TypeParam> array(1024);
  const Array<float> numbers(64);
  TypeParam* const data = array.data();
  const auto launch = [&](const TiledAttentionShape& shape, TypeParam* qkv) {
    const cudaError_t forward = LaunchTiledAttention(shape, qkv, data, numbers.data(), nullptr);
    EXPECT_EQ(LaunchTiledAttentionBackward(shape, qkv, data, numbers.data(), data, numbers.data(),
                                           data, nullptr),
              forward);
    return forward;
  };
  EXPECT_EQ(launch({1, 1, 1, 48}, data), cudaErrorNotSupported);
  EXPECT_EQ(launch({1, 1, 1, 256}, data), cudaErrorNotSupported);
  EXPECT_FALSE(HasTiledAttention(48));
  EXPECT_EQ(launch({1, 1, 1, 32}, data + 4), cudaErrorMisalignedAddress);
  EXPECT_EQ(launch({int64_t{1} << 20, 128, 1 << 12, 32}, data), cudaErrorInvalidConfiguration);
  // Nothing to do.
  EXPECT_EQ(launch({0, 5, 1, 32}, data), cudaSuccess);
  EXPECT_EQ(launch({1, 0, 1, 32}, data), cudaSuccess);
}

}  // namespace
}  // namespace brigade::nn
