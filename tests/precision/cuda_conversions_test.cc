// Compares our conversions with the ones that CUDA's headers run on the host: all 2^32 floats, in
// classes of which one is for every day.

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cmath>
#include <cstdint>

#include "brigade/precision/float16.h"
#include "gtest/gtest.h"

namespace brigade::precision {
namespace {

template <typename To, typename From>
To BitCast(From from) {
  return __builtin_bit_cast(To, from);
}

// Odd, so that a class has every exponent with every pattern of low bits.
constexpr uint64_t kClasses = 17;

class CudaConversionsTest : public ::testing::TestWithParam<uint64_t> {};

TEST_P(CudaConversionsTest, NarrowsEveryFloatAsCudaDoes) {
  int64_t different = 0;
  for (uint64_t word = GetParam(); word < (uint64_t{1} << 32); word += kClasses) {
    const float x = BitCast<float>(static_cast<uint32_t>(word));
    different += BitCast<uint16_t>(__float2half_rn(x)) != Half(x).bits;
    different += BitCast<uint16_t>(__float2bfloat16_rn(x)) != BFloat16(x).bits;
  }
  EXPECT_EQ(different, 0);
}

INSTANTIATE_TEST_SUITE_P(Class, CudaConversionsTest, ::testing::Range<uint64_t>(0, kClasses));

TEST(CudaConversionsWideningTest, WidensEveryValueAsCudaDoes) {
  const auto expect_same = [](float ours, float cudas) {
    if (std::isnan(cudas)) {
      EXPECT_TRUE(std::isnan(ours));
    } else {
      EXPECT_EQ(BitCast<uint32_t>(ours), BitCast<uint32_t>(cudas));
    }
  };
  for (uint32_t i = 0; i < 0x10000; ++i) {
    const uint16_t bits = static_cast<uint16_t>(i);
    expect_same(static_cast<float>(Half::FromBits(bits)), __half2float(BitCast<__half>(bits)));
    expect_same(static_cast<float>(BFloat16::FromBits(bits)),
                __bfloat162float(BitCast<__nv_bfloat16>(bits)));
  }
}

}  // namespace
}  // namespace brigade::precision
