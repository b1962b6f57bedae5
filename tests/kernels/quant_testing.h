#ifndef BRIGADE_TESTS_KERNELS_QUANT_TESTING_H_
#define BRIGADE_TESTS_KERNELS_QUANT_TESTING_H_

// What tests of codes (kernels/block_quant) share.

#include <cstdint>
#include <vector>

#include "brigade/kernels/block_quant/block_quant_math.h"
#include "brigade/tests/kernels/testing.h"

namespace brigade::kernels {

inline constexpr QuantFormat kQuantFormats[] = {QuantFormat::kInt8, QuantFormat::kInt4};

inline int BitsOf(QuantFormat format) { return format == QuantFormat::kInt8 ? 8 : 4; }

// InterestingSizes, and such around the ends of blocks and of their halves.
inline std::vector<int64_t> QuantSizes() {
  std::vector<int64_t> sizes = InterestingSizes();
  for (const int64_t size : {127, 128, 129, 255, 256, 257, 1023, 1024, 1025, 4864}) {
    sizes.push_back(size);
  }
  return sizes;
}

}  // namespace brigade::kernels

#endif  // BRIGADE_TESTS_KERNELS_QUANT_TESTING_H_
