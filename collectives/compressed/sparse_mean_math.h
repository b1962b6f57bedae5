#ifndef BRIGADE_COLLECTIVES_COMPRESSED_SPARSE_MEAN_MATH_H_
#define BRIGADE_COLLECTIVES_COMPRESSED_SPARSE_MEAN_MATH_H_

#include <cstdint>

#include "brigade/precision/host_device.h"

namespace brigade::collectives {

// Elements of an array that are not 0, of several ranks. Device memory, one message after the
// other: k indices, which ascend, and then k values.
struct SparseMessages {
  const int32_t* data = nullptr;
  int32_t ranks = 0;
  int64_t k = 0;

  BRIGADE_HOST_DEVICE const int32_t* indices(int rank) const { return data + 2 * k * rank; }
  BRIGADE_HOST_DEVICE const float* values(int rank) const {
    return reinterpret_cast<const float*>(indices(rank) + k);
  }
};

// The first of k ascending indices that is `least` or more; k if there is none.
BRIGADE_HOST_DEVICE inline int64_t FirstIndexFrom(const int32_t* indices, int64_t k,
                                                  int64_t least) {
  int64_t begin = 0, end = k;
  while (begin < end) {
    const int64_t middle = begin + (end - begin) / 2;
    if (indices[middle] < least) {
      begin = middle + 1;
    } else {
      end = middle;
    }
  }
  return begin;
}

}  // namespace brigade::collectives

#endif  // BRIGADE_COLLECTIVES_COMPRESSED_SPARSE_MEAN_MATH_H_
