// Transformations, reductions and scans of Thrust.

#include <thrust/adjacent_difference.h>
#include <thrust/count.h>
#include <thrust/extrema.h>
#include <thrust/fill.h>
#include <thrust/functional.h>
#include <thrust/gather.h>
#include <thrust/inner_product.h>
#include <thrust/reduce.h>
#include <thrust/scan.h>
#include <thrust/scatter.h>
#include <thrust/sequence.h>
#include <thrust/system/cuda/execution_policy.h>
#include <thrust/transform.h>
#include <thrust/transform_reduce.h>

#include <numeric>

#include "brigade/tests/emulator/cub/arrays.h"

namespace brigade::emulator {
namespace {

struct Square {
  template <typename T>
  __host__ __device__ T operator()(T value) const {
    return static_cast<T>(value * value);
  }
};
struct IsSmall {
  template <typename T>
  __host__ __device__ bool operator()(T value) const {
    return value < 5;
  }
};

// Calls test(values) for each size with integers of two types and doubles, below `range`.
template <typename Test>
void ForEachType(uint64_t range, const Test& test) {
  for (const size_t size : Sizes()) {
    SCOPED_TRACE(size);
    test(RandomValues<int16_t>(size, range));
    test(RandomValues<uint64_t>(size, range));
    test(RandomValues<double>(size, range));
  }
}

TEST(ThrustTest, TransformAndReduce) {
  ForEachType(100, []<typename T>(const std::vector<T>& values) {
    const Array<T> in(values), out(values.size());
    std::vector<T> expected(values.size());
    thrust::transform(thrust::device, in.data(), in.end(), out.data(), Square());
    std::transform(values.begin(), values.end(), expected.begin(), Square());
    EXPECT_EQ(out.Values(), expected);
    EXPECT_EQ(thrust::reduce(thrust::device, in.data(), in.end(), T{3}),
              std::accumulate(values.begin(), values.end(), T{3}));
    EXPECT_EQ(thrust::transform_reduce(thrust::device, in.data(), in.end(), Square(), T{},
                                       thrust::plus<T>()),
              std::accumulate(expected.begin(), expected.end(), T{}));
    EXPECT_EQ(thrust::inner_product(thrust::device, in.data(), in.end(), out.data(), T{}),
              std::inner_product(values.begin(), values.end(), expected.begin(), T{}));
    EXPECT_EQ(thrust::count_if(thrust::device, in.data(), in.end(), IsSmall()),
              std::count_if(values.begin(), values.end(), IsSmall()));
  });
}

TEST(ThrustTest, Extremes) {
  ForEachType(0, []<typename T>(const std::vector<T>& values) {
    const Array<T> in(values);
    EXPECT_EQ(thrust::min_element(thrust::device, in.data(), in.end()) - in.data(),
              std::min_element(values.begin(), values.end()) - values.begin());
    EXPECT_EQ(thrust::max_element(thrust::device, in.data(), in.end()) - in.data(),
              std::max_element(values.begin(), values.end()) - values.begin());
  });
}

TEST(ThrustTest, ScansAndDifferences) {
  ForEachType(9, []<typename T>(const std::vector<T>& values) {
    const Array<T> in(values), out(values.size());
    std::vector<T> expected(values.size());
    thrust::inclusive_scan(thrust::device, in.data(), in.end(), out.data());
    std::inclusive_scan(values.begin(), values.end(), expected.begin());
    EXPECT_EQ(out.Values(), expected);
    thrust::exclusive_scan(thrust::device, in.data(), in.end(), out.data(), T{4});
    std::exclusive_scan(values.begin(), values.end(), expected.begin(), T{4});
    EXPECT_EQ(out.Values(), expected);
    thrust::adjacent_difference(thrust::device, in.data(), in.end(), out.data());
    std::adjacent_difference(values.begin(), values.end(), expected.begin());
    EXPECT_EQ(out.Values(), expected);
  });
}

TEST(ThrustTest, GatherAndScatter) {
  ForEachType(0, []<typename T>(const std::vector<T>& values) {
    std::vector<uint32_t> order(values.size());
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), std::mt19937(3));
    const Array<T> in(values), gathered(values.size()), scattered(values.size());
    const Array<uint32_t> map(order);
    thrust::gather(thrust::device, map.data(), map.end(), in.data(), gathered.data());
    thrust::scatter(thrust::device, gathered.data(), gathered.end(), map.data(), scattered.data());
    std::vector<T> expected;
    for (const uint32_t i : order) expected.push_back(values[i]);
    EXPECT_EQ(gathered.Values(), expected);
    EXPECT_EQ(scattered.Values(), values);
  });
}

TEST(ThrustTest, FillAndSequence) {
  for (const size_t size : Sizes()) {
    const Array<int32_t> filled(size), sequence(size);
    thrust::fill(thrust::device, filled.data(), filled.end(), -7);
    thrust::sequence(thrust::device, sequence.data(), sequence.end(), 100, 3);
    std::vector<int32_t> expected(size);
    for (size_t i = 0; i < size; ++i) expected[i] = 100 + 3 * static_cast<int32_t>(i);
    EXPECT_EQ(filled.Values(), std::vector<int32_t>(size, -7));
    EXPECT_EQ(sequence.Values(), expected);
  }
}

}  // namespace
}  // namespace brigade::emulator
