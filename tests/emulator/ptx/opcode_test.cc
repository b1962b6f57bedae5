// Each instruction and type beside an oracle that is not the interpreter: the host's arithmetic in
// the rounding that the opcode says, exact integers of 128 bits, tables, and known answers.

#include <algorithm>
#include <array>
#include <bit>
#include <cfenv>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "brigade/tests/emulator/ptx/run_ptx.h"
#include "brigade/tests/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::emulator {
namespace {

constexpr int64_t kThreads = 128;

// A kernel whose thread i loads element i of each source, runs `body` on %s0, %s1, ... and stores
// %d to element i of the result.
std::string KernelOf(const std::vector<int>& source_bytes, int result_bytes,
                     absl::string_view body) {
  std::string text(kPtxHead);
  absl::StrAppend(&text, ".visible .entry op(");
  for (size_t i = 0; i <= source_bytes.size(); ++i) {
    absl::StrAppend(&text, i > 0 ? ", " : "", ".param .u64 p", i);
  }
  absl::StrAppend(&text, ")\n{\n.reg .pred %p<4>;\n.reg .b32 %r<4>;\n.reg .b64 %a<9>;\n", ".reg .b",
                  8 * result_bytes, " %d;\n");
  for (size_t i = 0; i < source_bytes.size(); ++i) {
    absl::StrAppend(&text, ".reg .b", 8 * source_bytes[i], " %s", i, ";\n");
  }
  absl::StrAppend(&text, "mov.u32 %r0, %tid.x;\n");
  const auto address = [&](size_t i, int bytes) {
    absl::StrAppend(&text, "ld.param.u64 %a", i, ", [p", i, "];\n", "mul.wide.u32 %a8, %r0, ",
                    bytes, ";\nadd.s64 %a", i, ", %a", i, ", %a8;\n");
  };
  for (size_t i = 0; i < source_bytes.size(); ++i) {
    address(i, source_bytes[i]);
    absl::StrAppend(&text, "ld.global.b", 8 * source_bytes[i], " %s", i, ", [%a", i, "];\n");
  }
  address(source_bytes.size(), result_bytes);
  absl::StrAppend(&text, body, "\nst.global.b", 8 * result_bytes, " [%a", source_bytes.size(),
                  "], %d;\nret;\n}\n");
  return text;
}

// The bits of the results, for the bits of the sources.
std::vector<uint64_t> Compute(const std::vector<int>& source_bytes, int result_bytes,
                              absl::string_view body,
                              const std::vector<std::vector<uint64_t>>& sources) {
  const std::string text = KernelOf(source_bytes, result_bytes, body);
  auto device = PtxDevice::Create(text);
  EXPECT_OK(device) << text;
  if (!device.ok()) return {};
  std::vector<uint64_t> parameters;
  const auto upload = [&](const std::vector<uint64_t>& values, int bytes) {
    std::vector<uint8_t> packed;
    for (const uint64_t value : values) {
      for (int i = 0; i < bytes; ++i) packed.push_back(static_cast<uint8_t>(value >> (8 * i)));
    }
    parameters.push_back((*device)->Upload(packed, "array"));
  };
  for (size_t i = 0; i < sources.size(); ++i) upload(sources[i], source_bytes[i]);
  upload(std::vector<uint64_t>(kThreads), result_bytes);
  LaunchOptions options;
  options.block.x = kThreads;
  auto result = (*device)->Run("op", parameters, options);
  EXPECT_OK(result);
  if (!result.ok()) return {};
  for (const Finding& finding : result->findings) ADD_FAILURE() << finding.ToString();
  const auto packed =
      (*device)->Download<uint8_t>(parameters.back(), static_cast<size_t>(kThreads * result_bytes));
  std::vector<uint64_t> results(kThreads);
  for (size_t i = 0; i < packed.size(); ++i) {
    const auto bytes = static_cast<size_t>(result_bytes);
    results[i / bytes] |= uint64_t{packed[i]} << (8 * (i % bytes));
  }
  return results;
}

// Numbers at the edges of every type, and random ones.
std::vector<uint64_t> Integers(int bytes, uint32_t seed) {
  std::mt19937_64 random(seed);
  std::vector<uint64_t> values;
  const uint64_t mask = bytes == 8 ? ~uint64_t{0} : (uint64_t{1} << (8 * bytes)) - 1;
  for (const uint64_t edge : {uint64_t{0}, uint64_t{1}, uint64_t{2}, mask, mask - 1, mask >> 1,
                              (mask >> 1) + 1, uint64_t{31}, uint64_t{32}, uint64_t{64}}) {
    values.push_back(edge & mask);
  }
  while (values.size() < kThreads) values.push_back(random() >> (random() % 60) & mask);
  std::shuffle(values.begin() + 4, values.end(), random);
  return values;
}

std::vector<uint64_t> Floats(uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<uint64_t> values = {0x00000000, 0x80000000, 0x3f800000, 0xbf800000, 0x7f800000,
                                  0xff800000, 0x7fc00000, 0xffc00001, 0x7f800001, 0x00000001,
                                  0x80000001, 0x007fffff, 0x00800000, 0x7f7fffff, 0xff7fffff,
                                  0x34000000, 0x4b000000, 0x4b000001, 0x5f000000, 0xdf000000};
  // Of like exponents, so that sums round and cancel.
  while (values.size() < kThreads / 2) values.push_back(0x3f000000 + random() % 0x02000000);
  while (values.size() < kThreads) values.push_back(random());
  std::shuffle(values.begin(), values.end(), random);
  return values;
}

std::vector<uint64_t> Doubles(uint32_t seed) {
  std::mt19937_64 random(seed);
  std::vector<uint64_t> values = {0,
                                  uint64_t{1} << 63,
                                  0x3ff0000000000000,
                                  0xbff0000000000000,
                                  0x7ff0000000000000,
                                  0xfff0000000000000,
                                  1,
                                  0x000fffffffffffff,
                                  0x0010000000000000,
                                  0x7fefffffffffffff,
                                  0x36a0000000000000,
                                  0x47efffffe0000000};
  while (values.size() < kThreads / 2) {
    values.push_back(0x3fe0000000000000 + random() % 0x0020000000000000);
  }
  while (values.size() < kThreads) {
    // Which NaN comes of a NaN is not specified.
    const uint64_t bits = random();
    if (!std::isnan(std::bit_cast<double>(bits))) values.push_back(bits);
  }
  std::shuffle(values.begin(), values.end(), random);
  return values;
}

float F32(uint64_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits)); }
double F64(uint64_t bits) { return std::bit_cast<double>(bits); }
uint64_t Bits(float value) { return value != value ? 0x7fffffff : std::bit_cast<uint32_t>(value); }
uint64_t Bits(double value) { return std::bit_cast<uint64_t>(value); }

