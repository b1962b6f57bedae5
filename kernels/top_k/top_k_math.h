#ifndef BRIGADE_KERNELS_TOP_K_TOP_K_MATH_H_
#define BRIGADE_KERNELS_TOP_K_TOP_K_MATH_H_

// Which elements of an array are the k of greatest magnitude, for CUDA, SIMD and scalar code alike.
//
// Order    By magnitude: a NaN, whatever its payload, is more than an infinity. Of equal magnitudes
//          the lower index comes first.
// Keys     The bits of a float without its sign are in the order of magnitudes. They are looked at
//          from the top, some at a time: counting those of an array finds which ones the k-th has.

#include <cstdint>

#include "brigade/precision/float16.h"
#include "brigade/precision/host_device.h"
#include "brigade/precision/rounding.h"

namespace brigade::kernels {

// One array, and where its greatest elements go. Device memory.
struct TopKSegment {
  // [size] of TopKOptions::dtype; written only with TopKOptions::clear.
  void* array;
  // [k], of the array's type.
  void* values;
  // [k], ascending.
  int32_t* indices;
  // [TopKWorkspaceSize(size)].
  uint32_t* workspace;
  // At most kMaxTopKSize.
  int64_t size;
  // At most size.
  int64_t k;
};

// Of an array, whose indices are of 32 bits.
inline constexpr int64_t kMaxTopKSize = (int64_t{1} << 31) - 1;

// How often keys are looked at, and the bits that remain below those of each look.
inline constexpr int kTopKPasses = 3;
BRIGADE_HOST_DEVICE constexpr int TopKShift(int pass) { return 10 * (kTopKPasses - 1 - pass); }
// The numbers that the bits of a look can make, at most.
inline constexpr int kTopKBins = 2048;

// The elements whose selected ones are counted before they are written: those of a warp.
inline constexpr int64_t kTopKUnit = 2048;

// What the looks find.
struct TopKSelection {
  // The bits that the k-th element's key has, as far as they are known.
  uint32_t key;
  // How many of the elements that have these are selected.
  uint32_t left;
};

BRIGADE_HOST_DEVICE constexpr int64_t TopKUnits(int64_t size) {
  return (size + kTopKUnit - 1) / kTopKUnit;
}

// The bytes of the workspace for the candidates of a unit, which the CPU knows to be the only ones
// that may be selected.
inline constexpr int64_t kTopKCandidateBytes = 512;

// The workspace of an array in words of 32 bits: counts of bins, the selection, of each unit the
// elements above the k-th key and those that have it, and its candidates.
BRIGADE_HOST_DEVICE constexpr int64_t TopKWorkspaceSize(int64_t size) {
  return kTopKBins + 2 + (2 + kTopKCandidateBytes / 4) * TopKUnits(size);
}

BRIGADE_INLINE uint32_t TopKKey(float x) {
  const uint32_t bits = __builtin_bit_cast(uint32_t, x) & 0x7fffffffu;
  return bits < 0x7f800001u ? bits : 0x7f800001u;
}
template <typename T>
BRIGADE_INLINE uint32_t TopKKey(T x) {
  return TopKKey(static_cast<float>(x));
}

// Whether a key has the bits that are known before look `pass`.
BRIGADE_INLINE bool TopKIsCandidate(uint32_t key, uint32_t known, int pass) {
  return pass == 0 || key >> TopKShift(pass - 1) == known >> TopKShift(pass - 1);
}

BRIGADE_INLINE uint32_t TopKBin(uint32_t key, int pass) {
  const uint32_t bits = key >> TopKShift(pass);
  return pass == 0 ? bits : bits & 1023u;
}

// Of elements above the k-th key and of those that have it, both before an element's, where the
// element goes if it is selected.
BRIGADE_INLINE uint32_t TopKPlace(uint32_t above, uint32_t equal, uint32_t left) {
  return above + (equal < left ? equal : left);
}

}  // namespace brigade::kernels

#endif  // BRIGADE_KERNELS_TOP_K_TOP_K_MATH_H_
