#ifndef BRIGADE_DATA_PERMUTATION_H_
#define BRIGADE_DATA_PERMUTATION_H_

#include <array>
#include <cstdint>

namespace brigade::data {

// A shuffled order of 0 .. size - 1 that takes no memory: what comes at a place is computed from
// seed, epoch, size and place, so that any rank can ask for any part of it at any time.
//
// A Feistel network over the next power of four, whose results from `size` on are encrypted again
// until one is below it (cycle walking): so each number comes once. At most 4 walks are expected,
// for sizes below 1,024 more: 1,024 / size.
//
// Determinism  The same order on all machines; tests pin it, and it stays. Checkpoints rely on it.
// Source       Luby and Rackoff, 1988; Black and Rogaway, 2002, "Ciphers with arbitrary finite
//              domains", method 2. The rounds' function is SplitMix64's: Steele, Lea and Flood
//              2014.
class Permutation {
 public:
  // 1 <= size <= 2^62.
  Permutation(int64_t size, uint64_t seed, uint64_t epoch);

  int64_t size() const { return size_; }
  // What comes at `place`, of 0 to size() - 1.
  int64_t At(int64_t place) const;

 private:
  // Untuned; 4 are enough for the theorem of Luby and Rackoff, whose rounds are ideal.
  static constexpr int kRounds = 8;

  uint64_t Encrypt(uint64_t value) const;

  int64_t size_;
  int half_bits_;
  std::array<uint64_t, kRounds> keys_;
};

}  // namespace brigade::data

#endif  // BRIGADE_DATA_PERMUTATION_H_