using Oracle = std::function<uint64_t(uint64_t a, uint64_t b, uint64_t c)>;

void ExpectOp(const std::string& op, const std::vector<std::vector<uint64_t>>& sources,
              const std::vector<int>& source_bytes, int result_bytes, const Oracle& oracle) {
  SCOPED_TRACE(op);
  std::vector<std::string> names;
  for (size_t i = 0; i < sources.size(); ++i) names.push_back(absl::StrCat("%s", i));
  const std::vector<uint64_t> results =
      Compute(source_bytes, result_bytes,
              absl::StrCat(op, " %d, ", absl::StrJoin(names, ", "), ";"), sources);
  ASSERT_EQ(results.size(), static_cast<size_t>(kThreads));
  const auto source = [&](size_t s, size_t i) { return s < sources.size() ? sources[s][i] : 0; };
  const uint64_t mask = result_bytes == 8 ? ~uint64_t{0} : (uint64_t{1} << (8 * result_bytes)) - 1;
  for (size_t i = 0; i < results.size(); ++i) {
    ASSERT_EQ(results[i], oracle(source(0, i), source(1, i), source(2, i)) & mask)
        << std::hex << "of " << source(0, i) << ", " << source(1, i) << ", " << source(2, i);
  }
}

// The value of a bit pattern as an integer of `bytes`.
__int128 Value(uint64_t bits, int bytes, bool is_signed) {
  if (!is_signed) return static_cast<__int128>(bits);
  const int unused = 64 - 8 * bytes;
  return static_cast<int64_t>(bits << unused) >> unused;
}

struct IntegerType {
  const char* name;
  int bytes;
  bool is_signed;
};
constexpr IntegerType kIntegers[] = {{"u16", 2, false}, {"s16", 2, true},  {"u32", 4, false},
                                     {"s32", 4, true},  {"u64", 8, false}, {"s64", 8, true}};

TEST(OpcodeTest, IntegersAreExactToTheirWidth) {
  for (const IntegerType& type : kIntegers) {
    const int bytes = type.bytes;
    const auto a = Integers(bytes, 1), b = Integers(bytes, 2), c = Integers(bytes, 3);
    std::vector<uint64_t> divisors = b;
    for (uint64_t& each : divisors) each = each == 0 ? 3 : each;
    const auto value = [&](uint64_t bits) { return Value(bits, bytes, type.is_signed); };
    const auto binary = [&](const std::string& op, const std::vector<uint64_t>& right,
                            const std::function<__int128(__int128, __int128)>& of) {
      ExpectOp(absl::StrCat(op, ".", type.name), {a, right}, {bytes, bytes}, bytes,
               [&](uint64_t x, uint64_t y, uint64_t) {
                 return static_cast<uint64_t>(of(value(x), value(y)));
               });
    };
    binary("add", b, [](__int128 x, __int128 y) { return x + y; });
    binary("sub", b, [](__int128 x, __int128 y) { return x - y; });
    binary("mul.lo", b, [](__int128 x, __int128 y) {
      return static_cast<__int128>(static_cast<unsigned __int128>(x) *
                                   static_cast<unsigned __int128>(y));
    });
    // A product of two unsigned numbers of 64 bits does not fit into a signed one of 128.
    binary("mul.hi", b, [&](__int128 x, __int128 y) {
      if (type.is_signed) return x * y >> (8 * bytes);
      return static_cast<__int128>(
          static_cast<unsigned __int128>(x) * static_cast<unsigned __int128>(y) >> (8 * bytes));
    });
    binary("div", divisors, [](__int128 x, __int128 y) { return x / y; });
    binary("rem", divisors, [](__int128 x, __int128 y) { return x % y; });
    binary("min", b, [](__int128 x, __int128 y) { return x < y ? x : y; });
    binary("max", b, [](__int128 x, __int128 y) { return x < y ? y : x; });
    ExpectOp(absl::StrCat("mad.lo.", type.name), {a, b, c}, {bytes, bytes, bytes}, bytes,
             [&](uint64_t x, uint64_t y, uint64_t z) { return x * y + z; });
    ExpectOp(absl::StrCat("mad.hi.", type.name), {a, b, c}, {bytes, bytes, bytes}, bytes,
             [&](uint64_t x, uint64_t y, uint64_t z) {
               if (type.is_signed) {
                 return static_cast<uint64_t>(value(x) * value(y) >> (8 * bytes)) + z;
               }
               const auto wide = static_cast<unsigned __int128>(x) * y;
               return static_cast<uint64_t>(wide >> (8 * bytes)) + z;
             });
    if (type.is_signed) {
      ExpectOp(absl::StrCat("neg.", type.name), {a}, {bytes}, bytes,
               [&](uint64_t x, uint64_t, uint64_t) { return ~x + 1; });
      ExpectOp(absl::StrCat("abs.", type.name), {a}, {bytes}, bytes,
               [&](uint64_t x, uint64_t, uint64_t) {
                 return static_cast<uint64_t>(value(x) < 0 ? -value(x) : value(x));
               });
    }
    if (bytes < 8) {
      ExpectOp(absl::StrCat("mul.wide.", type.name), {a, b}, {bytes, bytes}, 2 * bytes,
               [&](uint64_t x, uint64_t y, uint64_t) {
                 return static_cast<uint64_t>(value(x) * value(y));
               });
    }
    std::vector<uint64_t> amounts = Integers(4, 4);
    ExpectOp(absl::StrCat("shr.", type.name), {a, amounts}, {bytes, 4}, bytes,
             [&](uint64_t x, uint64_t by, uint64_t) {
               return static_cast<uint64_t>(value(x) >> std::min<uint64_t>(by, 100));
             });
    const std::string bits = absl::StrCat("b", 8 * bytes);
    ExpectOp("shl." + bits, {a, amounts}, {bytes, 4}, bytes,
             [&](uint64_t x, uint64_t by, uint64_t) {
               return static_cast<uint64_t>(static_cast<unsigned __int128>(x)
                                            << std::min<uint64_t>(by, 100));
             });
    ExpectOp("and." + bits, {a, b}, {bytes, bytes}, bytes,
             [](uint64_t x, uint64_t y, uint64_t) { return x & y; });
    ExpectOp("or." + bits, {a, b}, {bytes, bytes}, bytes,
             [](uint64_t x, uint64_t y, uint64_t) { return x | y; });
    ExpectOp("xor." + bits, {a, b}, {bytes, bytes}, bytes,
             [](uint64_t x, uint64_t y, uint64_t) { return x ^ y; });
    ExpectOp("not." + bits, {a}, {bytes}, bytes, [](uint64_t x, uint64_t, uint64_t) { return ~x; });
    ExpectOp("mov." + bits, {a}, {bytes}, bytes, [](uint64_t x, uint64_t, uint64_t) { return x; });
  }
}

