#ifndef BRIGADE_TESTS_SPEC_DIGEST_H_
#define BRIGADE_TESTS_SPEC_DIGEST_H_

// The executable specification: the digest of a tensor (kernels/digest), and of a unit.
//
// A tensor's bytes, in the order of its elements and little-endian, are words of 32 bits, the last
// one filled up with zeros. Its digest has two sums: of word[i] * base^i, modulo 2^64, for each of
// two bases. A unit's digest is that of its tensors' sums, as a tensor of words of 64 bits.

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace brigade::spec {

inline constexpr std::array<uint64_t, 2> kDigestBases = {0x243f6a8885a308d5u, 0xb7e151628aed2a6du};

using Digest = std::array<uint64_t, 2>;

inline Digest DigestOf(const std::vector<unsigned char>& tensor) {
  Digest digest = {};
  std::array<uint64_t, 2> power = {1, 1};
  for (size_t begin = 0; begin < tensor.size(); begin += 4) {
    uint64_t word = 0;
    for (size_t i = begin; i < begin + 4 && i < tensor.size(); ++i) {
      word += uint64_t{tensor[i]} << (8 * (i - begin));
    }
    for (size_t k = 0; k < 2; ++k) {
      digest[k] += word * power[k];
      power[k] *= kDigestBases[k];
    }
  }
  return digest;
}

inline Digest DigestOfUnit(const std::vector<Digest>& tensors) {
  std::vector<unsigned char> bytes;
  for (const Digest& tensor : tensors) {
    for (const uint64_t sum : tensor) {
      for (int i = 0; i < 8; ++i) bytes.push_back(static_cast<unsigned char>(sum >> (8 * i)));
    }
  }
  return DigestOf(bytes);
}

}  // namespace brigade::spec

#endif  // BRIGADE_TESTS_SPEC_DIGEST_H_
