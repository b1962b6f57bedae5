#ifndef BRIGADE_KERNELS_REDUCE_REDUCE_TYPES_H_
#define BRIGADE_KERNELS_REDUCE_REDUCE_TYPES_H_

#include <cstdint>

namespace brigade::kernels {

enum class ReduceOp : uint8_t { kSum, kMin, kMax };

// Sources and targets of one call, each.
inline constexpr int kMaxReduceArrays = 64;

// Pointers and size of one reduction, as a kernel gets them.
struct ReduceArrays {
  const void* sources[kMaxReduceArrays];
  void* targets[kMaxReduceArrays];
  int32_t source_count;  // >= 1
  int32_t target_count;
  int64_t size;  // elements of each array
};

#define BRIGADE_FOR_EACH_REDUCE_TYPE(BODY) \
  BODY(float)                              \
  BODY(precision::Half)                    \
  BODY(precision::BFloat16)                \
  BODY(double)                             \
  BODY(int32_t)                            \
  BODY(int64_t)                            \
  BODY(uint8_t)

}  // namespace brigade::kernels

#endif  // BRIGADE_KERNELS_REDUCE_REDUCE_TYPES_H_