TEST(OpcodeTest, IntegersConvertByValueModuloTheWidth) {
  for (const IntegerType& from : kIntegers) {
    for (const IntegerType& to : kIntegers) {
      const auto a = Integers(from.bytes, 5);
      ExpectOp(absl::StrCat("cvt.", to.name, ".", from.name), {a}, {from.bytes}, to.bytes,
               [&](uint64_t x, uint64_t, uint64_t) {
                 return static_cast<uint64_t>(Value(x, from.bytes, from.is_signed));
               });
    }
  }
}

TEST(OpcodeTest, BytesConvertInTheirRegister) {
  // Registers have at least 16 bits; a signed byte fills its one by the sign.
  const auto a = Integers(2, 36);
  ExpectOp("cvt.u16.u8", {a}, {2}, 2, [](uint64_t x, uint64_t, uint64_t) { return x & 0xff; });
  ExpectOp("cvt.s16.s8", {a}, {2}, 2,
           [](uint64_t x, uint64_t, uint64_t) { return static_cast<uint64_t>(Value(x, 1, true)); });
  ExpectOp("cvt.s8.s16", {a}, {2}, 2,
           [](uint64_t x, uint64_t, uint64_t) { return static_cast<uint64_t>(Value(x, 1, true)); });
  ExpectOp("cvt.u8.u16", {a}, {2}, 2, [](uint64_t x, uint64_t, uint64_t) { return x & 0xff; });
  const auto floats = Floats(37);
  ExpectOp("cvt.rzi.s8.f32", {floats}, {4}, 2, [](uint64_t x, uint64_t, uint64_t) {
    const float value = F32(x);
    if (std::isnan(value)) return uint64_t{0};
    return static_cast<uint64_t>(
        static_cast<int64_t>(std::trunc(std::clamp(value, -128.0f, 127.0f))));
  });
}

TEST(OpcodeTest, IntegersSaturateWhereTheOpcodeSaysSo) {
  for (const IntegerType& from : kIntegers) {
    for (const IntegerType& to : kIntegers) {
      const auto a = Integers(from.bytes, 38);
      const __int128 one = 1;
      const __int128 high = (one << (8 * to.bytes - (to.is_signed ? 1 : 0))) - 1;
      const __int128 low = to.is_signed ? -high - 1 : 0;
      ExpectOp(absl::StrCat("cvt.sat.", to.name, ".", from.name), {a}, {from.bytes}, to.bytes,
               [&](uint64_t x, uint64_t, uint64_t) {
                 return static_cast<uint64_t>(
                     std::clamp(Value(x, from.bytes, from.is_signed), low, high));
               });
    }
  }
}

TEST(OpcodeTest, CountsBits) {
  for (const int bytes : {4, 8}) {
    const auto a = Integers(bytes, 6);
    const std::string bits = absl::StrCat("b", 8 * bytes);
    ExpectOp("popc." + bits, {a}, {bytes}, 4, [&](uint64_t x, uint64_t, uint64_t) {
      uint64_t count = 0;
      for (int i = 0; i < 64; ++i) count += x >> i & 1;
      return count;
    });
    ExpectOp("clz." + bits, {a}, {bytes}, 4, [&](uint64_t x, uint64_t, uint64_t) {
      int zeros = 0;
      while (zeros < 8 * bytes && (x >> (8 * bytes - 1 - zeros) & 1) == 0) ++zeros;
      return static_cast<uint64_t>(zeros);
    });
  }
}

TEST(OpcodeTest, PermutesBytes) {
  const auto a = Integers(4, 7), b = Integers(4, 8), c = Integers(4, 9);
  ExpectOp("prmt.b32", {a, b, c}, {4, 4, 4}, 4, [](uint64_t x, uint64_t y, uint64_t selection) {
    const std::array<uint8_t, 8> bytes = {
        static_cast<uint8_t>(x),       static_cast<uint8_t>(x >> 8), static_cast<uint8_t>(x >> 16),
        static_cast<uint8_t>(x >> 24), static_cast<uint8_t>(y),      static_cast<uint8_t>(y >> 8),
        static_cast<uint8_t>(y >> 16), static_cast<uint8_t>(y >> 24)};
    uint64_t result = 0;
    for (int i = 0; i < 4; ++i) {
      const uint64_t nibble = selection >> (4 * i) & 15;
      const uint8_t byte = bytes[nibble % 8];
      result |= uint64_t{nibble >= 8 ? (byte >= 128 ? 255u : 0u) : byte} << (8 * i);
    }
    return result;
  });
}

struct RoundingMode {
  const char* name;
  int host;
};
constexpr RoundingMode kModes[] = {
    {"rn", FE_TONEAREST}, {"rz", FE_TOWARDZERO}, {"rm", FE_DOWNWARD}, {"rp", FE_UPWARD}};

// By the host, in a mode; the volatile keeps the compiler from computing in another one.
template <typename T>
uint64_t Rounded(int mode, const std::function<T()>& compute) {
  std::fesetround(mode);
  volatile T result = compute();
  std::fesetround(FE_TONEAREST);
  return Bits(static_cast<T>(result));
}

TEST(OpcodeTest, FloatsAreRoundedAsTheOpcodeSays) {
  const auto a = Floats(10), b = Floats(11), c = Floats(12);
  for (const RoundingMode& mode : kModes) {
    const auto binary = [&](const char* op, const std::function<float(float, float)>& of) {
      ExpectOp(absl::StrCat(op, ".", mode.name, ".f32"), {a, b}, {4, 4}, 4,
               [&](uint64_t x, uint64_t y, uint64_t) {
                 return Rounded<float>(mode.host, [&] {
                   volatile float left = F32(x), right = F32(y);
                   return of(left, right);
                 });
               });
    };
    binary("add", [](float x, float y) { return x + y; });
    binary("sub", [](float x, float y) { return x - y; });
    binary("mul", [](float x, float y) { return x * y; });
    binary("div", [](float x, float y) { return x / y; });
    ExpectOp(absl::StrCat("fma.", mode.name, ".f32"), {a, b, c}, {4, 4, 4}, 4,
             [&](uint64_t x, uint64_t y, uint64_t z) {
               return Rounded<float>(mode.host, [&] { return std::fma(F32(x), F32(y), F32(z)); });
             });
    ExpectOp(absl::StrCat("sqrt.", mode.name, ".f32"), {a}, {4}, 4,
             [&](uint64_t x, uint64_t, uint64_t) {
               return Rounded<float>(mode.host, [&] {
                 volatile float value = F32(x);
                 return std::sqrt(value);
               });
             });
    ExpectOp(absl::StrCat("rcp.", mode.name, ".f32"), {a}, {4}, 4,
             [&](uint64_t x, uint64_t, uint64_t) {
               return Rounded<float>(mode.host, [&] {
                 volatile float value = F32(x);
                 return 1.0f / value;
               });
             });
  }
}

