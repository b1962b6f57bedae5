// Attention against plain attention in double, on all instruction sets and numbers of threads.

#include "brigade/nn/attention.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "brigade/kernels/simd.h"
#include "brigade/nn/functions.h"
#include "brigade/tests/nn/lab.h"
#include "brigade/tests/nn/plain_attention.h"

namespace brigade::nn {
namespace {

using precision::BFloat16;
using precision::DType;
using precision::Half;

// A context, a stream and the arrays of both passes.
template <typename T>
class Pass {
 public:
  using W = Wide<T>;

  Pass(const AttentionShape& shape, const std::vector<double>& inputs,
       const std::vector<double>& upstream, int threads = 2, int64_t shift = 0)
      : shape_(shape),
        shift_(shift),
        context_(device::Context::Create({.device = BRIGADE_LAB_DEVICE, .compute_threads = threads})
                     .value()),
        stream_(context_->CreateStream("compute").value()),
        qkv(Array<T>(shape.rows() * 3 * shape.width)),
        out(Array<T>(shape.rows() * shape.width)),
        dout(Array<T>(shape.rows() * shape.width)),
        dqkv(Array<T>(shape.rows() * 3 * shape.width)),
        log_sum_exp(Array<W>(shape.statistics())) {
    shape_.dtype = precision::kDType<T>;
    workspace_ =
        context_
            ->Allocate(AttentionWorkspaceBytes(shape_, context_->device()) + WorkspaceShift(),
                       device::Purpose::kScratch, "workspace")
            .value();
    for (size_t i = 0; i < inputs.size(); ++i) qkv[i] = T(static_cast<W>(inputs[i]));
    for (size_t i = 0; i < upstream.size(); ++i) dout[i] = T(static_cast<W>(upstream[i]));
  }

  void Forward() {
    ASSERT_OK(Attention(shape_, qkv.data(), out.data(), log_sum_exp.data(), *stream_));
    ASSERT_OK(stream_->Synchronize());
  }
  void Backward() {
    ASSERT_OK(AttentionBackward(shape_, qkv.data(), out.data(), log_sum_exp.data(), dout.data(),
                                static_cast<char*>(workspace_.data()) + WorkspaceShift(),
                                dqkv.data(), *stream_));
    ASSERT_OK(stream_->Synchronize());
  }
  void Run() {
    Forward();
    Backward();
  }
  device::Context& context() { return *context_; }

 private:
  int64_t WorkspaceShift() const { return shift_ * static_cast<int64_t>(sizeof(W)); }

  template <typename E>
  absl::Span<E> Array(int64_t size) {
    arrays_.push_back(
        context_->AllocateHost((shift_ + size) * sizeof(E), device::Purpose::kScratch, "array")
            .value());
    return arrays_.back().template as<E>().subspan(static_cast<size_t>(shift_));
  }

  AttentionShape shape_;
  // Elements before each array.
  const int64_t shift_;
  std::unique_ptr<device::Context> context_;
  std::unique_ptr<device::Stream> stream_;
  std::vector<device::Buffer> arrays_;
  device::Buffer workspace_;

