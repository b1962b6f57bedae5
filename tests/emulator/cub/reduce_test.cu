#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cub/device/device_reduce.cuh>
#include <cub/device/device_segmented_reduce.cuh>
#include <cuda/functional>
#include <numeric>

#include "brigade/tests/emulator/cub/arrays.h"

namespace brigade::emulator {
namespace {

template <typename T>
void ExpectSumAndExtremes() {
  for (const size_t size : Sizes()) {
    SCOPED_TRACE(size);
    const auto values = RandomValues<T>(size);
    const Array<T> in(values), sum(1), least(1);
    RunCub([&](void* memory, size_t& bytes) {
      return cub::DeviceReduce::Sum(memory, bytes, in.data(), sum.data(), size);
    });
    EXPECT_EQ(sum.Values()[0], std::accumulate(values.begin(), values.end(), T{}));
    if (size == 0) continue;
    RunCub([&](void* memory, size_t& bytes) {
      return cub::DeviceReduce::Min(memory, bytes, in.data(), least.data(), size);
    });
    EXPECT_EQ(least.Values()[0], *std::min_element(values.begin(), values.end()));
  }
}

TEST(CubReduceTest, SmallIntegers) { ExpectSumAndExtremes<int8_t>(); }
TEST(CubReduceTest, Integers) { ExpectSumAndExtremes<uint32_t>(); }
TEST(CubReduceTest, LongIntegers) { ExpectSumAndExtremes<int64_t>(); }
TEST(CubReduceTest, Floats) { ExpectSumAndExtremes<float>(); }
TEST(CubReduceTest, Doubles) { ExpectSumAndExtremes<double>(); }

// Few enough ones that every sum is a number of the type.
template <typename T>
void ExpectSumOfHalves() {
  const size_t size = 200;
  const Array<T> in(std::vector<T>(size, T(1.0f))), sum(1);
  RunCub([&](void* memory, size_t& bytes) {
    return cub::DeviceReduce::Sum(memory, bytes, in.data(), sum.data(), size);
  });
  EXPECT_EQ(static_cast<float>(sum.Values()[0]), 200.0f);
}

TEST(CubReduceTest, Halves) {
  ExpectSumOfHalves<__half>();
  ExpectSumOfHalves<__nv_bfloat16>();
}

TEST(CubReduceTest, ArgMax) {
  for (const size_t size : Sizes()) {
    if (size == 0) continue;
    const auto values = RandomValues<float>(size);
    const Array<float> in(values), most(1);
    const Array<int64_t> place(1);
    RunCub([&](void* memory, size_t& bytes) {
      return cub::DeviceReduce::ArgMax(memory, bytes, in.data(), most.data(), place.data(),
                                       static_cast<int64_t>(size));
    });
    const auto expected = std::max_element(values.begin(), values.end());
    EXPECT_EQ(most.Values()[0], *expected);
    EXPECT_EQ(place.Values()[0], expected - values.begin());
  }
}

TEST(CubReduceTest, Segments) {
  for (const size_t size : Sizes()) {
    const auto values = RandomValues<int32_t>(size, 1000);
    // Of any length, some empty.
    std::vector<int> begins = {0};
    while (begins.back() < static_cast<int>(size)) {
      const int length = static_cast<int>(RandomValues<uint32_t>(1, 700)[0]) - 100;
      begins.push_back(std::min(static_cast<int>(size), begins.back() + std::max(0, length)));
    }
    const auto segments = static_cast<int>(begins.size()) - 1;
    const Array<int32_t> in(values), sums(static_cast<size_t>(segments));
    const Array<int> at(begins);
    RunCub([&](void* memory, size_t& bytes) {
      return cub::DeviceSegmentedReduce::Sum(memory, bytes, in.data(), sums.data(), segments,
                                             at.data(), at.data() + 1);
    });
    std::vector<int32_t> expected;
    for (int s = 0; s < segments; ++s) {
      expected.push_back(
          std::accumulate(values.begin() + begins[s], values.begin() + begins[s + 1], 0));
    }
    EXPECT_EQ(sums.Values(), expected);
  }
}

}  // namespace
}  // namespace brigade::emulator