TEST(OpcodeTest, DoublesAreRoundedAsTheOpcodeSays) {
  const auto a = Doubles(13), b = Doubles(14), c = Doubles(15);
  for (const RoundingMode& mode : kModes) {
    const auto binary = [&](const char* op, const std::function<double(double, double)>& of) {
      ExpectOp(absl::StrCat(op, ".", mode.name, ".f64"), {a, b}, {8, 8}, 8,
               [&](uint64_t x, uint64_t y, uint64_t) {
                 return Rounded<double>(mode.host, [&] {
                   volatile double left = F64(x), right = F64(y);
                   return of(left, right);
                 });
               });
    };
    binary("add", [](double x, double y) { return x + y; });
    binary("sub", [](double x, double y) { return x - y; });
    binary("mul", [](double x, double y) { return x * y; });
    binary("div", [](double x, double y) { return x / y; });
    ExpectOp(absl::StrCat("fma.", mode.name, ".f64"), {a, b, c}, {8, 8, 8}, 8,
             [&](uint64_t x, uint64_t y, uint64_t z) {
               return Rounded<double>(mode.host, [&] { return std::fma(F64(x), F64(y), F64(z)); });
             });
    ExpectOp(absl::StrCat("cvt.", mode.name, ".f32.f64"), {a}, {8}, 4,
             [&](uint64_t x, uint64_t, uint64_t) {
               return Rounded<float>(mode.host, [&] {
                 volatile double value = F64(x);
                 return static_cast<float>(value);
               });
             });
  }
}

TEST(OpcodeTest, ARoundingThatIsWrongShows) {
  // 1 + 2^-24 + 2^-25: above half of the last place.
  const std::vector<uint64_t> one(kThreads, 0x3f800000), more(kThreads, 0x33c00000);
  EXPECT_EQ(Compute({4, 4}, 4, "add.rn.f32 %d, %s0, %s1;", {one, more})[0], 0x3f800001u);
  EXPECT_EQ(Compute({4, 4}, 4, "add.rz.f32 %d, %s0, %s1;", {one, more})[0], 0x3f800000u);
}

TEST(OpcodeTest, FlushesSubnormalNumbersAndSaturates) {
  const std::vector<uint64_t> small(kThreads, 0x00400000), minus_small(kThreads, 0x80400000);
  const std::vector<uint64_t> one(kThreads, 0x3f800000), two(kThreads, 0x40000000);
  const std::vector<uint64_t> nan(kThreads, 0x7fc00000), zero(kThreads, 0);
  const auto first = [&](absl::string_view body, const std::vector<uint64_t>& a,
                         const std::vector<uint64_t>& b) {
    return Compute({4, 4}, 4, body, {a, b})[0];
  };
  EXPECT_EQ(first("add.rn.f32 %d, %s0, %s1;", small, zero), 0x00400000u);
  EXPECT_EQ(first("add.rn.ftz.f32 %d, %s0, %s1;", small, zero), 0u);
  EXPECT_EQ(first("mul.rn.ftz.f32 %d, %s0, %s1;", minus_small, one), 0x80000000u);
  EXPECT_EQ(first("add.rn.sat.f32 %d, %s0, %s1;", one, two), 0x3f800000u);
  EXPECT_EQ(first("sub.rn.sat.f32 %d, %s0, %s1;", one, two), 0u);
  EXPECT_EQ(first("add.rn.sat.f32 %d, %s0, %s1;", nan, one), 0u);
}

TEST(OpcodeTest, MinimaAndMaximaKnowNanAndTheSignOfZero) {
  constexpr uint64_t kNan = 0x7fc00000, kOne = 0x3f800000, kZero = 0, kMinusZero = 0x80000000;
  const auto first = [&](absl::string_view op, uint64_t a, uint64_t b) {
    return Compute({4, 4}, 4, absl::StrCat(op, ".f32 %d, %s0, %s1;"),
                   {std::vector<uint64_t>(kThreads, a), std::vector<uint64_t>(kThreads, b)})[0];
  };
  for (const absl::string_view op : {"min", "max"}) {
    EXPECT_EQ(first(op, kNan, kOne), kOne);
    EXPECT_EQ(first(op, kOne, kNan), kOne);
    EXPECT_EQ(first(op, kNan, kNan), 0x7fffffffu);
  }
  EXPECT_EQ(first("min", kZero, kMinusZero), kMinusZero);
  EXPECT_EQ(first("min", kMinusZero, kZero), kMinusZero);
  EXPECT_EQ(first("max", kZero, kMinusZero), kZero);
  EXPECT_EQ(first("max", kMinusZero, kZero), kZero);
}

TEST(OpcodeTest, ComparesNumbersAndNans) {
  const auto a = Floats(16);
  std::vector<uint64_t> b = Floats(17);
  for (size_t i = 0; i < b.size(); i += 3) b[i] = a[i];
  struct Case {
    const char* name;
    std::function<bool(float, float)> of;
    bool with_nan;
  };
  const Case cases[] = {
      {"eq", [](float x, float y) { return x == y; }, false},
      {"ne", [](float x, float y) { return x != y; }, false},
      {"lt", [](float x, float y) { return x < y; }, false},
      {"le", [](float x, float y) { return x <= y; }, false},
      {"gt", [](float x, float y) { return x > y; }, false},
      {"ge", [](float x, float y) { return x >= y; }, false},
      {"equ", [](float x, float y) { return x == y; }, true},
      {"neu", [](float x, float y) { return x != y; }, true},
      {"ltu", [](float x, float y) { return x < y; }, true},
      {"leu", [](float x, float y) { return x <= y; }, true},
      {"gtu", [](float x, float y) { return x > y; }, true},
      {"geu", [](float x, float y) { return x >= y; }, true},
      {"num", [](float, float) { return true; }, false},
      {"nan", [](float, float) { return false; }, true},
  };
  for (const Case& each : cases) {
    const auto results = Compute({4, 4}, 4,
                                 absl::StrCat("setp.", each.name, ".f32 %p0|%p1, %s0, %s1;\n",
                                              "selp.b32 %d, 1, 0, %p0;\n@%p1 add.s32 %d, %d, 2;\n"),
                                 {a, b});
    for (size_t i = 0; i < results.size(); ++i) {
      const float x = F32(a[i]), y = F32(b[i]);
      const bool wanted = std::isnan(x) || std::isnan(y) ? each.with_nan : each.of(x, y);
      ASSERT_EQ(results[i], wanted ? 1u : 2u) << each.name << " of " << x << " and " << y;
    }
  }
}

