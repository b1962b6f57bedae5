#include <cub/device/device_histogram.cuh>
#include <cub/device/device_transform.cuh>
#include <cuda/std/tuple>

#include "brigade/tests/emulator/cub/arrays.h"

namespace brigade::emulator {
namespace {

TEST(CubHistogramTest, OfEvenBins) {
  for (const size_t size : Sizes()) {
    SCOPED_TRACE(size);
    for (const int bins : {7, 256, 3000}) {
      const auto values = RandomValues<int32_t>(size, 4000);
      const Array<int32_t> in(values), counts(static_cast<size_t>(bins));
      RunCub([&](void* memory, size_t& bytes) {
        return cub::DeviceHistogram::HistogramEven(memory, bytes, in.data(), counts.data(),
                                                   bins + 1, 0, 2 * bins, static_cast<int>(size));
      });
      std::vector<int32_t> expected(static_cast<size_t>(bins));
      for (const int32_t value : values) {
        if (value < 2 * bins) ++expected[static_cast<size_t>(value / 2)];
      }
      EXPECT_EQ(counts.Values(), expected) << bins;
    }
  }
}

TEST(CubHistogramTest, OfGivenBins) {
  const std::vector<float> levels = {-100, -20, -19, 0, 50, 128};
  for (const size_t size : Sizes()) {
    const auto values = RandomValues<float>(size);
    const Array<float> in(values), at(levels);
    const Array<int32_t> counts(5);
    RunCub([&](void* memory, size_t& bytes) {
      return cub::DeviceHistogram::HistogramRange(memory, bytes, in.data(), counts.data(), 6,
                                                  at.data(), static_cast<int>(size));
    });
    std::vector<int32_t> expected(5);
    for (const float value : values) {
      const auto above = std::upper_bound(levels.begin(), levels.end(), value) - levels.begin();
      if (above > 0 && above < 6) ++expected[static_cast<size_t>(above - 1)];
    }
    EXPECT_EQ(counts.Values(), expected);
  }
}

struct Axpy {
  template <typename T>
  __host__ __device__ T operator()(T x, T y) const {
    return static_cast<T>(3 * x + y);
  }
};

template <typename T>
void ExpectTransformed() {
  for (const size_t size : Sizes()) {
    SCOPED_TRACE(size);
    const auto x = RandomValues<T>(size), y = RandomValues<T>(size);
    const Array<T> x_in(x), y_in(y), out(size);
    ASSERT_EQ(cub::DeviceTransform::Transform(cuda::std::make_tuple(x_in.data(), y_in.data()),
                                              out.data(), size, Axpy()),
              cudaSuccess);
    std::vector<T> expected(size);
    std::transform(x.begin(), x.end(), y.begin(), expected.begin(), Axpy());
    EXPECT_EQ(out.Values(), expected);
  }
}

TEST(CubTransformTest, SmallIntegers) { ExpectTransformed<uint8_t>(); }
TEST(CubTransformTest, Floats) { ExpectTransformed<float>(); }
TEST(CubTransformTest, Doubles) { ExpectTransformed<double>(); }

}  // namespace
}  // namespace brigade::emulator
