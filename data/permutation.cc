#include "brigade/data/permutation.h"

namespace brigade::data {
namespace {

constexpr uint64_t kGamma = 0x9e3779b97f4a7c15u;

uint64_t Mix(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

// Halves of 5 bits: in smaller domains few of all orders are reached.
constexpr int kLeastHalfBits = 5;

}  // namespace

Permutation::Permutation(int64_t size, uint64_t seed, uint64_t epoch)
    : size_(size), half_bits_(kLeastHalfBits) {
  while (half_bits_ < 31 && (uint64_t{1} << (2 * half_bits_)) < static_cast<uint64_t>(size)) {
    ++half_bits_;
  }
  // Two steps, so that seed 1 in epoch 0 is not seed 0 in epoch 1.
  uint64_t state = Mix(Mix(seed + kGamma) + epoch * kGamma);
  for (uint64_t& key : keys_) key = Mix(state += kGamma);
}

uint64_t Permutation::Encrypt(uint64_t value) const {
  const uint64_t mask = (uint64_t{1} << half_bits_) - 1;
  uint64_t left = value >> half_bits_, right = value & mask;
  for (const uint64_t key : keys_) {
    const uint64_t next = left ^ (Mix(right * kGamma + key) & mask);
    left = right;
    right = next;
  }
  return left << half_bits_ | right;
}

int64_t Permutation::At(int64_t place) const {
  if (size_ == 1) return 0;
  auto value = static_cast<uint64_t>(place);
  do {
    value = Encrypt(value);
  } while (value >= static_cast<uint64_t>(size_));
  return static_cast<int64_t>(value);
}

}  // namespace brigade::data