TEST(OpcodeTest, ComparesIntegersAndCombinesPredicates) {
  for (const IntegerType& type : kIntegers) {
    const auto a = Integers(type.bytes, 18);
    std::vector<uint64_t> b = Integers(type.bytes, 19);
    for (size_t i = 0; i < b.size(); i += 3) b[i] = a[i];
    for (const char* combination : {"and", "or", "xor"}) {
      const auto results =
          Compute({type.bytes, type.bytes}, 4,
                  absl::StrCat("setp.eq.", type.name, " %p2, %s1, %s0;\nsetp.le.", combination, ".",
                               type.name, " %p0|%p1, %s0, %s1, !%p2;\nselp.b32 %d, 7, 9, %p0;\n",
                               "@%p1 add.s32 %d, %d, 20;\n"),
                  {a, b});
      for (size_t i = 0; i < results.size(); ++i) {
        const __int128 x = Value(a[i], type.bytes, type.is_signed);
        const __int128 y = Value(b[i], type.bytes, type.is_signed);
        const std::string name = combination;
        const auto combine = [&](bool left, bool right) {
          return name == "and" ? left && right : name == "or" ? left || right : left != right;
        };
        ASSERT_EQ(results[i],
                  (combine(x <= y, x != y) ? 7u : 9u) + (combine(x > y, x != y) ? 20u : 0u))
            << type.name << " " << combination;
      }
    }
  }
}

// All numbers of a format of 16 bits, in ascending order; found by their formula.
struct SmallFormat {
  const char* name;
  int exponent_bits;
  int mantissa_bits;

  double ValueOf(uint16_t bits) const {
    const int exponent = bits >> mantissa_bits & ((1 << exponent_bits) - 1);
    const double mantissa = bits & ((1 << mantissa_bits) - 1);
    const int bias = (1 << (exponent_bits - 1)) - 1;
    const double magnitude = exponent == 0 ? std::ldexp(mantissa, 1 - bias - mantissa_bits)
                                           : std::ldexp(std::ldexp(1.0, mantissa_bits) + mantissa,
                                                        exponent - bias - mantissa_bits);
    return bits >> 15 != 0 ? -magnitude : magnitude;
  }
  uint16_t Infinity() const {
    return static_cast<uint16_t>(((1 << exponent_bits) - 1) << mantissa_bits);
  }
  // The positive number at or below a positive value, by bisection.
  uint16_t Below(double magnitude) const {
    uint16_t low = 0, high = Infinity();
    while (high - low > 1) {
      const auto middle = static_cast<uint16_t>((low + high) / 2);
      (ValueOf(middle) <= magnitude ? low : high) = middle;
    }
    return low;
  }
  uint16_t Round(double value, int mode) const {
    if (std::isnan(value)) return 0x7fff;
    const bool negative = std::signbit(value);
    const auto sign = static_cast<uint16_t>(negative ? 0x8000 : 0);
    const double magnitude = std::fabs(value);
    if (std::isinf(magnitude)) return sign | Infinity();
    const uint16_t low = Below(magnitude);
    // The number after the largest one is where infinity would be.
    const double below = ValueOf(low), above = ValueOf(static_cast<uint16_t>(low + 1));
    bool up = false;
    if (mode == FE_TONEAREST) {
      up = magnitude - below > above - magnitude ||
           (magnitude - below == above - magnitude && low % 2 == 1);
    } else if (mode != FE_TOWARDZERO) {
      up = magnitude != below && (mode == FE_DOWNWARD) == negative;
    }
    return static_cast<uint16_t>(sign | (low + (up ? 1 : 0)));
  }
};

TEST(OpcodeTest, SmallFloatsAreTheNearestOfAllNumbers) {
  for (const SmallFormat& format : {SmallFormat{"f16", 5, 10}, SmallFormat{"bf16", 8, 7}}) {
    for (const RoundingMode& mode : kModes) {
      for (uint32_t seed = 20; seed < 28; ++seed) {
        std::vector<uint64_t> a = Floats(seed);
        std::mt19937 random(seed);
        // Halfway between two numbers, and beside it.
        for (size_t i = 0; i < a.size(); i += 2) {
          const auto low = static_cast<uint16_t>(random() % (format.Infinity() - 1));
          const double halfway =
              (format.ValueOf(low) + format.ValueOf(static_cast<uint16_t>(low + 1))) / 2;
          const uint32_t bits = std::bit_cast<uint32_t>(static_cast<float>(halfway));
          a[i] = (bits + random() % 3 - 1) ^ (random() % 2 << 31);
        }
        ExpectOp(absl::StrCat("cvt.", mode.name, ".", format.name, ".f32"), {a}, {4}, 2,
                 [&](uint64_t x, uint64_t, uint64_t) {
                   return uint64_t{format.Round(double{F32(x)}, mode.host)};
                 });
      }
    }
    // Every number of the format.
    for (uint32_t begin = 0; begin < 65536; begin += kThreads) {
      std::vector<uint64_t> a;
      for (uint32_t i = 0; i < kThreads; ++i) a.push_back(begin + i);
      ExpectOp(absl::StrCat("cvt.f32.", format.name), {a}, {2}, 4,
               [&](uint64_t x, uint64_t, uint64_t) {
                 const auto bits = static_cast<uint16_t>(x);
                 if ((bits & 0x7fff) > format.Infinity()) return uint64_t{0x7fffffff};
                 if ((bits & 0x7fff) == format.Infinity()) {
                   return Bits(bits >> 15 != 0 ? -INFINITY : INFINITY);
                 }
                 return Bits(static_cast<float>(format.ValueOf(bits)));
               });
    }
  }
}

