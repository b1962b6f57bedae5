// Arithmetic on fp16 and bf16 beside exact sums of 113 bits, and the approximations and the packed
// conversions that kernels with tensor cores are full of.

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "brigade/emulator/ptx/arithmetic.h"
#include "brigade/tests/emulator/ptx/run_ptx.h"
#include "brigade/tests/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::emulator {
namespace {

using ::testing::IsEmpty;

__extension__ using Exact = __float128;

constexpr int kThreads = 1024;

// op %d, %s0, %s1, %s2 on words, or with them in registers of 16 bits.
std::vector<uint32_t> Compute(const std::string& op, int sources, bool is_narrow,
                              const std::array<std::vector<uint32_t>, 3>& in) {
  std::string text = absl::StrCat(
      kPtxHead,
      ".visible .entry op(.param .u64 p0, .param .u64 p1, .param .u64 p2, .param .u64 out)",
      "\n{\n.reg .b16 %h<4>;\n.reg .b32 %r<9>, %s<4>;\n.reg .b64 %a<9>;\n",
      "mov.u32 %r0, %tid.x;\nmul.wide.u32 %a5, %r0, 4;\n");
  for (int i = 0; i < 3; ++i) {
    absl::StrAppend(&text, "ld.param.u64 %a", i, ", [p", i, "];\nadd.s64 %a", i, ", %a", i,
                    ", %a5;\nld.global.u32 %s", i, ", [%a", i, "];\ncvt.u16.u32 %h", i, ", %s", i,
                    ";\n");
  }
  const char name = is_narrow ? 'h' : 's';
  absl::StrAppend(&text, "ld.param.u64 %a3, [out];\nadd.s64 %a3, %a3, %a5;\n", op, " %",
                  std::string(1, name), "3");
  for (int i = 0; i < sources; ++i) absl::StrAppend(&text, ", %", std::string(1, name), i);
  absl::StrAppend(&text, ";\n", is_narrow ? "cvt.u32.u16 %s3, %h3;\n" : "",
                  "st.global.u32 [%a3], %s3;\nret;\n}\n");
  auto device = PtxDevice::Create(text);
  EXPECT_OK(device) << text;
  if (!device.ok()) return {};
  std::vector<uint64_t> parameters;
  for (const std::vector<uint32_t>& each : in) {
    parameters.push_back((*device)->Upload(each, "source"));
  }
  parameters.push_back((*device)->Upload(std::vector<uint32_t>(kThreads), "out"));
  LaunchOptions options;
  options.block.x = kThreads;
  auto result = (*device)->Run("op", parameters, options);
  EXPECT_OK(result);
  if (!result.ok()) return {};
  EXPECT_THAT(result->findings, IsEmpty());
  return (*device)->Download<uint32_t>(parameters.back(), kThreads);
}

struct Format {
  const char* name;
  int infinity;
  float (*read)(uint16_t);
};
constexpr Format kFormats[] = {{"f16", 0x7c00, HalfToFloat}, {"bf16", 0x7f80, BFloat16ToFloat}};

// The number of the format that is nearest to `exact`: its bits. Of two the even one.
uint16_t Nearest(const Format& format, Exact exact, bool zero_is_negative) {
  const bool is_negative = exact < 0 || (exact == 0 && zero_is_negative);
  if (exact < 0) exact = -exact;
  // By halving: magnitudes ascend with their bits. Beyond the largest one a step more is infinity.
  int low = 0, high = format.infinity;
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    (Exact{format.read(static_cast<uint16_t>(middle))} <= exact ? low : high) = middle;
  }
  const auto value = [&](int bits) {
    const Exact below = format.read(static_cast<uint16_t>(bits - 1));
    if (bits < format.infinity) return Exact{format.read(static_cast<uint16_t>(bits))};
    return below + (below - Exact{format.read(static_cast<uint16_t>(bits - 2))});
  };
  const Exact down = exact - (low == 0 ? Exact{0} : value(low)), up = value(high) - exact;
  const int nearest = down < up || (down == up && low % 2 == 0) ? low : high;
  return static_cast<uint16_t>(nearest | (is_negative ? 0x8000 : 0));
}

