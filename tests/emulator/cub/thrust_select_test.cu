// Selections of Thrust: what is kept depends on the values.

#include <thrust/copy.h>
#include <thrust/find.h>
#include <thrust/partition.h>
#include <thrust/reduce.h>
#include <thrust/remove.h>
#include <thrust/replace.h>
#include <thrust/system/cuda/execution_policy.h>
#include <thrust/unique.h>

#include "brigade/tests/emulator/cub/arrays.h"

namespace brigade::emulator {
namespace {

struct IsOdd {
  template <typename T>
  __host__ __device__ bool operator()(T value) const {
    return value % 2 != 0;
  }
};

TEST(ThrustTest, CopyIfAndRemoveCopyIf) {
  for (const size_t size : Sizes()) {
    SCOPED_TRACE(size);
    const auto values = RandomValues<int64_t>(size);
    const Array<int64_t> in(values), out(size);
    std::vector<int64_t> odd, even;
    std::partition_copy(values.begin(), values.end(), std::back_inserter(odd),
                        std::back_inserter(even), IsOdd());
    const auto* const end =
        thrust::copy_if(thrust::device, in.data(), in.end(), out.data(), IsOdd());
    ASSERT_EQ(end - out.data(), static_cast<std::ptrdiff_t>(odd.size()));
    EXPECT_EQ(out.Values(odd.size()), odd);
    const auto* const left =
        thrust::remove_copy_if(thrust::device, in.data(), in.end(), out.data(), IsOdd());
    ASSERT_EQ(left - out.data(), static_cast<std::ptrdiff_t>(even.size()));
    EXPECT_EQ(out.Values(even.size()), even);
  }
}

TEST(ThrustTest, UniqueCopyAndPartition) {
  for (const size_t size : Sizes()) {
    SCOPED_TRACE(size);
    auto values = RandomValues<uint8_t>(size, 3);
    const Array<uint8_t> in(values), out(size);
    const auto* const end = thrust::unique_copy(thrust::device, in.data(), in.end(), out.data());
    std::vector<uint8_t> unique;
    std::unique_copy(values.begin(), values.end(), std::back_inserter(unique));
    ASSERT_EQ(end - out.data(), static_cast<std::ptrdiff_t>(unique.size()));
    EXPECT_EQ(out.Values(unique.size()), unique);
    const auto* const middle =
        thrust::stable_partition(thrust::device, in.data(), in.end(), IsOdd());
    const auto expected = std::stable_partition(values.begin(), values.end(), IsOdd());
    EXPECT_EQ(middle - in.data(), expected - values.begin());
    EXPECT_EQ(in.Values(), values);
  }
}

TEST(ThrustTest, ReduceByKey) {
  for (const size_t size : Sizes()) {
    const auto keys = RandomValues<int32_t>(size, 2);
    const auto values = RandomValues<double>(size);
    const Array<int32_t> keys_in(keys), keys_out(size);
    const Array<double> in(values), out(size);
    const auto ends = thrust::reduce_by_key(thrust::device, keys_in.data(), keys_in.end(),
                                            in.data(), keys_out.data(), out.data());
    std::vector<int32_t> expected_keys;
    std::vector<double> sums;
    for (size_t i = 0; i < size; ++i) {
      if (i == 0 || keys[i] != keys[i - 1]) expected_keys.push_back(keys[i]), sums.push_back(0);
      sums.back() += values[i];
    }
    ASSERT_EQ(ends.first - keys_out.data(), static_cast<std::ptrdiff_t>(sums.size()));
    EXPECT_EQ(keys_out.Values(sums.size()), expected_keys);
    EXPECT_EQ(out.Values(sums.size()), sums);
  }
}

TEST(ThrustTest, FindAndReplace) {
  for (const size_t size : Sizes()) {
    auto values = RandomValues<int32_t>(size, 1000);
    const Array<int32_t> in(values);
    EXPECT_EQ(thrust::find(thrust::device, in.data(), in.end(), 77) - in.data(),
              std::find(values.begin(), values.end(), 77) - values.begin());
    thrust::replace_if(thrust::device, in.data(), in.end(), IsOdd(), -1);
    std::replace_if(values.begin(), values.end(), IsOdd(), -1);
    EXPECT_EQ(in.Values(), values);
  }
}

}  // namespace
}  // namespace brigade::emulator