TEST(OpcodeTest, FloatsBecomeIntegersInRange) {
  const auto a = Floats(30);
  const auto doubles = Doubles(31);
  struct Case {
    const char* rounding;
    double (*of)(double);
  };
  const Case cases[] = {{"rni", [](double x) { return std::nearbyint(x); }},
                        {"rzi", [](double x) { return std::trunc(x); }},
                        {"rmi", [](double x) { return std::floor(x); }},
                        {"rpi", [](double x) { return std::ceil(x); }}};
  for (const IntegerType& type : kIntegers) {
    if (type.bytes == 2) continue;
    for (const Case& each : cases) {
      const auto wanted = [&](double x) -> uint64_t {
        if (std::isnan(x)) return type.bytes == 8 ? uint64_t{1} << 63 : 0;  // of float
        // Bounds are compared as long double, which holds every integer of 64 bits.
        const long double whole = each.of(x);
        const long double end = std::ldexp(1.0L, 8 * type.bytes - (type.is_signed ? 1 : 0));
        if (whole >= end) return static_cast<uint64_t>(end - 1);
        const long double begin = type.is_signed ? -end : 0.0L;
        if (whole < begin) return static_cast<uint64_t>(static_cast<__int128>(begin));
        return static_cast<uint64_t>(static_cast<__int128>(whole));
      };
      ExpectOp(absl::StrCat("cvt.", each.rounding, ".", type.name, ".f32"), {a}, {4}, type.bytes,
               [&](uint64_t x, uint64_t, uint64_t) { return wanted(F32(x)); });
      ExpectOp(absl::StrCat("cvt.", each.rounding, ".", type.name, ".f64"), {doubles}, {8},
               type.bytes, [&](uint64_t x, uint64_t, uint64_t) { return wanted(F64(x)); });
    }
    // NaN of double has a result of its own.
    EXPECT_EQ(Compute({8}, type.bytes, absl::StrCat("cvt.rzi.", type.name, ".f64 %d, %s0;"),
                      {std::vector<uint64_t>(kThreads, 0x7ff8000000000000)})[0],
              uint64_t{1} << (8 * type.bytes - 1));
    for (const RoundingMode& mode : kModes) {
      const auto integers = Integers(type.bytes, 32);
      ExpectOp(absl::StrCat("cvt.", mode.name, ".f32.", type.name), {integers}, {type.bytes}, 4,
               [&](uint64_t x, uint64_t, uint64_t) {
                 return Rounded<float>(mode.host, [&] {
                   // Exact in 64 bits of mantissa, then rounded once.
                   volatile long double value =
                       static_cast<long double>(Value(x, type.bytes, type.is_signed));
                   return static_cast<float>(value);
                 });
               });
    }
  }
}

TEST(OpcodeTest, ComparesIntegersInEveryWay) {
  for (const IntegerType& type : kIntegers) {
    const auto a = Integers(type.bytes, 40);
    std::vector<uint64_t> b = Integers(type.bytes, 41);
    for (size_t i = 0; i < b.size(); i += 3) b[i] = a[i];
    struct Case {
      const char* name;
      std::function<bool(__int128, __int128)> of;
      bool is_for_signed;
    };
    const Case cases[] = {
        {"eq", [](__int128 x, __int128 y) { return x == y; }, true},
        {"ne", [](__int128 x, __int128 y) { return x != y; }, true},
        {"lt", [](__int128 x, __int128 y) { return x < y; }, true},
        {"le", [](__int128 x, __int128 y) { return x <= y; }, true},
        {"gt", [](__int128 x, __int128 y) { return x > y; }, true},
        {"ge", [](__int128 x, __int128 y) { return x >= y; }, true},
        {"lo", [](__int128 x, __int128 y) { return x < y; }, false},
        {"ls", [](__int128 x, __int128 y) { return x <= y; }, false},
        {"hi", [](__int128 x, __int128 y) { return x > y; }, false},
        {"hs", [](__int128 x, __int128 y) { return x >= y; }, false},
    };
    for (const Case& each : cases) {
      if (type.is_signed && !each.is_for_signed) continue;
      const auto results = Compute({type.bytes, type.bytes}, 4,
                                   absl::StrCat("setp.", each.name, ".", type.name,
                                                " %p0, %s0, %s1;\nselp.b32 %d, 1, 0, %p0;"),
                                   {a, b});
      for (size_t i = 0; i < results.size(); ++i) {
        ASSERT_EQ(results[i], each.of(Value(a[i], type.bytes, type.is_signed),
                                      Value(b[i], type.bytes, type.is_signed))
                                  ? 1u
                                  : 0u)
            << each.name << " " << type.name;
      }
    }
  }
}

TEST(OpcodeTest, PredicatesAreLogic) {
  const auto a = Integers(4, 42), b = Integers(4, 43);
  const auto with = [&](absl::string_view op) {
    return Compute({4, 4}, 4,
                   absl::StrCat("and.b32 %r1, %s0, 1;\nsetp.ne.u32 %p0, %r1, 0;\n",
                                "and.b32 %r1, %s1, 1;\nsetp.ne.u32 %p1, %r1, 0;\n", op,
                                "\nselp.b32 %d, 1, 0, %p2;"),
                   {a, b});
  };
  const auto both = with("and.pred %p2, %p0, %p1;"), any = with("or.pred %p2, %p0, %p1;");
  const auto one = with("xor.pred %p2, %p0, %p1;"), none = with("not.pred %p2, %p0;");
  const auto same = with("mov.pred %p2, !%p1;"), never = with("mov.pred %p2, 0;");
  const auto always = with("mov.pred %p2, -1;");
  for (size_t i = 0; i < a.size(); ++i) {
    const uint64_t x = a[i] & 1, y = b[i] & 1;
    EXPECT_EQ(both[i], x & y);
    EXPECT_EQ(any[i], x | y);
    EXPECT_EQ(one[i], x ^ y);
    EXPECT_EQ(none[i], 1 - x);
    EXPECT_EQ(same[i], 1 - y);
    EXPECT_EQ(never[i], 0u);
    EXPECT_EQ(always[i], 1u);
  }
}

TEST(OpcodeTest, DoublesAndFloatsConvertAndKeepTheirSign) {
  const auto floats = Floats(44), doubles = Doubles(45);
  std::vector<uint64_t> numbers = floats;
  for (uint64_t& each : numbers) each = std::isnan(F32(each)) ? 0x3fc00000 : each;
  ExpectOp("cvt.f64.f32", {numbers}, {4}, 8,
           [](uint64_t x, uint64_t, uint64_t) { return Bits(double{F32(x)}); });
  ExpectOp("neg.f64", {doubles}, {8}, 8,
           [](uint64_t x, uint64_t, uint64_t) { return x ^ uint64_t { 1 } << 63; });
  ExpectOp("abs.f64", {doubles}, {8}, 8,
           [](uint64_t x, uint64_t, uint64_t) { return x & ~(uint64_t{1} << 63); });
  ExpectOp("neg.f32", {numbers}, {4}, 4,
           [](uint64_t x, uint64_t, uint64_t) { return x ^ 0x80000000; });
  ExpectOp("abs.f32", {numbers}, {4}, 4,
           [](uint64_t x, uint64_t, uint64_t) { return x & 0x7fffffff; });
  struct Case {
    const char* rounding;
    double (*of)(double);
  };
  for (const Case& each : {Case{"rni", std::nearbyint}, Case{"rzi", std::trunc},
                           Case{"rmi", std::floor}, Case{"rpi", std::ceil}}) {
    ExpectOp(absl::StrCat("cvt.", each.rounding, ".f32.f32"), {numbers}, {4}, 4,
             [&](uint64_t x, uint64_t, uint64_t) {
               return Bits(static_cast<float>(each.of(double{F32(x)})));
             });
    ExpectOp(absl::StrCat("cvt.", each.rounding, ".f64.f64"), {doubles}, {8}, 8,
             [&](uint64_t x, uint64_t, uint64_t) { return Bits(each.of(F64(x))); });
  }
  for (const IntegerType& type : kIntegers) {
    const auto integers = Integers(type.bytes, 46);
    ExpectOp(absl::StrCat("cvt.rn.f64.", type.name), {integers}, {type.bytes}, 8,
             [&](uint64_t x, uint64_t, uint64_t) {
               // More bits than a double has are rounded once, from a long double that has all.
               return Bits(static_cast<double>(
                   static_cast<long double>(Value(x, type.bytes, type.is_signed))));
             });
  }
}

