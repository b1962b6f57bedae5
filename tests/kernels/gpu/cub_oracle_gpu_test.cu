// Thrust's and CUB's algorithms, which nobody here wrote, as oracles of ours: every bit.

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <thrust/copy.h>
#include <thrust/device_vector.h>
#include <thrust/iterator/transform_iterator.h>
#include <thrust/transform.h>

#include <cmath>
#include <cstring>
#include <cub/device/device_reduce.cuh>
#include <limits>
#include <random>
#include <vector>

#include "brigade/kernels/amax/amax_cuda.h"
#include "brigade/kernels/cast/cast_cuda.h"
#include "brigade/kernels/fill/fill_cuda.h"
#include "brigade/kernels/reduce/reduce_cuda.h"
#include "gtest/gtest.h"

namespace brigade::kernels {
namespace {

constexpr int64_t kSizes[] = {1, 31, 33, 4097, 65'613};

// Of all magnitudes, subnormal and infinite ones among them; no NaN, whose payloads may differ.
std::vector<float> AnyFloats(int64_t size) {
  std::mt19937 random(11);
  std::vector<float> values;
  while (static_cast<int64_t>(values.size()) < size) {
    const auto bits = static_cast<uint32_t>(random());
    float value;
    std::memcpy(&value, &bits, sizeof(value));
    if (!std::isnan(value)) values.push_back(value);
  }
  return values;
}

template <typename T>
T* Data(thrust::device_vector<T>& array) {
  return thrust::raw_pointer_cast(array.data());
}

template <typename T>
void ExpectSame(const thrust::device_vector<T>& ours, const thrust::device_vector<T>& theirs) {
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  std::vector<T> a(ours.size()), b(theirs.size());
  thrust::copy(ours.begin(), ours.end(), a.begin());
  thrust::copy(theirs.begin(), theirs.end(), b.begin());
  EXPECT_EQ(std::memcmp(a.data(), b.data(), a.size() * sizeof(T)), 0);
}

// CUB's result of an algorithm that writes one value.
template <typename T, typename Algorithm>
T One(const Algorithm& algorithm) {
  thrust::device_vector<T> result(1);
  size_t bytes = 0;
  EXPECT_EQ(algorithm(nullptr, bytes, Data(result)), cudaSuccess);
  thrust::device_vector<uint8_t> memory(bytes);
  EXPECT_EQ(algorithm(Data(memory), bytes, Data(result)), cudaSuccess);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  return result[0];
}

struct ToBFloat16 {
  __device__ uint16_t operator()(float x) const {
    return __bfloat16_as_ushort(__float2bfloat16_rn(x));
  }
};
struct ToHalf {
  __device__ uint16_t operator()(float x) const { return __half_as_ushort(__float2half_rn(x)); }
};
struct FromHalf {
  __device__ float operator()(uint16_t bits) const { return __half2float(__ushort_as_half(bits)); }
};

template <typename Source, typename Target, typename From, typename To, typename Convert>
void ExpectCastIs(thrust::device_vector<From>& source, const Convert& convert) {
  thrust::device_vector<To> ours(source.size()), theirs(source.size());
  const CastSegment segment = {Data(source), Data(ours), static_cast<int64_t>(source.size())};
  ASSERT_EQ((LaunchCast<Source, Target>(&segment, 1, nullptr, false, nullptr)), cudaSuccess);
  thrust::transform(source.begin(), source.end(), theirs.begin(), convert);
  ExpectSame(ours, theirs);
}

TEST(ThrustOracleTest, Cast) {
  for (const int64_t size : kSizes) {
    SCOPED_TRACE(size);
    thrust::device_vector<float> floats = AnyFloats(size);
    ExpectCastIs<float, precision::BFloat16, float, uint16_t>(floats, ToBFloat16());
    ExpectCastIs<float, precision::Half, float, uint16_t>(floats, ToHalf());
    thrust::device_vector<uint16_t> halves(floats.size());
    thrust::transform(floats.begin(), floats.end(), halves.begin(), ToHalf());
    ExpectCastIs<precision::Half, float, uint16_t, float>(halves, FromHalf());
  }
}

struct Constant {
  uint32_t value;
  __device__ uint32_t operator()(uint32_t) const { return value; }
};

TEST(ThrustOracleTest, Fill) {
  constexpr uint32_t kValue = 0x12345678;
  for (const int64_t size : kSizes) {
    SCOPED_TRACE(size);
    thrust::device_vector<uint32_t> ours(size), theirs(size);
    const FillSegment segment = {Data(ours), size};
    ASSERT_EQ(LaunchFill(&segment, 1, {{kValue, kValue, kValue, kValue}}, 4, nullptr), cudaSuccess);
    thrust::transform(theirs.begin(), theirs.end(), theirs.begin(), Constant{kValue});
    ExpectSame(ours, theirs);
  }
}

struct Magnitude {
  __device__ float operator()(float x) const { return ::fabsf(x); }
};

TEST(CubOracleTest, Amax) {
  for (const int64_t size : kSizes) {
    for (const bool finite : {true, false}) {
      SCOPED_TRACE(size);
      std::vector<float> values = AnyFloats(size);
      if (finite) {
        for (float& value : values) value = std::isinf(value) ? 0.0f : value;
      }
      thrust::device_vector<float> array = values;
      thrust::device_vector<AmaxWorkspace> workspace(1);
      thrust::device_vector<AmaxResult> result(1);
      ASSERT_EQ(LaunchAmax(Data(array), size, nullptr, Data(workspace), Data(result), nullptr),
                cudaSuccess);
      const float theirs = One<float>([&](void* memory, size_t& bytes, float* out) {
        return cub::DeviceReduce::Max(memory, bytes,
                                      thrust::make_transform_iterator(Data(array), Magnitude()),
                                      out, static_cast<int>(size));
      });
      const AmaxResult ours = result[0];
      EXPECT_EQ(ours.value, theirs);
      EXPECT_EQ(ours.non_finite, std::isinf(theirs) ? 1 : 0);
    }
  }
}

TEST(CubOracleTest, SumsOfIntegers) {
  for (const int64_t size : kSizes) {
    SCOPED_TRACE(size);
    std::mt19937_64 random(12);
    std::vector<int64_t> values(2 * static_cast<size_t>(size));
    for (int64_t& value : values) value = static_cast<int64_t>(random() >> 2);
    thrust::device_vector<int64_t> a(values.begin(), values.begin() + size);
    thrust::device_vector<int64_t> b(values.begin() + size, values.end());
    thrust::device_vector<int64_t> ours(size), theirs(size);
    ReduceArrays arrays = {};
    arrays.sources[0] = Data(a);
    arrays.sources[1] = Data(b);
    arrays.targets[0] = Data(ours);
    arrays.source_count = 2;
    arrays.target_count = 1;
    arrays.size = size;
    ASSERT_EQ(LaunchReduce<int64_t>(arrays, ReduceOp::kSum, nullptr), cudaSuccess);
    thrust::transform(a.begin(), a.end(), b.begin(), theirs.begin(), thrust::plus<int64_t>());
    ExpectSame(ours, theirs);
    const auto sum = [&](thrust::device_vector<int64_t>& array) {
      return static_cast<uint64_t>(One<int64_t>([&](void* memory, size_t& bytes, int64_t* out) {
        return cub::DeviceReduce::Sum(memory, bytes, Data(array), out, static_cast<int>(size));
      }));
    };
    EXPECT_EQ(sum(ours), sum(a) + sum(b));
  }
}

}  // namespace
}  // namespace brigade::kernels
