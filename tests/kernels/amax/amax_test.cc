#include "brigade/kernels/amax/amax.h"

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "brigade/kernels/amax/amax_tile.h"
#include "brigade/tests/kernels/bad_arrays.h"
#include "brigade/tests/kernels/sparse_array.h"
#include "brigade/tests/kernels/testing.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::kernels {
namespace {

using ::brigade::testing::StatusIs;
using precision::BFloat16;
using precision::DType;
using precision::Half;
using ::testing::HasSubstr;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Normal variables of many magnitudes, all of them less than 1000.
template <typename T>
void FillFinite(GuardedArray<T>& array, std::mt19937& random) {
  std::normal_distribution<float> normal;
  for (int64_t i = 0; i < array.size(); ++i) {
    array[i] = T(std::ldexp(100.0f * normal(random), -static_cast<int>(random() % 30)));
  }
}

// By definition, one element after the other.
template <typename T>
AmaxResult Wanted(const GuardedArray<T>& array, float scale) {
  AmaxResult wanted = {0.0f, 0};
  for (int64_t i = 0; i < array.size(); ++i) {
    const float x = std::fabs(static_cast<float>(array[i]) * scale);
    if (std::isnan(x) || x > wanted.value) wanted.value = x;
    if (!std::isfinite(x)) wanted.non_finite = 1;
  }
  return wanted;
}

void ExpectSame(const AmaxResult& actual, const AmaxResult& wanted, const std::string& how) {
  EXPECT_TRUE(SameBits(actual.value, wanted.value))
      << how << ": " << actual.value << ", not " << wanted.value;
  EXPECT_EQ(actual.non_finite, wanted.non_finite) << how;
}

template <typename T>
AmaxResult RunGpuBodies(const T* array, int64_t size, const float* scale, int64_t blocks) {
  const auto max_of_threads = [](const auto& of_thread) {
    int32_t bits = 0;
    for (int thread = 0; thread < kTileThreads; ++thread)
      bits = LargerBits(bits, of_thread(thread));
    return bits;
  };
  std::vector<int32_t> parts;
  for (int64_t block = 0; block < blocks; ++block) {
    parts.push_back(max_of_threads(
        [&](int thread) { return AmaxThread(array, size, scale, block, blocks, thread); }));
  }
  return AmaxOf(max_of_threads([&](int thread) {
    return AmaxOfParts(parts.data(), static_cast<int64_t>(parts.size()), thread);
  }));
}

template <typename T>
class AmaxTypedTest : public ::testing::Test {
 protected:
  static AmaxResult Run(const GuardedArray<T>& array, const float* scale, device::Stream& stream) {
    AmaxWorkspace workspace;
    AmaxResult result = {-1.0f, -1};
    EXPECT_OK(Amax(array.data(), array.size(), {precision::kDType<T>, scale}, &workspace, &result,
                   stream));
    EXPECT_OK(stream.Synchronize());
    return result;
  }
};
using Types = ::testing::Types<float, Half, BFloat16>;
TYPED_TEST_SUITE(AmaxTypedTest, Types);

TYPED_TEST(AmaxTypedTest, FindsTheLargestOnEveryCpuAndInTheGpuThreads) {
  std::mt19937 random(61);
  // Times infinity or NaN, not even 0 may stand for an element that an array does not have.
  const float scales[] = {0.3f, 0.0f, kInfinity, -kInfinity, std::nanf("")};
  std::vector<const float*> factors = {nullptr};
  for (const float& scale : scales) factors.push_back(&scale);
  for (const int64_t size : {0, 1, 31, 32, 33, 511, 512, 2047, 2048, 2049, 4097, 100003}) {
    for (const int64_t offset : {0, 3}) {
      GuardedArray<TypeParam> array(size, offset);
      FillFinite(array, random);
      for (const float* factor : factors) {
        const AmaxResult wanted = Wanted(array, factor == nullptr ? 1.0f : *factor);
        OnEveryCpu([&](device::Stream& stream, const std::string& how) {
          ExpectSame(this->Run(array, factor, stream), wanted, how);
        });
        for (const int64_t blocks : {1, 3, 300}) {
          ExpectSame(RunGpuBodies(array.data(), size, factor, blocks), wanted, "GPU threads");
        }
      }
    }
  }
}

TYPED_TEST(AmaxTypedTest, FindsOneValueAnywhere) {
  const CpuRun cpu = OnCpu(2);
  GuardedArray<TypeParam> array(20011, 5);
  std::mt19937 random(62);
  FillFinite(array, random);
  const float values[] = {5000.0f, -5000.0f, kInfinity, -kInfinity, std::nanf("")};
  for (int64_t i = 0; i < array.size(); i += i < 9 || i > 20000 ? 1 : 517) {
    for (const float value : values) {
      const TypeParam before = array[i];
      array[i] = TypeParam(value);
      const AmaxResult wanted = {std::fabs(static_cast<float>(TypeParam(value))),
                                 std::isfinite(value) ? 0 : 1};
      ExpectSame(this->Run(array, nullptr, *cpu.stream), wanted, "CPU");
      ExpectSame(RunGpuBodies(array.data(), array.size(), nullptr, 4), wanted, "GPU threads");
      array[i] = before;
    }
  }
}

TEST(AmaxTest, PrefersNaNToInfinityWhicheverComesFirst) {
  const CpuRun cpu = OnCpu(1);
  for (const int64_t nan_at : {0, 9000}) {
    GuardedArray<float> array(9001, 0);
    array[9000 - nan_at] = kInfinity;
    array[nan_at] = -std::nanf("");
    AmaxWorkspace workspace;
    AmaxResult result = {};
    ASSERT_OK(Amax(array.data(), array.size(), {}, &workspace, &result, *cpu.stream));
    ASSERT_OK(cpu.stream->Synchronize());
    EXPECT_TRUE(std::isnan(result.value));
    EXPECT_EQ(result.non_finite, 1);
  }
}

TEST(AmaxTest, JudgesWhatIsFiniteAfterScaling) {
  const CpuRun cpu = OnCpu(1);
  const float scale = 2.0f;
  GuardedArray<float> array(10, 0);
  array[3] = 0x1.fffffep127f;
  AmaxWorkspace workspace;
  AmaxResult result = {};
  ASSERT_OK(Amax(array.data(), 10, {DType::kFloat32, &scale}, &workspace, &result, *cpu.stream));
  ASSERT_OK(cpu.stream->Synchronize());
  EXPECT_EQ(result.value, kInfinity);
  EXPECT_EQ(result.non_finite, 1);
}

// More parts than the block that finishes has threads, and more tiles than blocks.
TEST(AmaxTest, FindsAValueInTheLastTileOfManyBlocks) {
  GuardedArray<float> array(300 * kTileThreads * kAmaxPack, 0);
  array[array.size() - 1] = -3.0f;
  for (const int64_t blocks : {7, 299, 300}) {
    EXPECT_EQ(RunGpuBodies(array.data(), array.size(), nullptr, blocks).value, 3.0f) << blocks;
  }
}

// The last tile of a huge array; the memory before it is never touched.
TEST(AmaxTest, LooksPast2To31Elements) {
  constexpr int64_t kSize = (int64_t{1} << 31) + 4099;
  const SparseArray<Half> array(kSize, 5);
  const int64_t tiles = AmaxLayout(array.data()).Tiles(kSize);
  array[kSize - 1] = Half(-7.0f);
  int32_t bits = 0;
  for (int thread = 0; thread < kTileThreads; ++thread) {
    bits =
        LargerBits(bits, AmaxThread<Half>(array.data(), kSize, nullptr, tiles - 1, tiles, thread));
  }
  EXPECT_EQ(AmaxOf(bits).value, 7.0f);
}

TEST(AmaxTest, RejectsEveryBadArray) {
  const CpuRun cpu = OnCpu(1);
  BadArrays arrays("amax");
  const void* array;
  AmaxOptions options = {DType::kFloat16, nullptr};
  AmaxResult* result;
  AmaxWorkspace workspace;
  arrays.Add("array", array, 10, 2, 2, BadArrays::kRead);
  arrays.Add("scale", options.scale, 1, BadArrays::kReadUnlessNull);
  arrays.Add("result", result, 1, BadArrays::kWritten);
  arrays.ExpectRefused(*cpu.stream,
                       [&] { return Amax(array, 10, options, &workspace, result, *cpu.stream); });
}

TEST(AmaxTest, RejectsBadSizesWorkspacesAndTypes) {
  const CpuRun cpu = OnCpu(1);
  const GuardedArray<float> array(10, 0);
  AmaxWorkspace workspace;
  AmaxResult result;
  const auto expect = [&](int64_t size, DType dtype, AmaxWorkspace* where, const char* message) {
    EXPECT_THAT(Amax(array.data(), size, {dtype, nullptr}, where, &result, *cpu.stream),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(message)));
  };
  expect(-1, DType::kFloat32, &workspace, "amax: size is -1");
  expect(10, DType::kInt32, &workspace, "amax: dtype of array is int32");
  expect(10, DType::kFloat32, nullptr, "amax: workspace is null");
  EXPECT_THAT(Amax(array.data(), 10, {}, &workspace,
                   reinterpret_cast<AmaxResult*>(workspace.parts + 7), *cpu.stream),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("amax: workspace and result overlap in 8 bytes")));
}

}  // namespace
}  // namespace brigade::kernels