// Pairs of numbers of like size, so that sums cancel and round, and any others; bf16 without those
// whose products 113 bits do not hold.
std::vector<uint32_t> Halves(const Format& format, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<uint32_t> values;
  const bool is_half = format.infinity == 0x7c00;
  const uint32_t one = is_half ? 0x3c00 : 0x3f80, range = is_half ? 0x1800 : 0x0800;
  const auto number = [&](int i) -> uint32_t {
    const auto sign = static_cast<uint32_t>(random() % 2 << 15);
    if (is_half && i % 4 == 0) return sign | static_cast<uint32_t>(random() % 0x7c00);
    if (i % 16 == 1) return sign;
    if (i % 16 == 2) return sign | (one & 0x7c00);
    return sign | (one - range / 2 + static_cast<uint32_t>(random() % range));
  };
  for (int i = 0; i < kThreads; ++i) values.push_back(number(i) | number(i / 3) << 16);
  return values;
}

TEST(HalfTest, ArithmeticIsRoundedOnce) {
  struct Op {
    const char* name;
    int sources;
    Exact (*run)(Exact, Exact, Exact);
    bool (*zero_is_negative)(bool, bool, bool);
  };
  const Op ops[] = {
      {"add", 2, [](Exact a, Exact b, Exact) { return a + b; },
       [](bool a, bool b, bool) { return a && b; }},
      {"sub", 2, [](Exact a, Exact b, Exact) { return a - b; },
       [](bool a, bool b, bool) { return a && !b; }},
      {"mul", 2, [](Exact a, Exact b, Exact) { return a * b; },
       [](bool a, bool b, bool) { return a != b; }},
      {"fma.rn", 3, [](Exact a, Exact b, Exact c) { return a * b + c; },
       [](bool a, bool b, bool c) { return (a != b) && c; }},
      {"min", 2, [](Exact a, Exact b, Exact) { return a < b ? a : b; },
       [](bool a, bool b, bool) { return a || b; }},
      {"max", 2, [](Exact a, Exact b, Exact) { return a < b ? b : a; },
       [](bool a, bool b, bool) { return a && b; }},
      {"neg", 1, [](Exact a, Exact, Exact) { return -a; }, [](bool a, bool, bool) { return !a; }},
  };
  for (const Format& format : kFormats) {
    std::array in = {Halves(format, 1), Halves(format, 2), Halves(format, 3)};
    // A product in the middle between two numbers, and a little more or less: less than float
    // holds beside it and, of bf16, less than double does.
    const bool is_half = format.infinity == 0x7c00;
    const uint32_t next_to_one = is_half ? 0x3c01 : 0x3f81,
                   one_and_a_half = is_half ? 0x3e00 : 0x3fc0;
    const uint32_t little = is_half ? 0x0001 : 0x0d80, negative = 0x8000;
    for (size_t i = 0; i < 4; ++i) {
      in[0][i] = next_to_one * 0x10001;
      in[1][i] = (one_and_a_half | (i < 2 ? 0 : negative)) * 0x10001;
      in[2][i] = (little | (i % 2 == 0 ? 0 : negative)) * 0x10001;
    }
    for (const Op& op : ops) {
      SCOPED_TRACE(absl::StrCat(op.name, " ", format.name));
      const auto expected = [&](size_t i, int part) {
        std::array<uint16_t, 3> bits;
        for (size_t s = 0; s < 3; ++s) bits[s] = static_cast<uint16_t>(in[s][i] >> (16 * part));
        const auto value = [&](size_t s) { return Exact{format.read(bits[s])}; };
        const auto sign = [&](size_t s) { return bits[s] >> 15 != 0; };
        return uint32_t{Nearest(format, op.run(value(0), value(1), value(2)),
                                op.zero_is_negative(sign(0), sign(1), sign(2)))};
      };
      const std::vector<uint32_t> one =
          Compute(absl::StrCat(op.name, ".", format.name), op.sources, true, in);
      const std::vector<uint32_t> two =
          Compute(absl::StrCat(op.name, ".", format.name, "x2"), op.sources, false, in);
      ASSERT_EQ(one.size(), size_t{kThreads});
      ASSERT_EQ(two.size(), size_t{kThreads});
      for (size_t i = 0; i < kThreads; ++i) {
        ASSERT_EQ(one[i], expected(i, 0)) << std::hex << in[0][i] << " " << in[1][i];
        ASSERT_EQ(two[i], expected(i, 0) | expected(i, 1) << 16)
            << std::hex << in[0][i] << " " << in[1][i] << " " << in[2][i];
      }
    }
  }
}

