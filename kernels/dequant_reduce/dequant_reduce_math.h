#ifndef BRIGADE_KERNELS_DEQUANT_REDUCE_DEQUANT_REDUCE_MATH_H_
#define BRIGADE_KERNELS_DEQUANT_REDUCE_DEQUANT_REDUCE_MATH_H_

#include <cstdint>

#include "brigade/kernels/block_quant/block_quant_math.h"
#include "brigade/precision/float16.h"

namespace brigade::kernels {

// The messages of all ranks for the same elements, and where their sum goes. Device memory.
struct DequantReduceSegment {
  // The message of rank 0, of `size` elements (block_quant_math.h); those of ranks 1, 2, ... follow
  // at a distance of DequantReduceParameters::stride bytes each.
  const void* messages;
  // An array of `size` elements, or a message, by the target type.
  void* target;
  int64_t size;
};

// What is the same for all segments.
struct DequantReduceParameters {
  // At least 1.
  int64_t ranks = 1;
  // Bytes, a multiple of 64: what the AllToAll that brought the messages received of each rank.
  // Not looked at for one rank.
  int64_t stride = 0;
  // Of the sum: 1 / ranks makes it a mean.
  float factor = 1.0f;
};

// A target that is a message.
template <QuantFormat kFormat>
struct MessageTarget {
  static constexpr QuantFormat kTargetFormat = kFormat;
};
using Int8Message = MessageTarget<QuantFormat::kInt8>;
using Int4Message = MessageTarget<QuantFormat::kInt4>;

// What the kernels are built for.
#define BRIGADE_FOR_EACH_DEQUANT_TARGET(DO) \
  DO(float)                                 \
  DO(precision::Half)                       \
  DO(precision::BFloat16)                   \
  DO(Int8Message)                           \
  DO(Int4Message)

template <typename Target>
inline constexpr bool kIsMessage = false;
template <QuantFormat kFormat>
inline constexpr bool kIsMessage<MessageTarget<kFormat>> = true;

}  // namespace brigade::kernels

#endif  // BRIGADE_KERNELS_DEQUANT_REDUCE_DEQUANT_REDUCE_MATH_H_