 public:
  absl::Span<T> qkv, out, dout, dqkv;
  absl::Span<W> log_sum_exp;
};

// Multiples of 1/64 in [-1, 1], which every type holds.
std::vector<double> Exact(int64_t size, uint64_t seed) {
  Random random(seed, 0);
  std::vector<double> values(static_cast<size_t>(size));
  for (double& value : values) value = std::round(64 * (2 * random.Uniform() - 1)) / 64;
  return values;
}

// The largest share of its bound that an error takes.
struct Shares {
  double out = 0, log_sum_exp = 0, gradients[3] = {};
};

double Share(double error, double bound) {
  // A NaN is infinitely wrong.
  return error <= std::numeric_limits<double>::max() ? error / bound
                                                     : std::numeric_limits<double>::infinity();
}

template <typename T>
Shares Compare(const AttentionShape& shape, const PlainAttention& plain, const Pass<T>& pass) {
  const Roundoffs u = RoundoffsOf<T>(shape, kOnGpu);
  const auto off = [](const auto& value, double wanted) {
    return std::abs(static_cast<double>(Widen(value)) - wanted);
  };
  Shares shares;
  for (int64_t head = 0; head < shape.batch * shape.heads; ++head) {
    for (int64_t i = 0; i < shape.context; ++i) {
      const size_t at = plain.Statistic(head, i);
      shares.log_sum_exp =
          std::max(shares.log_sum_exp, Share(off(pass.log_sum_exp[at], plain.log_sum_exp[at]),
                                             plain.LogSumExpBound(u, head, i)));
      for (int64_t c = 0; c < shape.head_width(); ++c) {
        const size_t o = plain.At(head, i, 0, 1) + static_cast<size_t>(c);
        shares.out = std::max(shares.out,
                              Share(off(pass.out[o], plain.out[o]), plain.OutBound(u, head, i, c)));
        for (int part = 0; part < 3; ++part) {
          const size_t g = plain.At(head, i, part, 3) + static_cast<size_t>(c);
          shares.gradients[part] = std::max(
              shares.gradients[part],
              Share(off(pass.dqkv[g], plain.dqkv[g]), plain.GradientBound(u, head, i, part, c)));
        }
      }
    }
  }
  return shares;
}

template <typename T>
void ExpectNear(const AttentionShape& shape, const PlainAttention& plain,
                const std::vector<double>& qkv, const std::vector<double>& dout) {
  SCOPED_TRACE(precision::Name(precision::kDType<T>));
  Pass<T> pass(shape, qkv, dout);
  pass.Run();
  const Shares shares = Compare(shape, plain, pass);
  const std::pair<const char*, double> all[] = {{"out", shares.out},
                                                {"log_sum_exp", shares.log_sum_exp},
                                                {"queries", shares.gradients[0]},
                                                {"keys", shares.gradients[1]},
                                                {"values", shares.gradients[2]}};
  for (const auto& [name, share] : all) {
    EXPECT_LE(share, 1) << name;
    // A bound that is far away would hide mistakes. Of few numbers, all may be exact. (Optimised
    // builds take a hundredth at least; others may fuse less, and a shape then has 0.008.)
    if (shape.context >= 63 && shape.head_width() >= 16) {
      EXPECT_GE(share, 0.005) << name;
    }
  }
}

void ExpectEveryTypeNear(const AttentionShape& shape) {
  SCOPED_TRACE(absl::StrCat("batch ", shape.batch, ", context ", shape.context, ", heads ",
                            shape.heads, ", width ", shape.width));
  const auto qkv = Exact(shape.rows() * 3 * shape.width, 1),
             dout = Exact(shape.rows() * shape.width, 2);
  const PlainAttention plain(shape, qkv, dout);
  ExpectNear<float>(shape, plain, qkv, dout);
  ExpectNear<Half>(shape, plain, qkv, dout);
  ExpectNear<BFloat16>(shape, plain, qkv, dout);
  ExpectNear<double>(shape, plain, qkv, dout);
}

AttentionShape Shape(int64_t batch, int64_t context, int64_t heads, int64_t head_width) {
  return {DType::kFloat32, batch, context, heads, heads * head_width};
}

TEST(AttentionTest, IsPlainAttentionForContextsAroundTheTiles) {
  for (const int64_t context : {1, 2, 31, 63, 64, 65, 127, 128, 129, 200}) {
    // The emulator takes a second and more for each.
    if (kOnGpu && context > 31) break;
    for (const int64_t width : {32, 64, 96, 128}) ExpectEveryTypeNear(Shape(2, context, 2, width));
  }
}

TEST(AttentionTest, IsPlainAttentionForEveryHeadWidth) {
  for (int64_t width = 1; width <= 256; width += kOnGpu ? 51 : 1) {
    ExpectEveryTypeNear(Shape(1, kOnGpu ? 20 : 67, 1, width));
  }
}

TEST(AttentionTest, ArraysNeedNoAlignment) {
  const AttentionShape shape = Shape(1, 20, 2, 32);
  const auto qkv = Exact(shape.rows() * 3 * shape.width, 1),
             dout = Exact(shape.rows() * shape.width, 2);
  const PlainAttention plain(shape, qkv, dout);
  const auto expect_near = [&]<typename T>(T) {
    SCOPED_TRACE(precision::Name(precision::kDType<T>));
    Pass<T> pass(shape, qkv, dout, /*threads=*/2, /*shift=*/1);
    pass.Run();
    const Shares shares = Compare(shape, plain, pass);
    EXPECT_LE(shares.out, 1);
    for (const double share : shares.gradients) EXPECT_LE(share, 1);
  };
  expect_near(float());
  expect_near(Half());
  expect_near(BFloat16());
  expect_near(double());
}

TEST(AttentionTest, IsPlainAttentionForLongContexts) {
  if (kOnGpu) GTEST_SKIP() << "the emulator would take minutes";
  for (const int64_t width : {32, 64, 96, 128}) ExpectEveryTypeNear(Shape(1, 1000, 1, width));
  ExpectEveryTypeNear(Shape(1, 4096, 1, 64));
}

TEST(AttentionTest, IsPlainAttentionOnEveryInstructionSet) {
  if (kOnGpu) GTEST_SKIP() << "for the CPU";
  for (const auto target : {kernels::SimdTarget::kBaseline, kernels::SimdTarget::kAvx2}) {
    kernels::SetSimdTarget(target);
    for (const int64_t width : {5, 64, 80}) ExpectEveryTypeNear(Shape(1, 150, 2, width));
  }
  kernels::SetSimdTarget(kernels::BestSimdTarget());
}

TEST(AttentionTest, GradientsAreThoseOfFiniteDifferences) {
  for (const AttentionShape& shape :
       {Shape(1, 1, 1, 1), Shape(2, 5, 1, 3), Shape(2, 7, 3, 2), Shape(1, 34, 2, 2)}) {
    SCOPED_TRACE(shape.context);
    if (kOnGpu && shape.context > 7) break;
    Lab lab;
    const auto qkv = lab.Noise<double>(shape.rows() * 3 * shape.width);
    const auto dout = lab.Noise<double>(shape.rows() * shape.width);
    Pass<double> pass(shape, {qkv.begin(), qkv.end()}, {dout.begin(), dout.end()});
    pass.Run();
    const std::vector<double> gradient(pass.dqkv.begin(), pass.dqkv.end());
    ExpectGradient(pass.qkv, gradient, [&] {
      pass.Forward();
      return Dot(pass.out, pass.dout);
    });
  }
}

TEST(AttentionTest, DoesNotSeeWhatComesLater) {
  const int64_t context = kOnGpu ? 20 : 140;
  const AttentionShape shape = Shape(1, context, 2, 4);
  Pass<double> pass(shape, Exact(context * 3 * 8, 1), Exact(context * 8, 2));
  pass.Forward();
  for (const int64_t changed : {int64_t{3}, context / 2, context - 1}) {
    const std::vector<double> before(pass.out.begin(), pass.out.end());
    for (int64_t i = 0; i < 3 * 8; ++i) pass.qkv[changed * 3 * 8 + i] += 1;
    pass.Forward();
    for (int64_t i = 0; i < changed * 8; ++i) ASSERT_EQ(pass.out[i], before[i]) << i;
    for (int64_t i = changed * 8; i < context * 8; ++i) ASSERT_NE(pass.out[i], before[i]) << i;
  }
}

template <typename T>
class AttentionTypesTest : public ::testing::Test {};
using Types = ::testing::Types<float, Half, BFloat16, double>;
TYPED_TEST_SUITE(AttentionTypesTest, Types);

// Scores are +-10082: e^10082 is far beyond every type.
TYPED_TEST(AttentionTypesTest, LargeScoresDoNotOverflow) {
  using T = TypeParam;
  const int64_t context = kOnGpu ? 40 : 150, width = 64;
  const AttentionShape shape = Shape(1, context, 1, width);
  auto qkv = Exact(context * 3 * width, 1);
  const auto dout = Exact(context * width, 2);
  Random random(3, 0);
  for (int64_t i = 0; i < context; ++i) {
    const double sign = random.Uniform() < 0.5 ? -1 : 1;
    for (int64_t c = 0; c < width; ++c) {
      qkv[i * 3 * width + c] = 35.5;
      // The first key is the largest one again and again, and once the only one.
      qkv[i * 3 * width + width + c] = i == 0 ? 35.5 : sign * 35.5;
    }
  }
  const PlainAttention plain(shape, qkv, dout);
  Pass<T> pass(shape, qkv, dout);
  pass.Run();
  const Shares shares = Compare(shape, plain, pass);
  EXPECT_LE(shares.out, 1);
  EXPECT_LE(shares.log_sum_exp, 1);
  for (const double share : shares.gradients) EXPECT_LE(share, 1);
}

// Each score is larger than the one before: what was added up decays at every key.
TYPED_TEST(AttentionTypesTest, RisingScoresDecayWhatWasAddedBefore) {
  using T = TypeParam;
  const int64_t context = kOnGpu ? 40 : 300, width = 16;
  const AttentionShape shape = Shape(1, context, 1, width);
  auto qkv = Exact(context * 3 * width, 1);
  const auto dout = Exact(context * width, 2);
  for (int64_t i = 0; i < context; ++i) {
    for (int64_t c = 0; c < width; ++c) {
      qkv[i * 3 * width + c] = 0.25;
      // Integers up to 150 are bfloat16; each comes twice.
      qkv[i * 3 * width + width + c] = static_cast<double>(i / 2) * 0.125;
    }
  }
  const PlainAttention plain(shape, qkv, dout);
  Pass<T> pass(shape, qkv, dout);
  pass.Run();
  const Shares shares = Compare(shape, plain, pass);
  EXPECT_LE(shares.out, 1);
  EXPECT_LE(shares.log_sum_exp, 1);
  for (const double share : shares.gradients) EXPECT_LE(share, 1);
}

// What overflowed must reach the gradients, where the loss scaler sees it.
TYPED_TEST(AttentionTypesTest, WhatIsNotFiniteStaysSo) {
  using T = TypeParam;
  // Of a width that tensor cores compute.
  const int64_t context = kOnGpu ? 20 : 200, width = kOnGpu ? 32 : 8, bad = context / 2 + 3;
  const AttentionShape shape = Shape(1, context, 1, width);
  for (const double value : {static_cast<double>(INFINITY), std::nan("")}) {
    for (int part = 0; part < 3; ++part) {
      SCOPED_TRACE(absl::StrCat(value, " in part ", part));
      auto qkv = Exact(context * 3 * width, 1);
      qkv[(bad * 3 + part) * width + 1] = value;
      Pass<T> pass(shape, qkv, Exact(context * width, 2));
      pass.Run();
      const auto finite = [](absl::Span<const T> row) {
        return std::all_of(row.begin(), row.end(),
                           [](T x) { return std::isfinite(static_cast<double>(Widen(x))); });
      };
      for (int64_t i = 0; i < context; ++i) {
        SCOPED_TRACE(i);
        const bool is = finite(pass.out.subspan(i * width, width));
        if (part == 0) {
          EXPECT_EQ(is, i != bad) << "of one query";
        } else if (i <= bad - 64) {
          EXPECT_TRUE(is);
        } else if (i >= bad && (part == 2 || std::isnan(value))) {
          // A score of -infinity may do without its key.
          EXPECT_FALSE(is);
        }
      }
      // The gradient of what is not finite is not finite somewhere.
      EXPECT_FALSE(finite(pass.dqkv));
    }
  }
}

// In the row kernels of GPUs as in the tiles.
TYPED_TEST(AttentionTypesTest, AScoreOfMinusInfinityCountsAsZeroBesideAFiniteOne) {
  using T = TypeParam;
  const int64_t context = kOnGpu ? 5 : 20;
  for (const int64_t width : {8, 32}) {
    for (const int64_t hidden : {0, 1, 3}) {
      SCOPED_TRACE(absl::StrCat("width ", width, ", key ", hidden));
      const AttentionShape shape = Shape(1, context, 1, width);
      auto qkv = Exact(context * 3 * width, 1);
      for (int64_t i = 0; i < context; ++i) qkv[i * 3 * width] = 1;
      qkv[(hidden * 3 + 1) * width] = -static_cast<double>(INFINITY);
      Pass<T> pass(shape, qkv, Exact(context * width, 2));
      pass.Forward();
      // The same without the key: its score is far below the others.
      qkv[(hidden * 3 + 1) * width] = std::is_same_v<T, Half> ? -60000 : -1e6;
      Pass<T> far(shape, qkv, Exact(context * width, 2));
      far.Forward();
      for (int64_t i = 0; i < context; ++i) {
        const double lse = static_cast<double>(pass.log_sum_exp[i]);
        // A query that sees nothing else has no probabilities.
        if (i == 0 && hidden == 0) {
          EXPECT_FALSE(std::isfinite(static_cast<double>(Widen(pass.out[0]))));
          continue;
        }
        EXPECT_NEAR(lse, static_cast<double>(far.log_sum_exp[i]), 1e-6) << i;
        for (int64_t c = i * width; c < (i + 1) * width; ++c) {
          EXPECT_NEAR(static_cast<double>(Widen(pass.out[c])),
                      static_cast<double>(Widen(far.out[c])), 1e-6)
              << i;
        }
      }
    }
  }
}

// In the backward pass one in a query or in dout reaches keys and values that do not see it only in
// its tile, and only by products with 0.
TYPED_TEST(AttentionTypesTest, ANanReachesKeysBehindItAtMostByProductsWithZero) {
  using T = TypeParam;
  const int64_t context = kOnGpu ? 20 : 200, width = kOnGpu ? 32 : 8, bad = context / 4;
  const AttentionShape shape = Shape(1, context, 1, width);
  for (const int64_t at : {int64_t{0}, bad}) {
    for (const bool in_dout : {false, true}) {
      SCOPED_TRACE(absl::StrCat(in_dout ? "dout" : "query", " at ", at));
      auto qkv = Exact(context * 3 * width, 1), dout = Exact(context * width, 2);
      (in_dout ? dout[at * width + 1] : qkv[at * 3 * width + 1]) = std::nan("");
      Pass<T> pass(shape, qkv, dout);
      pass.Run();
      const auto finite = [&](int64_t position, int part, int64_t column) {
        return std::isfinite(
            static_cast<double>(Widen(pass.dqkv[(position * 3 + part) * width + column])));
      };
      for (int64_t i = 0; i < context; ++i) {
        SCOPED_TRACE(i);
        for (int64_t c = 0; c < width; ++c) {
          EXPECT_EQ(finite(i, 0, c), i != at) << "query " << c;
          if (i <= at) {
            EXPECT_FALSE(finite(i, 1, c)) << "key " << c;
            EXPECT_EQ(finite(i, 2, c), in_dout && c != 1) << "value " << c;
          } else {
            const bool is_far = c != 1 || i >= at + 64;
            EXPECT_TRUE(finite(i, 1, c) || (!in_dout && !is_far)) << "key " << c;
            EXPECT_TRUE(finite(i, 2, c) || (in_dout && !is_far)) << "value " << c;
          }
        }
      }
    }
  }
}

TYPED_TEST(AttentionTypesTest, BitsDoNotDependOnTheNumberOfThreads) {
  using T = TypeParam;
  if (kOnGpu) GTEST_SKIP() << "for the CPU";
  for (const AttentionShape& shape : {Shape(1, 300, 1, 64), Shape(2, 130, 3, 24)}) {
    const auto qkv = Exact(shape.rows() * 3 * shape.width, 1),
               dout = Exact(shape.rows() * shape.width, 2);
    Pass<T> one(shape, qkv, dout, 1);
    one.Run();
    for (const int threads : {2, 3}) {
      SCOPED_TRACE(threads);
      for (int repetition = 0; repetition < 5; ++repetition) {
        Pass<T> several(shape, qkv, dout, threads);
        several.Run();
        const auto same = [](auto a, auto b) {
          return std::memcmp(a.data(), b.data(), a.size() * sizeof(a[0])) == 0;
        };
        ASSERT_TRUE(same(one.out, several.out));
        ASSERT_TRUE(same(one.log_sum_exp, several.log_sum_exp));
        ASSERT_TRUE(same(one.dqkv, several.dqkv));
      }
    }
  }
}

TEST(AttentionMemoryTest, IsLinearInTheContextAndNoneIsAllocated) {
  const auto bytes = [](const AttentionShape& shape) {
    return AttentionWorkspaceBytes(shape, BRIGADE_LAB_DEVICE);
  };
  const AttentionShape few = Shape(1, 4096, 4, 64), many = Shape(4, 4096, 12, 64);
  const int64_t few_parts = kOnGpu ? 0 : 16, many_parts = kOnGpu ? 0 : 48;
  // To begin the parts at a whole vector.
  const int64_t alignment = kOnGpu ? 0 : 64;
  EXPECT_EQ(bytes(few), 4 * 4096 * 4 + few_parts * 4096 * 64 * 4 + alignment);
  EXPECT_EQ(bytes(many), 48 * 4096 * 4 + many_parts * 4096 * 64 * 4 + alignment);
  AttentionShape twice = few;
  twice.context *= 2;
  EXPECT_EQ(bytes(twice) - alignment, 2 * (bytes(few) - alignment));
  // Rounded up.
  EXPECT_EQ(bytes(Shape(1, 65, 1, 17)), 512 + (kOnGpu ? 0 : 2 * 128 * 32 * 4 + alignment));

  const AttentionShape shape = Shape(1, kOnGpu ? 10 : 1000, 1, 8);
  Pass<float> pass(shape, Exact(shape.rows() * 24, 1), Exact(shape.rows() * 8, 2));
  const auto books = [&] {
    int64_t peak = 0;
    for (int p = 0; p < device::kPurposes; ++p) {
      peak += pass.context().memory_stats().peak_bytes(static_cast<device::Purpose>(p));
    }
    return peak;
  };
  const int64_t before = books();
  pass.Run();
  EXPECT_EQ(books(), before);
}

// 2 texts of 4 heads are in two parts each, 3 in one.
TEST(AttentionMemoryTest, ASmallerBatchMayNeedMore) {
  if (!kOnGpu) {
    const AttentionShape three = Shape(3, 1000, 4, 64), two = Shape(2, 1000, 4, 64);
    EXPECT_GT(AttentionWorkspaceBytes(two, BRIGADE_LAB_DEVICE),
              AttentionWorkspaceBytes(three, BRIGADE_LAB_DEVICE));
  }
  for (const int64_t context : {1, 65, 1000}) {
    for (int64_t heads = 1; heads <= 20; ++heads) {
      int64_t most = 0;
      for (int64_t batch = 1; batch <= 20; ++batch) {
        const AttentionShape shape = Shape(batch, context, heads, 64);
        most = std::max(most, AttentionWorkspaceBytes(shape, BRIGADE_LAB_DEVICE));
        EXPECT_EQ(MostAttentionWorkspaceBytes(shape, BRIGADE_LAB_DEVICE), most)
            << batch << " texts of " << context << ", " << heads << " heads";
      }
    }
  }
  EXPECT_EQ(MostAttentionWorkspaceBytes(Shape(0, 8, 2, 64), BRIGADE_LAB_DEVICE), 0);
}

TEST(AttentionTest, ABatchOfNoneIsNothingToDo) {
  Lab lab;
  for (const DType dtype : {DType::kFloat32, DType::kFloat16, DType::kBFloat16, DType::kFloat64}) {
    const AttentionShape shape = {dtype, 0, 5, 2, 64};
    EXPECT_EQ(AttentionWorkspaceBytes(shape, BRIGADE_LAB_DEVICE), 0);
    EXPECT_OK(Attention(shape, nullptr, nullptr, nullptr, lab.stream()));
    EXPECT_OK(AttentionBackward(shape, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr,
                                lab.stream()));
  }
  EXPECT_OK(lab.stream().Synchronize());
}

TEST(AttentionMemoryTest, WhatHasNoPositionsNeedsNone) {
  for (const auto& [batch, context, heads] :
       {std::array<int64_t, 3>{0, 5, 2}, {1, 0, 2}, {1, 5, 0}, {0, 0, 0}}) {
    EXPECT_EQ(
        AttentionWorkspaceBytes({DType::kFloat32, batch, context, heads, 64}, BRIGADE_LAB_DEVICE),
        0);
  }
}

TEST(AttentionErrorsTest, TypesAndSizesAreRefused) {
  Lab lab;
  const auto attention = [&](const AttentionShape& shape) {
    return Attention(shape, nullptr, nullptr, nullptr, lab.stream());
  };
  const auto backward = [&](const AttentionShape& shape) {
    return AttentionBackward(shape, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr,
                             lab.stream());
  };
  EXPECT_EQ(attention({DType::kInt32, 1, 1, 1, 1}),
            absl::InvalidArgumentError("attention: dtype is int32; it must be fp32, fp16, "
                                       "bf16 or fp64"));
  EXPECT_EQ(attention({DType::kInt32, 0, 1, 1, 1}),
            absl::InvalidArgumentError("attention: dtype is int32; it must be fp32, fp16, "
                                       "bf16 or fp64"));
  EXPECT_EQ(attention({DType::kFloat32, -1, 1, 1, 1}),
            absl::InvalidArgumentError("attention: batch is -1; it must be at least 0"));
  EXPECT_EQ(attention({DType::kFloat32, 1, 0, 1, 1}),
            absl::InvalidArgumentError("attention: context is 0; it must be at least 1"));
  EXPECT_EQ(backward({DType::kFloat32, 1, 1, 0, 1}),
            absl::InvalidArgumentError("attention_backward: heads is 0; it must be at least 1"));
  for (const int64_t width : {0, 7, 514}) {
    EXPECT_EQ(backward({DType::kFloat32, 1, 1, 2, width}),
              absl::InvalidArgumentError(absl::StrCat("attention_backward: width is ", width,
                                                      " for 2 heads; each must be 1 to 256 wide")));
  }
}

}  // namespace
}  // namespace brigade::nn
