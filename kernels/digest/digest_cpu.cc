// The digest of a range on the CPU: reads it once. Blocks of words are multiplied by the first
// powers, which a table has; between blocks the sums are multiplied by one power (Horner's rule,
// from the last block on). Multiplications of 64 bits are what it waits for: AVX-512 has them, AVX2
// makes them of three.

#include "brigade/kernels/digest/digest_cpu.h"

#include <array>
#include <cstring>
#include <type_traits>

#include "brigade/kernels/simd.h"

namespace brigade::kernels {
namespace {

// 256 words: the table of 4 KiB stays in the nearest cache. 1024 are not faster.
constexpr int kBlock = 256;

// The first powers of both bases.
struct Powers {
  std::array<uint64_t, kBlock> of[2];
};

constexpr Powers MakePowers() {
  Powers powers = {};
  for (int w = 0; w < 2; ++w) {
    uint64_t power = 1;
    for (uint64_t& entry : powers.of[w]) {
      entry = power;
      power *= kDigestBase[w];
    }
  }
  return powers;
}

constexpr Powers kPowers = MakePowers();
constexpr uint64_t kBlockPower[2] = {DigestPower(kDigestBase[0], kBlock),
                                     DigestPower(kDigestBase[1], kBlock)};

// The sum of `count` words, a number or a constant of at most a block, from any address on, as if
// the first were word 0.
template <typename Count>
BRIGADE_INLINE TensorDigest SumOfBlock(const unsigned char* data, Count count) {
  uint64_t first = 0, second = 0;
  for (int i = 0; i < count; ++i) {
    uint32_t word;
    std::memcpy(&word, data + 4 * i, sizeof(word));
    first += word * kPowers.of[0][static_cast<size_t>(i)];
    second += word * kPowers.of[1][static_cast<size_t>(i)];
  }
  return {{first, second}};
}

TensorDigest SumOfWords(const unsigned char* data, int64_t count) {
  TensorDigest sum = {};
  if (count == 0) return sum;
  RunSimd([&]() BRIGADE_SIMD_BODY {
    const int64_t whole = count / kBlock;
    TensorDigest acc = SumOfBlock(data + 4 * whole * kBlock, static_cast<int>(count % kBlock));
    for (int64_t block = whole - 1; block >= 0; --block) {
      const TensorDigest part =
          SumOfBlock(data + 4 * block * kBlock, std::integral_constant<int, kBlock>());
      for (int w = 0; w < 2; ++w) acc.words[w] = acc.words[w] * kBlockPower[w] + part.words[w];
    }
    sum = acc;
  });
  return sum;
}

void Add(const TensorDigest& part, int64_t word, TensorDigest& sum) {
  for (int w = 0; w < 2; ++w) {
    sum.words[w] += part.words[w] * DigestPower(kDigestBase[w], static_cast<uint64_t>(word));
  }
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
    int64_t word = run.first / 4;
    if (head > 0) {
      const uint64_t bytes = DigestBytes(run.data, head, place);
      Add({{bytes, bytes}}, word, sum);
      ++word;
    }
    Add(SumOfWords(run.data + head, words), word, sum);
    if (tail > 0) {
      const uint64_t bytes = DigestBytes(run.data + head + 4 * words, tail, 0);
      Add({{bytes, bytes}}, word + words, sum);
    }
  });
  return sum;
}

}  // namespace brigade::kernels
