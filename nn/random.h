#ifndef BRIGADE_NN_RANDOM_H_
#define BRIGADE_NN_RANDOM_H_

#include <cstdint>

namespace brigade::nn {

// Random numbers that depend on a seed and on what they are for, and on nothing else: not on ranks,
// not on the machine. Source: SplitMix64, Steele, Lea and Flood 2014.
class Random {
 public:
  Random(uint64_t seed, uint64_t purpose) : state_(Mix(seed) ^ Mix(~purpose)) {}

  // As so many calls of Next.
  void Skip(uint64_t numbers) { state_ += numbers * kGamma; }

  uint64_t Next() { return Mix(state_ += kGamma); }
  double Uniform() { return static_cast<double>(Next() >> 11) * 0x1p-53; }  // [0, 1)

 private:
  static constexpr uint64_t kGamma = 0x9e3779b97f4a7c15u;

  static uint64_t Mix(uint64_t z) {
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }

  uint64_t state_;
};

}  // namespace brigade::nn

#endif  // BRIGADE_NN_RANDOM_H_
