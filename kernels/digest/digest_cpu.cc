// The digest of a range on the CPU: reads it once, from its first word to its last. From the last
// to the first, as Horner's rule has it, a core had a third of the speed: nothing fetches ahead of
// it there. So inverse powers stand in for powers, and memory is asked for ahead of the loops, into
// the second-level cache.
//
// AVX-512 multiplies 64 bits, so it has sums of a row's words in registers and multiplies these
// from row to row. It loads nothing but the words: loads of a table beside them cost the hardware's
// prefetches (docs/decisions/0020). Other processors multiply 32 bits by 32 at most, or have too
// few registers: they multiply words by the halves of the first powers, which a table has.

#include "brigade/kernels/digest/digest_cpu.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "brigade/kernels/simd.h"

#ifdef __x86_64__
#include <immintrin.h>
#endif

namespace brigade::kernels {
namespace {

// How far ahead, in bytes, lines are asked for; in a list they are the next tensor's, so that all
// lines are to be. 8192 and 16384 took 5 % with AVX-512.
constexpr int64_t kAhead = 12288;

BRIGADE_INLINE void FetchAhead(const unsigned char* at) {
  __builtin_prefetch(at + kAhead, /*rw=*/0, /*locality=*/2);
}

// Powers by the digits of the exponent, of 4 bits.
struct Digits {
  std::array<std::array<uint64_t, 16>, 16> of[2];
};

constexpr Digits MakeDigits() {
  Digits digits = {};
  for (int w = 0; w < 2; ++w) {
    uint64_t base = kDigestBase[w];
    for (auto& place : digits.of[w]) {
      uint64_t power = 1;
      for (uint64_t& entry : place) {
        entry = power;
        power *= base;
      }
      base = power;
    }
  }
  return digits;
}

constexpr Digits kDigits = MakeDigits();

// DigestPower in a quarter of the steps: a list has many tensors of a few words.
uint64_t PowerOf(int w, int64_t word) {
  uint64_t power = 1;
  auto exponent = static_cast<uint64_t>(word);
  for (size_t place = 0; exponent != 0; ++place, exponent >>= 4) {
    power *= kDigits.of[w][place][exponent & 15];
  }
  return power;
}

// 256 words: the tables of 6 KiB stay in the nearest cache.
constexpr int kBlock = 256;

// The first powers of both bases, in halves.
struct alignas(64) Powers {
  uint32_t low[2][kBlock];
  // The low halves of the odd ones, each in the place before its own.
  uint32_t odd[2][kBlock];
  uint32_t high[2][kBlock];
};

constexpr Powers MakePowers() {
  Powers powers = {};
  for (int w = 0; w < 2; ++w) {
    uint64_t power = 1;
    for (int i = 0; i < kBlock; ++i) {
      powers.low[w][i] = static_cast<uint32_t>(power);
      powers.high[w][i] = static_cast<uint32_t>(power >> 32);
      if (i % 2 == 1) powers.odd[w][i - 1] = powers.low[w][i];
      power *= kDigestBase[w];
    }
  }
  return powers;
}

constexpr Powers kPowers = MakePowers();
constexpr uint64_t kBlockPower[2] = {DigestPower(kDigestBase[0], kBlock),
                                     DigestPower(kDigestBase[1], kBlock)};

// The sum of `count` words, a number or a constant of at most a block, as if the first were word 0.
BRIGADE_INLINE TensorDigest SumOfBlock(const unsigned char* data, int count) {
  uint64_t low[2] = {0, 0};
  uint32_t high[2] = {0, 0};
  for (int i = 0; i < count; ++i) {
    uint32_t word;
    std::memcpy(&word, data + 4 * i, sizeof(word));
    low[0] += uint64_t{word} * kPowers.low[0][i];
    low[1] += uint64_t{word} * kPowers.low[1][i];
    high[0] += word * kPowers.high[0][i];
    high[1] += word * kPowers.high[1][i];
  }
  return {{low[0] + (uint64_t{high[0]} << 32), low[1] + (uint64_t{high[1]} << 32)}};
}

// Adds words to a sum, block by block, each times the power of its first word.
struct Blocks {
  TensorDigest sum;
  uint64_t powers[2];

