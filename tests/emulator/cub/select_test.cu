#include <cub/device/device_partition.cuh>
#include <cub/device/device_reduce.cuh>
#include <cub/device/device_run_length_encode.cuh>
#include <cub/device/device_select.cuh>
#include <cuda/std/functional>

#include "brigade/tests/emulator/cub/arrays.h"

namespace brigade::emulator {
namespace {

struct IsOdd {
  template <typename T>
  __host__ __device__ bool operator()(T value) const {
    return static_cast<int64_t>(value) % 2 != 0;
  }
};

template <typename T>
void ExpectSelected() {
  for (const size_t size : Sizes()) {
    SCOPED_TRACE(size);
    const auto values = RandomValues<T>(size);
    const Array<T> in(values), out(size);
    const Array<int> count(1);
    RunCub([&](void* memory, size_t& bytes) {
      return cub::DeviceSelect::If(memory, bytes, in.data(), out.data(), count.data(),
                                   static_cast<int>(size), IsOdd());
    });
    std::vector<T> expected;
    std::copy_if(values.begin(), values.end(), std::back_inserter(expected), IsOdd());
    const auto selected = static_cast<size_t>(count.Values()[0]);
    EXPECT_EQ(selected, expected.size());
    EXPECT_EQ(out.Values(selected), expected);
  }
}

TEST(CubSelectTest, SmallIntegers) { ExpectSelected<uint8_t>(); }
TEST(CubSelectTest, Integers) { ExpectSelected<int32_t>(); }
TEST(CubSelectTest, Doubles) { ExpectSelected<double>(); }

TEST(CubSelectTest, Unique) {
  for (const size_t size : Sizes()) {
    auto values = RandomValues<int32_t>(size, 3);
    const Array<int32_t> in(values), out(size);
    const Array<int> count(1);
    RunCub([&](void* memory, size_t& bytes) {
      return cub::DeviceSelect::Unique(memory, bytes, in.data(), out.data(), count.data(),
                                       static_cast<int>(size));
    });
    values.erase(std::unique(values.begin(), values.end()), values.end());
    EXPECT_EQ(out.Values(static_cast<size_t>(count.Values()[0])), values);
  }
}

TEST(CubSelectTest, Partition) {
  for (const size_t size : Sizes()) {
    auto values = RandomValues<int32_t>(size);
    const Array<int32_t> in(values), out(size);
    const Array<int> count(1);
    RunCub([&](void* memory, size_t& bytes) {
      return cub::DevicePartition::If(memory, bytes, in.data(), out.data(), count.data(),
                                      static_cast<int>(size), IsOdd());
    });
    // The others come last, in reverse.
    const auto others = std::stable_partition(values.begin(), values.end(), IsOdd());
    std::reverse(others, values.end());
    EXPECT_EQ(count.Values()[0], others - values.begin());
    EXPECT_EQ(out.Values(), values);
  }
}

template <typename T>
struct Runs {
  std::vector<T> keys;
  std::vector<int32_t> lengths, sums;
};
template <typename T>
Runs<T> RunsOf(const std::vector<T>& keys, const std::vector<int32_t>& values) {
  Runs<T> runs;
  for (size_t i = 0; i < keys.size(); ++i) {
    if (i == 0 || keys[i] != keys[i - 1]) {
      runs.keys.push_back(keys[i]);
      runs.lengths.push_back(0);
      runs.sums.push_back(0);
    }
    ++runs.lengths.back();
    runs.sums.back() += values[i];
  }
  return runs;
}

TEST(CubSelectTest, RunLengths) {
  for (const size_t size : Sizes()) {
    const auto keys = RandomValues<uint8_t>(size, 2);
    const Array<uint8_t> in(keys), out(size);
    const Array<int32_t> lengths(size), count(1);
    RunCub([&](void* memory, size_t& bytes) {
      return cub::DeviceRunLengthEncode::Encode(memory, bytes, in.data(), out.data(),
                                                lengths.data(), count.data(),
                                                static_cast<int>(size));
    });
    const auto runs = RunsOf(keys, std::vector<int32_t>(size));
    ASSERT_EQ(count.Values()[0], static_cast<int>(runs.keys.size()));
    EXPECT_EQ(out.Values(runs.keys.size()), runs.keys);
    EXPECT_EQ(lengths.Values(runs.keys.size()), runs.lengths);
  }
}

TEST(CubSelectTest, ReduceByKey) {
  for (const size_t size : Sizes()) {
    const auto keys = RandomValues<int64_t>(size, 2);
    const auto values = RandomValues<int32_t>(size, 1000);
    const Array<int64_t> in(keys), out(size);
    const Array<int32_t> values_in(values), sums(size), count(1);
    RunCub([&](void* memory, size_t& bytes) {
      return cub::DeviceReduce::ReduceByKey(memory, bytes, in.data(), out.data(), values_in.data(),
                                            sums.data(), count.data(), cuda::std::plus<>(),
                                            static_cast<int>(size));
    });
    const auto runs = RunsOf(keys, values);
    ASSERT_EQ(count.Values()[0], static_cast<int>(runs.keys.size()));
    EXPECT_EQ(out.Values(runs.keys.size()), runs.keys);
    EXPECT_EQ(sums.Values(runs.keys.size()), runs.sums);
  }
}

}  // namespace
}  // namespace brigade::emulator
