#include <cub/device/device_scan.cuh>
#include <numeric>

#include "brigade/tests/emulator/cub/arrays.h"

namespace brigade::emulator {
namespace {

template <typename T>
void ExpectScans() {
  for (const size_t size : Sizes()) {
    SCOPED_TRACE(size);
    const auto values = RandomValues<T>(size, 9);
    const Array<T> in(values), out(size);
    std::vector<T> expected(size);
    RunCub([&](void* memory, size_t& bytes) {
      return cub::DeviceScan::InclusiveSum(memory, bytes, in.data(), out.data(), size);
    });
    std::partial_sum(values.begin(), values.end(), expected.begin(),
                     [](T a, T b) { return static_cast<T>(a + b); });
    EXPECT_EQ(out.Values(), expected);
    RunCub([&](void* memory, size_t& bytes) {
      return cub::DeviceScan::ExclusiveSum(memory, bytes, in.data(), out.data(), size);
    });
    std::exclusive_scan(values.begin(), values.end(), expected.begin(), T{});
    EXPECT_EQ(out.Values(), expected);
  }
}

TEST(CubScanTest, SmallIntegers) { ExpectScans<uint8_t>(); }
TEST(CubScanTest, Integers) { ExpectScans<int32_t>(); }
TEST(CubScanTest, LongIntegers) { ExpectScans<uint64_t>(); }
TEST(CubScanTest, Doubles) { ExpectScans<double>(); }

// Too large for one access: blocks pass it on by a fence and a flag.
struct Affine {
  uint64_t scale = 1, shift = 0;

  bool operator==(const Affine&) const = default;
};
struct Compose {
  __host__ __device__ Affine operator()(const Affine& a, const Affine& b) const {
    return {a.scale * b.scale, a.shift * b.scale + b.shift};
  }
};

TEST(CubScanTest, PairsInOrder) {
  for (const size_t size : Sizes()) {
    SCOPED_TRACE(size);
    std::vector<Affine> values, expected(size);
    for (const uint64_t value : RandomValues<uint64_t>(size)) values.push_back({value | 1, value});
    const Array<Affine> in(values), out(size);
    RunCub([&](void* memory, size_t& bytes) {
      return cub::DeviceScan::InclusiveScan(memory, bytes, in.data(), out.data(), Compose(), size);
    });
    std::inclusive_scan(values.begin(), values.end(), expected.begin(), Compose());
    EXPECT_EQ(out.Values(), expected);
  }
}

}  // namespace
}  // namespace brigade::emulator