TEST(OpcodeTest, RootsAndExtremaOfDoubles) {
  auto a = Doubles(47);
  const auto b = Doubles(48);
  ExpectOp("min.f64", {a, b}, {8, 8}, 8, [](uint64_t x, uint64_t y, uint64_t) {
    if (F64(x) == F64(y)) return x >> 63 != 0 ? x : y;
    return F64(x) < F64(y) ? x : y;
  });
  ExpectOp("max.f64", {a, b}, {8, 8}, 8, [](uint64_t x, uint64_t y, uint64_t) {
    if (F64(x) == F64(y)) return x >> 63 != 0 ? y : x;
    return F64(x) < F64(y) ? y : x;
  });
  ExpectOp("rcp.rn.f64", {a}, {8}, 8,
           [](uint64_t x, uint64_t, uint64_t) { return Bits(1 / F64(x)); });
  for (uint64_t& each : a) each &= ~(uint64_t{1} << 63);
  ExpectOp("sqrt.rn.f64", {a}, {8}, 8,
           [](uint64_t x, uint64_t, uint64_t) { return Bits(std::sqrt(F64(x))); });
  // The approximation of a reciprocal: 20 bits of the mantissa, zeros below.
  const auto results = Compute({8}, 8, "rcp.approx.ftz.f64 %d, %s0;", {b});
  for (size_t i = 0; i < b.size(); ++i) {
    const double wanted = 1 / F64(b[i]);
    EXPECT_EQ(results[i] & 0xffffffff, 0u);
    if (std::isnormal(wanted) && std::isnormal(F64(b[i]))) {
      EXPECT_NEAR(F64(results[i]) / wanted, 1, 0x1p-20);
    }
  }
}

TEST(OpcodeTest, NarrowLoadsFillTheirRegister) {
  const std::string text = absl::StrCat(
      kPtxHead,
      ".entry op(.param .u64 p0, .param .u64 p1)\n{\n.reg .b32 %r<4>;\n.reg .b64 %a<9>;\n",
      "mov.u32 %r0, %tid.x;\nld.param.u64 %a0, [p0];\nld.param.u64 %a1, [p1];\n",
      "cvt.u64.u32 %a2, %r0;\nadd.s64 %a0, %a0, %a2;\nmul.wide.u32 %a2, %r0, 8;\n",
      "add.s64 %a1, %a1, %a2;\nld.global.s8 %r1, [%a0];\nld.global.u8 %r2, [%a0];\n",
      "st.global.v2.u32 [%a1], {%r1, %r2};\nret;\n}\n");
  auto device = PtxDevice::Create(text).value();
  std::vector<uint8_t> bytes;
  for (int i = 0; i < kThreads; ++i) bytes.push_back(static_cast<uint8_t>(2 * i + 1));
  const uint64_t in = device->Upload(bytes, "in");
  const uint64_t out = device->Upload(std::vector<int32_t>(2 * kThreads), "out");
  LaunchOptions options;
  options.block.x = kThreads;
  ASSERT_OK(device->Run("op", {in, out}, options));
  const auto results = device->Download<int32_t>(out, 2 * kThreads);
  for (size_t i = 0; i < bytes.size(); ++i) {
    EXPECT_EQ(results[2 * i], static_cast<int8_t>(bytes[i]));
    EXPECT_EQ(results[2 * i + 1], bytes[i]);
  }
}

TEST(OpcodeTest, PacksAndUnpacks) {
  const auto a = Integers(4, 33), b = Integers(4, 34);
  const auto packed = Compute({4, 4}, 8, "mov.b64 %d, {%s0, %s1};", {a, b});
  const auto swapped = Compute(
      {8}, 8, ".reg .b32 %lo, %hi;\nmov.b64 {%lo, %hi}, %s0;\nmov.b64 %d, {%hi, %lo};", {packed});
  const auto high = Compute({8}, 4, "mov.b64 {_, %d}, %s0;", {packed});
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(packed[i], b[i] << 32 | a[i]);
    EXPECT_EQ(swapped[i], a[i] << 32 | b[i]);
    EXPECT_EQ(high[i], b[i]);
  }
}

TEST(OpcodeTest, ShufflesWithinSegments) {
  const auto a = Integers(4, 35);
  struct Case {
    const char* mode;
    uint32_t b, c;
    std::function<int(int)> from;  // -1: out of range
  };
  const Case cases[] = {
      {"bfly", 16, 31, [](int lane) { return lane ^ 16; }},
      {"bfly", 1, 31, [](int lane) { return lane ^ 1; }},
      {"up", 3, 0, [](int lane) { return lane >= 3 ? lane - 3 : -1; }},
      {"down", 5, 31, [](int lane) { return lane + 5 < 32 ? lane + 5 : -1; }},
      {"idx", 9, 31, [](int) { return 9; }},
      // In segments of 8 lanes.
      {"down", 2, (24 << 8) | 31, [](int lane) { return lane % 8 + 2 < 8 ? lane + 2 : -1; }},
      {"up", 2, 24 << 8, [](int lane) { return lane % 8 >= 2 ? lane - 2 : -1; }},
      {"idx", 3, (24 << 8) | 31, [](int lane) { return lane / 8 * 8 + 3; }},
  };
  for (const Case& each : cases) {
    const auto results = Compute({4}, 4,
                                 absl::StrCat("shfl.sync.", each.mode, ".b32 %d|%p1, %s0, ", each.b,
                                              ", ", each.c, ", -1;\n@!%p1 xor.b32 %d, %d, -1;"),
                                 {a});
    for (size_t i = 0; i < results.size(); ++i) {
      const int lane = static_cast<int>(i % 32);
      const int from = each.from(lane);
      const uint64_t wanted = from < 0
                                  ? ~a[i] & 0xffffffff
                                  : a[i - static_cast<size_t>(lane) + static_cast<size_t>(from)];
      ASSERT_EQ(results[i], wanted) << each.mode << " " << each.b << ", " << each.c << ", " << i;
    }
  }
}

