#include <cuda_fp16.h>

#include <cub/device/device_radix_sort.cuh>

#include "brigade/tests/emulator/cub/arrays.h"

namespace brigade::emulator {
namespace {

template <typename Key>
void ExpectSortedKeys() {
  for (const size_t size : Sizes()) {
    SCOPED_TRACE(size);
    auto keys = RandomValues<Key>(size);
    const Array<Key> in(keys), out(size);
    RunCub([&](void* memory, size_t& bytes) {
      return cub::DeviceRadixSort::SortKeys(memory, bytes, in.data(), out.data(), size);
    });
    std::sort(keys.begin(), keys.end());
    EXPECT_EQ(out.Values(), keys);
  }
}

TEST(CubSortTest, SmallIntegers) { ExpectSortedKeys<uint8_t>(); }
TEST(CubSortTest, Integers) { ExpectSortedKeys<int32_t>(); }
TEST(CubSortTest, LongIntegers) { ExpectSortedKeys<int64_t>(); }
TEST(CubSortTest, Halves) {
  for (const size_t size : Sizes()) {
    std::vector<__half> keys;
    for (const float value : RandomValues<float>(size)) keys.push_back(__float2half(value));
    const Array<__half> in(keys), out(size);
    RunCub([&](void* memory, size_t& bytes) {
      return cub::DeviceRadixSort::SortKeys(memory, bytes, in.data(), out.data(), size);
    });
    std::vector<float> expected, sorted;
    for (const __half key : keys) expected.push_back(__half2float(key));
    for (const __half key : out.Values()) sorted.push_back(__half2float(key));
    std::sort(expected.begin(), expected.end());
    EXPECT_EQ(sorted, expected);
  }
}
TEST(CubSortTest, Floats) { ExpectSortedKeys<float>(); }

TEST(CubSortTest, PairsFromTheLargestInStableOrder) {
  for (const size_t size : Sizes()) {
    SCOPED_TRACE(size);
    const auto keys = RandomValues<uint16_t>(size, 300);
    std::vector<uint32_t> places(size);
    for (size_t i = 0; i < size; ++i) places[i] = static_cast<uint32_t>(i);
    const Array<uint16_t> keys_in(keys), keys_out(size);
    const Array<uint32_t> in(places), out(size);
    RunCub([&](void* memory, size_t& bytes) {
      return cub::DeviceRadixSort::SortPairsDescending(memory, bytes, keys_in.data(),
                                                       keys_out.data(), in.data(), out.data(),
                                                       static_cast<int>(size));
    });
    std::stable_sort(places.begin(), places.end(),
                     [&](uint32_t a, uint32_t b) { return keys[a] > keys[b]; });
    EXPECT_EQ(out.Values(), places);
    const auto sorted = keys_out.Values();
    for (size_t i = 0; i < size; ++i) ASSERT_EQ(sorted[i], keys[places[i]]) << i;
  }
}

}  // namespace
}  // namespace brigade::emulator
