#ifndef BRIGADE_KERNELS_REDUCE_REDUCE_MATH_H_
#define BRIGADE_KERNELS_REDUCE_REDUCE_MATH_H_

// The reduction of one element over its sources, in their order, for CUDA, SIMD and scalar code
// alike.
//
// Precision    16-bit types add in float and round once, at the end; all others in their own type.
//              Integers wrap around.
// NaN          A NaN among the sources gives NaN, also for the minimum and the maximum. Of equal
//              values (0 and -0) the first one stays.

#include <cstdint>
#include <type_traits>

#include "brigade/precision/float16.h"
#include "brigade/precision/host_device.h"
#include "brigade/precision/rounding.h"

namespace brigade::kernels {

enum class ReduceOp : uint8_t { kSum, kMin, kMax };

// Targets of one call, and sources of one pass: they are parameters of a kernel.
inline constexpr int kMaxReduceArrays = 64;

// Results between the passes of a reduction, not rounded: of the type that is added in.
struct ReduceCarry {
  // The result of the sources before, which comes before the first source of this pass; null in the
  // first pass.
  const void* in = nullptr;
  // Where the result goes, and the targets are left as they are; null in the last pass. May be
  // `in`.
  void* out = nullptr;
};

// Pointers and size of one pass of a reduction, as a kernel gets them.
struct ReduceArrays {
  const void* sources[kMaxReduceArrays];
  void* targets[kMaxReduceArrays];
  // At least 1.
  int32_t source_count;
  int32_t target_count;
  // The number of elements of each array.
  int64_t size;
  ReduceCarry carry;
};

#define BRIGADE_FOR_EACH_REDUCE_TYPE(BODY) \
  BODY(float)                              \
  BODY(precision::Half)                    \
  BODY(precision::BFloat16)                \
  BODY(double)                             \
  BODY(int32_t)                            \
  BODY(int64_t)                            \
  BODY(uint8_t)

template <typename T>
struct ReduceWideType {
  using Type = T;
};
template <>
struct ReduceWideType<precision::Half> {
  using Type = float;
};
template <>
struct ReduceWideType<precision::BFloat16> {
  using Type = float;
};

// What T is added in.
template <typename T>
using ReduceWide = typename ReduceWideType<T>::Type;

template <ReduceOp kOp, typename Wide>
BRIGADE_INLINE Wide ReduceElement(Wide a, Wide b) {
  if constexpr (kOp == ReduceOp::kSum) {
    if constexpr (std::is_floating_point_v<Wide>) {
      return precision::Add(a, b);
    } else {
      using Unsigned = std::make_unsigned_t<Wide>;
      return static_cast<Wide>(static_cast<Unsigned>(a) + static_cast<Unsigned>(b));
    }
  } else {
    bool second = kOp == ReduceOp::kMin ? b < a : a < b;
    if constexpr (std::is_floating_point_v<Wide>) second = second || b != b;
    return second ? b : a;
  }
}

// Calls run(std::integral_constant) for the operation.
template <typename Run>
inline void VisitReduceOp(ReduceOp op, const Run& run) {
  switch (op) {
    case ReduceOp::kSum:
      return run(std::integral_constant<ReduceOp, ReduceOp::kSum>());
    case ReduceOp::kMin:
      return run(std::integral_constant<ReduceOp, ReduceOp::kMin>());
    case ReduceOp::kMax:
      return run(std::integral_constant<ReduceOp, ReduceOp::kMax>());
  }
}

}  // namespace brigade::kernels

#endif  // BRIGADE_KERNELS_REDUCE_REDUCE_MATH_H_