  explicit Blocks(int64_t word) : sum{}, powers{PowerOf(0, word), PowerOf(1, word)} {}

  BRIGADE_INLINE void Add(const TensorDigest& block) {
    for (int w = 0; w < 2; ++w) {
      sum.words[w] += block.words[w] * powers[w];
      powers[w] *= kBlockPower[w];
    }
  }
};

// The sums below are of `count` words from number `word` of the tensor on, at any address.
TensorDigest SumByCompiler(const unsigned char* data, int64_t count, int64_t word) {
  Blocks blocks(word);
  RunSimd([&]() BRIGADE_SIMD_BODY {
    for (; count >= kBlock; count -= kBlock, data += 4 * kBlock) {
      for (int line = 0; line < 4 * kBlock; line += 64) FetchAhead(data + line);
      blocks.Add(SumOfBlock(data, kBlock));
    }
    blocks.Add(SumOfBlock(data, static_cast<int>(count)));
  });
  return blocks.sum;
}

#ifdef __x86_64__

#define BRIGADE_AVX2 __attribute__((target("avx2")))

BRIGADE_AVX2 inline __m256i LoadAvx2(const void* from) {
  return _mm256_loadu_si256(static_cast<const __m256i*>(from));
}

BRIGADE_AVX2 inline uint64_t TotalAvx2(__m256i x) {
  uint64_t lanes[4];
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(lanes), x);
  return lanes[0] + lanes[1] + lanes[2] + lanes[3];
}

// SumOfBlock of a multiple of 8 words. Even and odd words are lanes of 64 bits, whose lower halves
// are multiplied to 64 bits; of the products with high halves the lower 32 bits count.
BRIGADE_AVX2 inline TensorDigest SumOfBlockAvx2(const unsigned char* data, int count) {
  const __m256i zero = _mm256_setzero_si256();
  __m256i even[2] = {zero, zero}, odd[2] = {zero, zero}, high[2] = {zero, zero};
  for (int i = 0; i < count; i += 8) {
    if (i % 16 == 0) FetchAhead(data + 4 * i);
    const __m256i words = LoadAvx2(data + 4 * i);
    const __m256i odd_words = _mm256_srli_epi64(words, 32);
#pragma GCC unroll 2
    for (int w = 0; w < 2; ++w) {
      const __m256i low_powers = LoadAvx2(&kPowers.low[w][i]);
      const __m256i odd_powers = LoadAvx2(&kPowers.odd[w][i]);
      const __m256i high_powers = LoadAvx2(&kPowers.high[w][i]);
      even[w] = _mm256_add_epi64(even[w], _mm256_mul_epu32(words, low_powers));
      odd[w] = _mm256_add_epi64(odd[w], _mm256_mul_epu32(odd_words, odd_powers));
      high[w] = _mm256_add_epi32(high[w], _mm256_mullo_epi32(words, high_powers));
    }
  }
  TensorDigest sum = {};
  for (int w = 0; w < 2; ++w) {
    // The sums of two neighbours are in the lower halves of 64 bits; the upper ones are shifted
    // out.
    const __m256i pairs = _mm256_add_epi32(high[w], _mm256_srli_epi64(high[w], 32));
    sum.words[w] = TotalAvx2(_mm256_add_epi64(even[w], odd[w])) + (TotalAvx2(pairs) << 32);
  }
  return sum;
}

BRIGADE_AVX2 TensorDigest SumByAvx2(const unsigned char* data, int64_t count, int64_t word) {
  Blocks blocks(word);
  for (; count >= kBlock; count -= kBlock, data += 4 * kBlock) {
    blocks.Add(SumOfBlockAvx2(data, kBlock));
  }
  const int rest = static_cast<int>(count % 8), even = static_cast<int>(count) - rest;
  TensorDigest block = SumOfBlockAvx2(data, even);
  for (int i = even; i < even + rest; ++i) {
    uint32_t last;
    std::memcpy(&last, data + 4 * i, sizeof(last));
    for (int w = 0; w < 2; ++w) {
      block.words[w] += last * (kPowers.low[w][i] + (uint64_t{kPowers.high[w][i]} << 32));
    }
  }
  blocks.Add(block);
  return blocks.sum;
}

// A row is 4 vectors of 16 words, whose even and odd ones are lanes of 64 bits.
using RowLanes = uint64_t __attribute__((vector_size(64)));
constexpr int kRowVectors = 4;
constexpr int kRow = 16 * kRowVectors;

// The powers of a row's words, as its lanes lie: [base][vector][odd].
struct alignas(64) RowPowers {
  uint64_t of[2][kRowVectors][2][8];
};

constexpr RowPowers MakeRowPowers() {
  RowPowers powers = {};
  for (int w = 0; w < 2; ++w) {
    for (int i = 0; i < kRow; ++i) {
      powers.of[w][i / 16][i % 2][i % 16 / 2] =
          DigestPower(kDigestBase[w], static_cast<uint64_t>(i));
    }
  }
  return powers;
}

constexpr RowPowers kRowPowers = MakeRowPowers();
// From a row to the one before it.
constexpr uint64_t kRowInverse[2] = {DigestPower(kDigestBase[0], -uint64_t{kRow}),
                                     DigestPower(kDigestBase[1], -uint64_t{kRow})};

#define BRIGADE_AVX512 __attribute__((target("avx512f,avx512dq")))

// Sums of rows up to one, in powers that count from that one.
struct RowSums {
  RowLanes of[2][kRowVectors][2];
};

BRIGADE_AVX512 BRIGADE_SIMD_BODY inline void AddVector(RowLanes words, int v, RowSums& sums) {
#pragma GCC unroll 2
  for (int w = 0; w < 2; ++w) {
    sums.of[w][v][0] = sums.of[w][v][0] * kRowInverse[w] + (words & 0xffffffffu);
    sums.of[w][v][1] = sums.of[w][v][1] * kRowInverse[w] + (words >> 32);
  }
}

BRIGADE_AVX512 BRIGADE_SIMD_BODY inline RowLanes LoadLine(const unsigned char* from) {
  RowLanes line;
  std::memcpy(&line, from, sizeof(line));
  return line;
}

// Adds the next row, of which `mask` has a bit for each word. Those without are 0 and not loaded.
BRIGADE_AVX512 BRIGADE_SIMD_BODY inline void AddSome(const unsigned char* data, uint64_t mask,
                                                     RowSums& sums) {
#pragma GCC unroll 4
  for (int v = 0; v < kRowVectors; ++v) {
    FetchAhead(data + 64 * v);
    const auto of_vector = static_cast<__mmask16>(mask >> (16 * v));
    AddVector(RowLanes(_mm512_maskz_loadu_epi32(of_vector, data + 64 * v)), v, sums);
  }
}

// Adds rows, of which each vector begins `kPlace` of 0 to 3 bytes behind the begin of a line. Words
// in pieces are put together from lines, as loads across two took a third of the speed.
template <int kPlace>
BRIGADE_AVX512 BRIGADE_SIMD_BODY inline void AddRows(const unsigned char* data, int64_t rows,
                                                     RowSums& sums) {
  using Words = uint32_t __attribute__((vector_size(64)));
  // Its last bytes are words of the rows before.
  RowLanes line = kPlace == 0 || rows == 0 ? RowLanes{} : LoadLine(data - kPlace);
  for (; rows > 0; --rows, data += 4 * kRow) {
#pragma GCC unroll 4
    for (int v = 0; v < kRowVectors; ++v) {
      FetchAhead(data + 64 * v);
      if constexpr (kPlace == 0) {
        AddVector(LoadLine(data + 64 * v), v, sums);
      } else {
        const RowLanes next = LoadLine(data - kPlace + 64 * (v + 1));
        const auto second =
            Words(_mm512_maskz_alignr_epi32(0xffff, __m512i(next), __m512i(line), 1));
        AddVector(RowLanes(Words(line) >> (8 * kPlace) | second << (32 - 8 * kPlace)), v, sums);
        line = next;
      }
    }
  }
}

BRIGADE_AVX512 TensorDigest SumByAvx512(const unsigned char* data, int64_t count, int64_t word) {
  RowSums sums = {};
  // The first row begins with the words of its first line, there or not, so that lines are loaded.
  const auto before = static_cast<int>(reinterpret_cast<uintptr_t>(data) % 64 / 4);
  data -= 4 * before;
  count += before;
  word -= before;
  const auto place = static_cast<int>(reinterpret_cast<uintptr_t>(data) % 4);
  uint64_t mask = ~uint64_t{0} << before;
  const auto advance = [&](int64_t rows) {
    mask = ~uint64_t{0};
    data += 4 * kRow * rows;
    count -= kRow * rows;
    word += kRow * rows;
  };
  if (count > kRow) {
    AddSome(data, mask, sums);
    advance(1);
    // One word at least is left, and where words are in pieces the whole line that has the last.
    const int64_t rows = std::max<int64_t>(0, count - (place == 0 ? 1 : 16)) / kRow;
    if (place == 0) AddRows<0>(data, rows, sums);
    if (place == 1) AddRows<1>(data, rows, sums);
    if (place == 2) AddRows<2>(data, rows, sums);
    if (place == 3) AddRows<3>(data, rows, sums);
    advance(rows);
  }
  if (count > kRow) {
    AddSome(data, mask, sums);
    advance(1);
  }
  AddSome(data, mask & (~uint64_t{0} >> (kRow - count)), sums);
  TensorDigest sum = {};
#pragma GCC unroll 2
  for (int w = 0; w < 2; ++w) {
    RowLanes total = {};
#pragma GCC unroll 4
    for (int v = 0; v < kRowVectors; ++v) {
#pragma GCC unroll 2
      for (int k = 0; k < 2; ++k) {
        RowLanes powers;
        std::memcpy(&powers, kRowPowers.of[w][v][k], sizeof(powers));
        total += sums.of[w][v][k] * powers;
      }
    }
    uint64_t lanes[8];
    std::memcpy(lanes, &total, sizeof(lanes));
    for (const uint64_t lane : lanes) sum.words[w] += lane;
    sum.words[w] *= PowerOf(w, word);
  }
  return sum;
}

#undef BRIGADE_AVX512
#undef BRIGADE_AVX2
#endif  // __x86_64__

TensorDigest SumOfWords(const unsigned char* data, int64_t count, int64_t word) {
  if (count == 0) return {};
#ifdef __x86_64__
  switch (CurrentSimdTarget()) {
    case SimdTarget::kAvx512:
      return SumByAvx512(data, count, word);
    case SimdTarget::kAvx2:
      return SumByAvx2(data, count, word);
    default:
      break;
  }
#endif
  return SumByCompiler(data, count, word);
}

void Add(const TensorDigest& part, TensorDigest& sum) {
  for (int w = 0; w < 2; ++w) sum.words[w] += part.words[w];
}

// Up to four bytes, from byte `place` of a word on.
TensorDigest SumOfBytes(const unsigned char* data, int count, int place, int64_t word) {
  if (count == 0) return {};
  const uint64_t bytes = DigestBytes(data, count, place);
  return {{bytes * PowerOf(0, word), bytes * PowerOf(1, word)}};
}

}  // namespace

TensorDigest DigestRange(const DigestSegment& segment, int64_t begin, int64_t end) {
  TensorDigest sum = {};
  ForEachDigestRun(segment, begin, end, [&](const DigestRun& run) {
    const int place = static_cast<int>(run.first % 4);
    // The bytes before the first whole word, and behind the last one.
    const int head = place == 0 ? 0 : static_cast<int>(run.size < 4 - place ? run.size : 4 - place);
    const int64_t words = (run.size - head) / 4;
    const int tail = static_cast<int>((run.size - head) % 4);
    const int64_t word = run.first / 4;
    const int64_t first = word + (head > 0 ? 1 : 0);
    const unsigned char* const data = run.data + head;
    Add(SumOfBytes(run.data, head, place, word), sum);
    Add(SumOfWords(data, words, first), sum);
    Add(SumOfBytes(data + 4 * words, tail, 0, first + words), sum);
  });
  return sum;
}

}  // namespace brigade::kernels
