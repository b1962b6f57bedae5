#include "brigade/precision/float16.h"

#include <cmath>
#include <cstdint>
#include <cstring>

#include "brigade/tests/spec/formats.h"
#include "gtest/gtest.h"

namespace brigade::precision {
namespace {

float FloatOf(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

uint32_t BitsOf(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
}

template <typename T>
class Float16Test : public ::testing::Test {
 public:
  static constexpr bool kIsHalf = std::is_same_v<T, Half>;
  static constexpr spec::Format kFormat =
      kIsHalf ? spec::Format::kFloat16 : spec::Format::kBFloat16;
  static constexpr int kFractionBits = kIsHalf ? 10 : 7;
  static constexpr int kExponentBits = 15 - kFractionBits;

  // What the bits mean, from the definition of the formats.
  static double Meaning(uint16_t bits) {
    const int fraction = bits & ((1 << kFractionBits) - 1);
    const int exponent = (bits >> kFractionBits) & ((1 << kExponentBits) - 1);
    const int bias = (1 << (kExponentBits - 1)) - 1;
    const double sign = bits >> 15 ? -1.0 : 1.0;
    if (exponent == (1 << kExponentBits) - 1) {
      return fraction == 0 ? sign * INFINITY : std::nan("");
    }
    if (exponent == 0) return sign * std::ldexp(fraction, 1 - bias - kFractionBits);
    return sign * std::ldexp(fraction + (1 << kFractionBits), exponent - bias - kFractionBits);
  }
};

using Types = ::testing::Types<Half, BFloat16>;
TYPED_TEST_SUITE(Float16Test, Types);

TYPED_TEST(Float16Test, WidensEveryValueToWhatItsBitsMean) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const double meaning = this->Meaning(bits);
    const float value = static_cast<float>(TypeParam::FromBits(bits));
    if (std::isnan(meaning)) {
      ASSERT_TRUE(std::isnan(value)) << bits;
    } else {
      ASSERT_EQ(value, meaning) << bits;
      ASSERT_EQ(std::signbit(value), std::signbit(meaning)) << bits;
    }
  }
}

#ifdef __x86_64__
// A user's setting for float's own subnormals, which a half's are not.
TEST(HalfTest, WidensSubnormalsWhereFloatsAreFlushed) {
  for (uint16_t bits = 0; bits < 0x400; ++bits) {
    const uint32_t before = __builtin_ia32_stmxcsr();
    __builtin_ia32_ldmxcsr(before | 0x8040u);  // flush results, and take operands for zeros
    const float value = static_cast<float>(Half::FromBits(bits));
    __builtin_ia32_ldmxcsr(before);
    ASSERT_EQ(value, bits * 0x1p-24f) << bits;
  }
}
#endif

TYPED_TEST(Float16Test, NarrowsEveryValueBackToItself) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const float value = static_cast<float>(TypeParam::FromBits(bits));
    const uint16_t back = TypeParam(value).bits;
    ASSERT_EQ(back, std::isnan(value) ? 0x7fff : bits);
  }
}

// Every value of the format, every tie to its neighbour, and the floats on both sides of both.
TYPED_TEST(Float16Test, RoundsTiesToEvenAndAllElseToTheNearest) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const double here = this->Meaning(bits);
    if (!std::isfinite(here)) continue;
    const double next = this->Meaning(bits + 1);
    const double tie = std::isfinite(next) ? (here + next) / 2 : here * (1 + std::ldexp(1.0, -12));
    for (const double center : {here, tie}) {
      const uint32_t word = BitsOf(static_cast<float>(center));
      for (int step = -2; step <= 2; ++step) {
        const float x = FloatOf(word + step);
        if (std::isnan(x)) continue;
        const float wanted = spec::Round(this->kFormat, x);
        ASSERT_EQ(BitsOf(static_cast<float>(TypeParam(x))), BitsOf(wanted)) << x;
      }
    }
  }
}

TYPED_TEST(Float16Test, RoundsFloatsOfEveryExponentAsTheSpecificationDoes) {
  // A prime step visits all signs, exponents and many fractions.
  for (uint64_t word = 0; word < (uint64_t{1} << 32); word += 4099) {
    const float x = FloatOf(static_cast<uint32_t>(word));
    if (std::isnan(x)) {
      ASSERT_EQ(TypeParam(x).bits, 0x7fff);
    } else {
      ASSERT_EQ(BitsOf(static_cast<float>(TypeParam(x))), BitsOf(spec::Round(this->kFormat, x)));
    }
  }
}

}  // namespace
}  // namespace brigade::precision
