// Sorting, searching and merging by Thrust.

#include <thrust/binary_search.h>
#include <thrust/functional.h>
#include <thrust/merge.h>
#include <thrust/set_operations.h>
#include <thrust/sort.h>
#include <thrust/system/cuda/execution_policy.h>

#include "brigade/tests/emulator/cub/arrays.h"

namespace brigade::emulator {
namespace {

struct ByLastDigit {
  __host__ __device__ bool operator()(int32_t a, int32_t b) const { return a % 10 < b % 10; }
};

TEST(ThrustTest, Sort) {
  for (const size_t size : Sizes()) {
    SCOPED_TRACE(size);
    auto values = RandomValues<int32_t>(size);
    const Array<int32_t> in(values);
    // By digits of the bits, and by comparisons.
    thrust::sort(thrust::device, in.data(), in.end());
    std::sort(values.begin(), values.end());
    EXPECT_EQ(in.Values(), values);
    thrust::stable_sort(thrust::device, in.data(), in.end(), ByLastDigit());
    std::stable_sort(values.begin(), values.end(), ByLastDigit());
    EXPECT_EQ(in.Values(), values);
  }
}

TEST(ThrustTest, StableSortByKey) {
  for (const size_t size : Sizes()) {
    const auto keys = RandomValues<int32_t>(size, 1000);
    std::vector<double> places(size);
    for (size_t i = 0; i < size; ++i) places[i] = static_cast<double>(i);
    const Array<int32_t> keys_in(keys);
    const Array<double> in(places);
    thrust::stable_sort_by_key(thrust::device, keys_in.data(), keys_in.end(), in.data(),
                               ByLastDigit());
    std::stable_sort(places.begin(), places.end(), [&](double a, double b) {
      return ByLastDigit()(keys[static_cast<size_t>(a)], keys[static_cast<size_t>(b)]);
    });
    EXPECT_EQ(in.Values(), places);
  }
}

TEST(ThrustTest, MergeAndSets) {
  using Values = std::vector<int32_t>;
  for (const size_t size : Sizes()) {
    SCOPED_TRACE(size);
    auto a = RandomValues<int32_t>(size, 2 * size), b = RandomValues<int32_t>(size / 2, size);
    std::sort(a.begin(), a.end());
    std::sort(b.begin(), b.end());
    const Array<int32_t> a_in(a), b_in(b), out(a.size() + b.size());
    const auto expect = [&](const auto& run, const auto& oracle) {
      const auto* const end =
          run(thrust::device, a_in.data(), a_in.end(), b_in.data(), b_in.end(), out.data());
      Values expected;
      oracle(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(expected));
      EXPECT_EQ(out.Values(static_cast<size_t>(end - out.data())), expected);
    };
    expect([](auto... of) { return thrust::merge(of...); }, [](auto... of) { std::merge(of...); });
    expect([](auto... of) { return thrust::set_union(of...); },
           [](auto... of) { std::set_union(of...); });
    expect([](auto... of) { return thrust::set_difference(of...); },
           [](auto... of) { std::set_difference(of...); });
  }
}

TEST(ThrustTest, LowerBound) {
  for (const size_t size : Sizes()) {
    auto sorted = RandomValues<int64_t>(size);
    const auto wanted = RandomValues<int64_t>(500);
    std::sort(sorted.begin(), sorted.end());
    const Array<int64_t> in(sorted), keys(wanted), out(wanted.size());
    thrust::lower_bound(thrust::device, in.data(), in.end(), keys.data(), keys.end(), out.data());
    std::vector<int64_t> expected;
    for (const int64_t key : wanted) {
      expected.push_back(std::lower_bound(sorted.begin(), sorted.end(), key) - sorted.begin());
    }
    EXPECT_EQ(out.Values(), expected);
  }
}

}  // namespace
}  // namespace brigade::emulator