TEST(HalfTest, PairsAreConvertedWithTheFirstOneAbove) {
  std::mt19937 random(3);
  std::array<std::vector<uint32_t>, 3> in;
  for (auto& each : in) {
    for (int i = 0; i < kThreads; ++i) {
      each.push_back(
          static_cast<uint32_t>(i % 2 == 0 ? random() : 0x3f000000 + random() % 0x01000000));
    }
  }
  in[0][0] = in[1][1] = 0x7fc00000;
  for (const Rounding rounding : {Rounding::kNearest, Rounding::kZero}) {
    const std::string name = rounding == Rounding::kNearest ? "rn" : "rz";
    const auto f16 = Compute(absl::StrCat("cvt.", name, ".f16x2.f32"), 2, false, in);
    const auto bf16 = Compute(absl::StrCat("cvt.", name, ".bf16x2.f32"), 2, false, in);
    ASSERT_EQ(f16.size(), size_t{kThreads});
    for (size_t i = 0; i < kThreads; ++i) {
      const float a = std::bit_cast<float>(in[0][i]), b = std::bit_cast<float>(in[1][i]);
      ASSERT_EQ(f16[i] >> 16, FloatToHalf(a, rounding));
      ASSERT_EQ(f16[i] & 0xffff, FloatToHalf(b, rounding));
      ASSERT_EQ(bf16[i] >> 16, FloatToBFloat16(a, rounding));
      ASSERT_EQ(bf16[i] & 0xffff, FloatToBFloat16(b, rounding));
    }
  }
}

TEST(HalfTest, ApproximationsAreTheNearestNumber) {
  std::mt19937 random(4);
  std::array<std::vector<uint32_t>, 3> in;
  const std::vector<uint32_t> edges = {0x00000000, 0x80000000, 0x3f800000, 0x7f800000, 0xff800000,
                                       0x7fc00000, 0x00000001, 0x80000001, 0x42fe0000, 0x43000000,
                                       0xc2fc0000, 0xc2fd0000, 0xc3150000, 0xc3200000};
  for (auto& each : in) {
    each = edges;
    while (each.size() < kThreads) {
      each.push_back(std::bit_cast<uint32_t>(std::ldexp(static_cast<float>(random()), -25) - 64));
    }
  }
  const auto flushed = [](float value) {
    return std::fpclassify(value) == FP_SUBNORMAL ? std::copysign(0.0f, value) : value;
  };
  struct Op {
    const char* name;
    double (*run)(double);
  };
  const Op ops[] = {{"ex2.approx", [](double x) { return std::exp2(x); }},
                    {"lg2.approx", [](double x) { return std::log2(x); }},
                    {"rcp.approx", [](double x) { return 1 / x; }}};
  for (const Op& op : ops) {
    for (const bool flushes : {false, true}) {
      SCOPED_TRACE(absl::StrCat(op.name, " ", flushes));
      const auto out = Compute(absl::StrCat(op.name, flushes ? ".ftz" : "", ".f32"), 1, false, in);
      ASSERT_EQ(out.size(), size_t{kThreads});
      for (size_t i = 0; i < kThreads; ++i) {
        float x = std::bit_cast<float>(in[0][i]);
        if (flushes) x = flushed(x);
        auto expected = static_cast<float>(op.run(x));
        if (flushes) expected = flushed(expected);
        const uint32_t bits = expected != expected ? 0x7fffffff : std::bit_cast<uint32_t>(expected);
        ASSERT_EQ(out[i], bits) << x;
      }
    }
  }
}

TEST(HalfTest, Lop3LooksEachBitUpInATable) {
  std::mt19937 random(6);
  std::array<std::vector<uint32_t>, 3> in;
  for (auto& each : in) {
    for (int i = 0; i < kThreads; ++i) each.push_back(static_cast<uint32_t>(random()));
  }
  // As the PTX ISA says: the table is what the function makes of 0xF0, 0xCC and 0xAA.
  struct Function {
    uint32_t (*run)(uint32_t, uint32_t, uint32_t);
  };
  const Function functions[] = {
      {[](uint32_t a, uint32_t b, uint32_t c) { return (a & b) ^ c; }},
      {[](uint32_t a, uint32_t b, uint32_t c) { return (a | ~b) & c; }},
      {[](uint32_t a, uint32_t b, uint32_t c) { return a ^ b ^ c; }},
  };
  for (const Function& function : functions) {
    const uint32_t table = function.run(0xf0, 0xcc, 0xaa) & 0xff;
    const std::string op = absl::StrCat("{\n.reg .b32 %x;\nlop3.b32 %x, %s0, %s1, %s2, ", table,
                                        ";\nmov.b32 %s0, %x;\n}\nmov.b32");
    const auto out = Compute(op, 1, false, in);
    ASSERT_EQ(out.size(), size_t{kThreads});
    for (size_t i = 0; i < kThreads; ++i) {
      ASSERT_EQ(out[i], function.run(in[0][i], in[1][i], in[2][i])) << table;
    }
  }
}

}  // namespace
}  // namespace brigade::emulator
