#ifndef BRIGADE_NN_PHILOX_H_
#define BRIGADE_NN_PHILOX_H_

#include <cstdint>

#include "brigade/precision/host_device.h"

namespace brigade::nn {

// Philox4x32-10: four random words from a counter of 128 bits and a key of 64. It has no state:
// every word can be had again, in any order, on every device. The same words as Random123, cuRAND
// and PyTorch give for these counters and keys.
//
// Source       Salmon, Moraes, Dror and Shaw 2011, "Parallel random numbers: as easy as 1, 2, 3".
struct PhiloxWords {
  uint32_t word[4];
};

BRIGADE_INLINE PhiloxWords Philox(PhiloxWords counter, uint64_t key) {
  auto key0 = static_cast<uint32_t>(key), key1 = static_cast<uint32_t>(key >> 32);
  uint32_t c0 = counter.word[0], c1 = counter.word[1], c2 = counter.word[2], c3 = counter.word[3];
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = uint64_t{0xd2511f53u} * c0, b = uint64_t{0xcd9e8d57u} * c2;
    c0 = static_cast<uint32_t>(b >> 32) ^ c1 ^ key0;
    c1 = static_cast<uint32_t>(b);
    c2 = static_cast<uint32_t>(a >> 32) ^ c3 ^ key1;
    c3 = static_cast<uint32_t>(a);
    key0 += 0x9e3779b9u;
    key1 += 0xbb67ae85u;
  }
  return {{c0, c1, c2, c3}};
}

}  // namespace brigade::nn

#endif  // BRIGADE_NN_PHILOX_H_
