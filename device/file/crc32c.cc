#include "brigade/device/file/crc32c.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <iterator>

#include "brigade/device/file/crc32c_methods.h"

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_acle.h>
#include <sys/auxv.h>
#endif

namespace brigade::device {
namespace {

// A sum is a polynomial over GF(2) modulo P, of degree 32; bit 31 is the coefficient of x^0. The
// sum of a string is that of its bytes behind 32 ones, with all bits turned.
constexpr uint32_t kP = 0x82f63b78;
constexpr uint32_t kOne = 0x80000000;

constexpr uint32_t TimesX(uint32_t a) { return a >> 1 ^ ((a & 1) != 0 ? kP : 0); }

constexpr uint32_t Times(uint32_t a, uint32_t b) {
  uint32_t product = 0;
  for (uint32_t bit = kOne; bit != 0; bit >>= 1) {
    if ((b & bit) != 0) product ^= a;
    a = TimesX(a);
  }
  return product;
}

// x^(8 bytes + bits).
constexpr uint32_t PowerOfX(uint64_t bytes, int bits = 0) {
  uint32_t power = kOne, square = kOne;
  for (int i = 0; i < bits; ++i) power = TimesX(power);
  for (int i = 0; i < 8; ++i) square = TimesX(square);
  for (; bytes != 0; bytes >>= 1) {
    if ((bytes & 1) != 0) power = Times(power, square);
    square = Times(square, square);
  }
  return power;
}

// tables[k][b]: byte b with k bytes behind it.
using Tables = std::array<std::array<uint32_t, 256>, 8>;
constexpr Tables MakeTables() {
  Tables tables = {};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t sum = byte;
    for (size_t k = 0; k < 8; ++k) {
      for (int i = 0; i < 8; ++i) sum = TimesX(sum);
      tables[k][byte] = sum;
    }
  }
  return tables;
}
constexpr Tables kTables = MakeTables();

constexpr uint32_t SumByTables(absl::string_view bytes, uint32_t sum) {
  for (; bytes.size() >= 8; bytes.remove_prefix(8)) {
    uint32_t next = 0;
    for (size_t i = 0; i < 8; ++i, sum >>= 8) {
      next ^= kTables[7 - i][(sum ^ static_cast<unsigned char>(bytes[i])) & 0xff];
    }
    sum = next;
  }
  for (const char byte : bytes) {
    sum = sum >> 8 ^ kTables[0][(sum ^ static_cast<unsigned char>(byte)) & 0xff];
  }
  return sum;
}
// RFC 3720's.
static_assert(~SumByTables("123456789", 0xffffffff) == 0xe3069283);

#if defined(__x86_64__)
#define BRIGADE_HAS_CRC32 1
#define BRIGADE_WITH_CRC32 __attribute__((target("sse4.2")))
BRIGADE_WITH_CRC32 inline uint64_t Add8(uint64_t sum, uint64_t word) {
  return _mm_crc32_u64(sum, word);
}
BRIGADE_WITH_CRC32 inline uint32_t Add1(uint32_t sum, char byte) {
  return _mm_crc32_u8(sum, static_cast<unsigned char>(byte));
}
bool HasInstruction() { return __builtin_cpu_supports("sse4.2") != 0; }
#elif defined(__aarch64__)
#define BRIGADE_HAS_CRC32 1
#define BRIGADE_WITH_CRC32 __attribute__((target("+crc")))
BRIGADE_WITH_CRC32 inline uint64_t Add8(uint64_t sum, uint64_t word) {
  return __crc32cd(static_cast<uint32_t>(sum), word);
}
BRIGADE_WITH_CRC32 inline uint32_t Add1(uint32_t sum, char byte) {
  return __crc32cb(sum, static_cast<unsigned char>(byte));
}
bool HasInstruction() { return (getauxval(AT_HWCAP) & HWCAP_CRC32) != 0; }
#else
#define BRIGADE_HAS_CRC32 0
#endif

#if BRIGADE_HAS_CRC32
uint64_t Load(const char* from) {
  uint64_t word;
  std::memcpy(&word, from, sizeof(word));
  return word;
}

// Of each of three streams: both levels of caches keep them, and joining the streams costs two
// products, 3 % of the time.
constexpr size_t kStreamBytes = 8192;
// Of a cache.
constexpr size_t kLineBytes = 64;
constexpr uint32_t kOverOne = PowerOfX(kStreamBytes), kOverTwo = PowerOfX(2 * kStreamBytes);

// The instruction takes a cycle and gives its result after three: three streams take as long as
// one. Their sums have 64 bits, as it gives them: to cut them short in each turn may take a cycle.
BRIGADE_WITH_CRC32 uint32_t SumByInstruction(absl::string_view bytes, uint32_t sum) {
  const char* at = bytes.data();
  const char* const end = at + bytes.size();
  uint64_t first = sum;
  for (; static_cast<size_t>(end - at) >= 3 * kStreamBytes; at += 3 * kStreamBytes) {
    uint64_t second = 0, third = 0;
    // From memory twice as fast with prefetches: a stream is too short for the processor's own.
    const char* const next =
        at + (static_cast<size_t>(end - at) >= 6 * kStreamBytes ? 3 * kStreamBytes : 0);
    for (size_t line = 0; line < kStreamBytes; line += kLineBytes) {
      for (size_t stream = 0; stream < 3; ++stream) {
        __builtin_prefetch(next + line + stream * kStreamBytes, 0, 2);
      }
      for (size_t i = line; i < line + kLineBytes; i += 8) {
        first = Add8(first, Load(at + i));
        second = Add8(second, Load(at + i + kStreamBytes));
        third = Add8(third, Load(at + i + 2 * kStreamBytes));
      }
    }
    first = Times(static_cast<uint32_t>(first), kOverTwo) ^
            Times(static_cast<uint32_t>(second), kOverOne) ^ third;
  }
  for (; end - at >= 8; at += 8) first = Add8(first, Load(at));
  sum = static_cast<uint32_t>(first);
  for (; at < end; ++at) sum = Add1(sum, *at);
  return sum;
}
#endif

#if defined(__x86_64__)
#define BRIGADE_WITH_PRODUCTS __attribute__((target("avx512f,vpclmulqdq,sse4.2")))

// What a product without carries multiplies the half of a lane by that is moved by `bytes` bytes:
// of 64 bits the lowest is the coefficient of x^63, and the product is one bit further up.
constexpr int64_t FactorOf(uint64_t bytes) {
  return static_cast<int64_t>(uint64_t{PowerOfX(bytes - 1, 7)} << 32);
}

constexpr size_t kVectorBytes = 64;

// Four lanes of 128 bits each, moved by `kBytes` bytes, modulo P, and what lies there.
template <size_t kBytes>
BRIGADE_WITH_PRODUCTS inline __m512i Fold(__m512i lanes, __m512i next) {
  // The first half is the earlier one.
  constexpr int64_t kFirst = FactorOf(kBytes + 8), kSecond = FactorOf(kBytes);
  const __m512i factors = _mm512_set4_epi64(kSecond, kFirst, kSecond, kFirst);
  constexpr int kXorOfThree = 0x96;
  return _mm512_ternarylogic_epi64(_mm512_clmulepi64_epi128(lanes, factors, 0x00),
                                   _mm512_clmulepi64_epi128(lanes, factors, 0x11), next,
                                   kXorOfThree);
}
BRIGADE_WITH_PRODUCTS inline __m512i Vector(const char* from) { return _mm512_loadu_si512(from); }

// Carries 256 bytes along, to which the next ones are added; the instruction sums the last 64. Four
// vectors, since a product takes four cycles.
//
// Source       Gopal and others, "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ
//              Instruction", Intel, 2009.
BRIGADE_WITH_PRODUCTS uint32_t SumByProducts(absl::string_view bytes, uint32_t sum) {
  constexpr size_t kStep = 4 * kVectorBytes;
  const size_t steps = bytes.size() / kStep;
  if (steps == 0) return SumByInstruction(bytes, sum);
  const char* at = bytes.data();
  const char* const end = at + steps * kStep;
  __m512i a = _mm512_xor_si512(Vector(at),
                               _mm512_zextsi128_si512(_mm_cvtsi32_si128(static_cast<int>(sum))));
  __m512i b = Vector(at + kVectorBytes), c = Vector(at + 2 * kVectorBytes),
          d = Vector(at + 3 * kVectorBytes);
  for (at += kStep; at < end; at += kStep) {
    a = Fold<kStep>(a, Vector(at));
    b = Fold<kStep>(b, Vector(at + kVectorBytes));
    c = Fold<kStep>(c, Vector(at + 2 * kVectorBytes));
    d = Fold<kStep>(d, Vector(at + 3 * kVectorBytes));
  }
  char last[kVectorBytes];
  _mm512_storeu_si512(last, Fold<kVectorBytes>(Fold<kVectorBytes>(Fold<kVectorBytes>(a, b), c), d));
  return SumByInstruction(bytes.substr(steps * kStep), SumByInstruction({last, sizeof(last)}, 0));
}
bool HasProducts() {
  return HasInstruction() && __builtin_cpu_supports("avx512f") != 0 &&
         __builtin_cpu_supports("vpclmulqdq") != 0;
}
#endif

// The fastest one first.
constexpr Crc32cMethod kMethods[] = {
#if defined(__x86_64__)
    {"products without carries", HasProducts, SumByProducts},
#endif
#if BRIGADE_HAS_CRC32
    {"instruction", HasInstruction, SumByInstruction},
#endif
    {"tables", [] { return true; }, SumByTables},
};

}  // namespace

absl::Span<const Crc32cMethod> Crc32cMethods() { return kMethods; }

uint32_t Crc32c(absl::string_view bytes, uint32_t crc) {
  static const Crc32cMethod& method = *std::find_if(
      std::begin(kMethods), std::end(kMethods), [](const auto& each) { return each.is_there(); });
  return ~method.sum(bytes, ~crc);
}

uint32_t CombineCrc32c(uint32_t first, uint32_t second, uint64_t second_bytes) {
  return Times(first, PowerOfX(second_bytes)) ^ second;
}

}  // namespace brigade::device
