#ifndef BRIGADE_COLLECTIVES_COMPRESSED_SEED_COLUMNS_MATH_H_
#define BRIGADE_COLLECTIVES_COMPRESSED_SEED_COLUMNS_MATH_H_

#include <cstdint>

#include "brigade/precision/host_device.h"
#include "brigade/precision/rounding.h"

namespace brigade::collectives {

// Columns that lie one after the other. Device memory.
struct ColumnList {
  float* data = nullptr;
  // [count + 1]: where each begins, in elements of `data`, and the end of the last.
  const int64_t* begins = nullptr;
  int64_t count = 0;
};

// Element `row` of column `column` of a list that has no direction yet: in [-1, 1), a multiple of
// 2^-23, the same on all ranks and processors. The mix of SplitMix64 (Steele, Lea and Flood 2014).
BRIGADE_HOST_DEVICE inline float ColumnSeed(int64_t column, int64_t row) {
  uint64_t bits = (static_cast<uint64_t>(column) << 40) + static_cast<uint64_t>(row);
  bits += 0x9e3779b97f4a7c15u;
  bits = (bits ^ (bits >> 30)) * 0xbf58476d1ce4e5b9u;
  bits = (bits ^ (bits >> 27)) * 0x94d049bb133111ebu;
  bits ^= bits >> 31;
  const auto value = static_cast<int32_t>(bits >> 40) - (1 << 23);
  return static_cast<float>(value) * 0x1p-23f;
}

}  // namespace brigade::collectives

#endif  // BRIGADE_COLLECTIVES_COMPRESSED_SEED_COLUMNS_MATH_H_