TEST(OpcodeTest, Votes) {
  std::vector<uint64_t> a(kThreads);
  for (size_t i = 0; i < a.size(); ++i) a[i] = i < 32 ? 1 : i < 64 ? 0 : i % 2;
  const auto vote = [&](const char* mode) {
    return Compute({4}, 4,
                   absl::StrCat("setp.ne.u32 %p0, %s0, 0;\nvote.sync.", mode,
                                ".pred %p1, %p0, -1;\nselp.b32 %d, 1, 0, %p1;"),
                   {a});
  };
  const auto all = vote("all"), any = vote("any"), uni = vote("uni");
  const auto ballot =
      Compute({4}, 4, "setp.ne.u32 %p0, %s0, 0;\nvote.sync.ballot.b32 %d, %p0, -1;", {a});
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(all[i], i < 32 ? 1u : 0u);
    EXPECT_EQ(any[i], i < 32 || i >= 64 ? 1u : 0u);
    EXPECT_EQ(uni[i], i < 64 ? 1u : 0u);
    EXPECT_EQ(ballot[i], i < 32 ? 0xffffffffu : i < 64 ? 0u : 0xaaaaaaaau);
  }
}

TEST(OpcodeTest, InsertsAndExtractsBits) {
  // Bit by bit, as the ISA describes it.
  for (const int bytes : {4, 8}) {
    const int bits = 8 * bytes;
    const auto a = Integers(bytes, 40), b = Integers(bytes, 41);
    for (const uint64_t first : {0, 1, 5, 31, 32, 63, 64, 200, 257}) {
      for (const uint64_t width : {0, 1, 8, 27, 32, 64, 255, 256}) {
        const auto begin = static_cast<int>(first & 255), count = static_cast<int>(width & 255);
        SCOPED_TRACE(absl::StrCat("from ", first, " ", width, " bits"));
        const auto compute = [&](const std::string& op, const char* sources) {
          return Compute({bytes, bytes}, bytes,
                         absl::StrCat(op, " %d, ", sources, ", ", first, ", ", width, ";"), {a, b});
        };
        const auto inserted = compute(absl::StrCat("bfi.b", bits), "%s0, %s1");
        const auto low = compute(absl::StrCat("bfe.u", bits), "%s0");
        const auto signed_low = compute(absl::StrCat("bfe.s", bits), "%s0");
        for (size_t i = 0; i < a.size(); ++i) {
          const auto bit = [](uint64_t of, int at) { return of >> at & 1; };
          uint64_t insert = b[i], extract = 0, extract_signed = 0;
          const uint64_t sign = count == 0 ? 0 : bit(a[i], std::min(begin + count - 1, bits - 1));
          for (int at = 0; at < bits; ++at) {
            const bool is_there = at < count && begin + at < bits;
            if (is_there) {
              const uint64_t one = uint64_t{1} << (begin + at);
              insert = bit(a[i], at) != 0 ? insert | one : insert & ~one;
            }
            extract |= (is_there ? bit(a[i], begin + at) : 0) << at;
            extract_signed |= (is_there ? bit(a[i], begin + at) : sign) << at;
          }
          ASSERT_EQ(inserted[i], insert) << std::hex << a[i] << " into " << b[i];
          ASSERT_EQ(low[i], extract) << std::hex << a[i];
          ASSERT_EQ(signed_low[i], extract_signed) << std::hex << a[i];
        }
      }
    }
  }
}

TEST(OpcodeTest, ReducesAWarp) {
  const auto a = Integers(4, 42);
  // Of the lanes of each parity by itself.
  const auto expect = [&](const std::string& op,
                          const std::function<uint64_t(uint64_t, uint64_t)>& of) {
    const auto results = Compute(
        {4}, 4,
        absl::StrCat("and.b32 %r1, %r0, 1;\nsetp.eq.u32 %p1, %r1, 0;\n", "@%p1 redux.sync.", op,
                     " %d, %s0, 0x55555555;\n", "@!%p1 redux.sync.", op, " %d, %s0, 0xaaaaaaaa;"),
        {a});
    for (size_t i = 0; i < results.size(); ++i) {
      const size_t first = i / 32 * 32 + i % 2;
      uint64_t wanted = a[first];
      for (size_t other = first + 2; other < first + 32; other += 2) wanted = of(wanted, a[other]);
      ASSERT_EQ(results[i], wanted & 0xffffffff) << op << ", " << i;
    }
  };
  const auto is_less = [](uint64_t x, uint64_t y) {
    return static_cast<int32_t>(x) < static_cast<int32_t>(y);
  };
  expect("add.u32", [](uint64_t x, uint64_t y) { return x + y; });
  expect("add.s32", [](uint64_t x, uint64_t y) { return x + y; });
  expect("min.u32", [](uint64_t x, uint64_t y) { return std::min(x, y); });
  expect("max.u32", [](uint64_t x, uint64_t y) { return std::max(x, y); });
  expect("min.s32", [&](uint64_t x, uint64_t y) { return is_less(x, y) ? x : y; });
  expect("max.s32", [&](uint64_t x, uint64_t y) { return is_less(x, y) ? y : x; });
  expect("and.b32", [](uint64_t x, uint64_t y) { return x & y; });
  expect("or.b32", [](uint64_t x, uint64_t y) { return x | y; });
  expect("xor.b32", [](uint64_t x, uint64_t y) { return x ^ y; });
}

TEST(OpcodeTest, MatchesValuesOfAWarp) {
  for (const int bytes : {4, 8}) {
    // A warp of one value, one of three, and two of others.
    auto a = Integers(bytes, 43);
    for (size_t i = 0; i < 64; ++i) a[i] = i < 32 ? 9 : i % 3;
    const std::string bits = absl::StrCat("b", 8 * bytes);
    const auto any = Compute({bytes}, 4, "match.any.sync." + bits + " %d, %s0, -1;", {a});
    const auto all = Compute(
        {bytes}, 4, "match.all.sync." + bits + " %d|%p1, %s0, -1;\n" + "@%p1 xor.b32 %d, %d, 0xff;",
        {a});
    for (size_t i = 0; i < a.size(); ++i) {
      uint64_t alike = 0;
      for (size_t lane = 0; lane < 32; ++lane) {
        alike |= uint64_t{a[i / 32 * 32 + lane] == a[i]} << lane;
      }
      ASSERT_EQ(any[i], alike) << i;
      ASSERT_EQ(all[i], i < 32 ? 0xffffff00 : 0u) << i;
    }
  }
}

TEST(OpcodeTest, KnowsWhichLanesAreActive) {
  const auto results =
      Compute({4}, 4, "mov.u32 %d, 0;\nsetp.lt.u32 %p1, %r0, 5;\n@%p1 activemask.b32 %d;",
              {Integers(4, 44)});
  for (size_t i = 0; i < results.size(); ++i) EXPECT_EQ(results[i], i < 5 ? 31u : 0u);
}

}  // namespace
}  // namespace brigade::emulator
