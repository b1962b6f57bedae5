// The conversions of float16.h on a GPU against the same header on the host: every 16-bit pattern,
// every float.

#include <cmath>
#include <cstdint>
#include <vector>

#include "brigade/precision/float16.h"
#include "brigade/tests/testing/emulated.h"
#include "gtest/gtest.h"

namespace brigade::precision {
namespace {

template <typename T>
__global__ void WidenKernel(float* values) {
  const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  values[i] = static_cast<float>(T::FromBits(static_cast<uint16_t>(i)));
}

// bits[i]: of the float whose word is first + i.
template <typename T>
__global__ void NarrowKernel(uint32_t first, uint16_t* bits) {
  const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  bits[i] = T(__builtin_bit_cast(float, first + i)).bits;
}

constexpr unsigned kThreads = 256;

// `size` elements on the GPU and on the host.
template <typename E>
class Array {
 public:
  explicit Array(int64_t size) : host_(size) {
    EXPECT_EQ(cudaMalloc(&device_, size * sizeof(E)), cudaSuccess);
  }
  ~Array() { EXPECT_EQ(cudaFree(device_), cudaSuccess); }
  Array(const Array&) = delete;
  Array& operator=(const Array&) = delete;

  E* device() { return device_; }
  unsigned blocks() const { return static_cast<unsigned>(host_.size() / kThreads); }

  // Reports the kernel's own errors as well: they come with the copy at the latest.
  void Fetch() {
    ASSERT_EQ(cudaGetLastError(), cudaSuccess);
    ASSERT_EQ(cudaMemcpy(host_.data(), device_, host_.size() * sizeof(E), cudaMemcpyDeviceToHost),
              cudaSuccess);
  }
  const E* host() const { return host_.data(); }

 private:
  std::vector<E> host_;
  E* device_ = nullptr;
};

template <typename T>
class Float16GpuTest : public ::testing::Test {};
using Types = ::testing::Types<Half, BFloat16>;
TYPED_TEST_SUITE(Float16GpuTest, Types);

TYPED_TEST(Float16GpuTest, WidensEveryPatternAsTheHostDoes) {
  Array<float> values(1 << 16);
  WidenKernel<TypeParam><<<values.blocks(), kThreads>>>(values.device());
  ASSERT_NO_FATAL_FAILURE(values.Fetch());
  for (uint32_t i = 0; i < (1u << 16); ++i) {
    const float host = static_cast<float>(TypeParam::FromBits(static_cast<uint16_t>(i)));
    const float gpu = values.host()[i];
    if (std::isnan(host)) {
      ASSERT_TRUE(std::isnan(gpu)) << i;  // with any payload
    } else {
      ASSERT_EQ(__builtin_bit_cast(uint32_t, gpu), __builtin_bit_cast(uint32_t, host)) << i;
    }
  }
}

TYPED_TEST(Float16GpuTest, NarrowsEveryFloatAsTheHostDoes) {
  constexpr uint32_t kChunk = 1 << 20;
  // Of chunks: all, or a sample of every sign and exponent's.
  const uint64_t step = brigade::testing::OnGpuOrEmulator(1, 251);
  Array<uint16_t> bits(kChunk);
  for (uint64_t first = 0; first < (uint64_t{1} << 32); first += step * kChunk) {
    const uint32_t word = static_cast<uint32_t>(first);
    NarrowKernel<TypeParam><<<bits.blocks(), kThreads>>>(word, bits.device());
    ASSERT_NO_FATAL_FAILURE(bits.Fetch());
    // NaN has one pattern here: 0x7fff on both.
    const uint16_t* const gpu = bits.host();
    int64_t different = 0;
    for (uint32_t i = 0; i < kChunk; ++i) {
      different += TypeParam(__builtin_bit_cast(float, word + i)).bits != gpu[i];
    }
    if (different == 0) continue;
    for (uint32_t i = 0; i < kChunk; ++i) {
      const uint16_t host = TypeParam(__builtin_bit_cast(float, word + i)).bits;
      ASSERT_EQ(gpu[i], host) << "float with the word " << word + i << "; " << different
                              << " of this chunk are different";
    }
  }
}

}  // namespace
}  // namespace brigade::precision
