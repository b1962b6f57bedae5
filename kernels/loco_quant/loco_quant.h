#ifndef BRIGADE_KERNELS_LOCO_QUANT_LOCO_QUANT_H_
#define BRIGADE_KERNELS_LOCO_QUANT_LOCO_QUANT_H_

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "brigade/device/stream.h"
#include "brigade/kernels/loco_quant/loco_quant_math.h"
#include "brigade/precision/dtype.h"

namespace brigade::kernels {

struct LocoQuantOptions {
  // Of the arrays: float32, float16 or bfloat16.
  precision::DType dtype = precision::DType::kFloat32;
  // Of the messages.
  QuantFormat format = QuantFormat::kInt4;
  LocoParameters parameters = {};
};

// Arrays to messages of int8 or int4 codes, as BlockQuantize makes them, with error feedback:
//
//   h = array + error;  message: codes of h;  d = what they keep of h
//   error = beta * error + (1 - beta) * (h - d), kept as a message of int8 codes
//
// so that over any number of steps the sum of d + (last error - first error) / (1 - beta) is the
// sum of the arrays, but for what int8 codes leave out of the errors, and roundings to fp32.
//
// Shapes       Any number of segments of any size, empty ones included; arrays at any
//              element-aligned address, messages and errors at multiples of 64.
// Precision    All arithmetic is fp32. h rounds once; its codes and d are those of BlockQuantize
//              and BlockDequantize; 1 - beta, h - d, both products and their sum round once each,
//              no two of them together; the codes of the error are again those of BlockQuantize.
// Non-finite   A block of 256 elements whose h holds NaN or an infinity is marked in the message as
//              BlockQuantize does, and its error keeps every bit: a bad step poisons nothing.
// Traffic      The array and the error are read, the error and the message written, once: 6.55
//              bytes an element from fp32 to int4, 4.55 from 16 bits.
// Aliasing     None: what is written may not overlap anything else.
// Stream       Enqueued on `stream`; allocates nothing in steady state and never waits. The list
//              and the options may go when the call returns.
// Determinism  Same bits on every device, for any number of threads and SIMD target. Every byte of
//              a message is written.
// Errors       InvalidArgument naming segment, argument and value, before anything is enqueued:
//              null with elements, negative size, misaligned address, overlap, memory known as
//              another device's, another dtype or format, beta outside [0, 1].
// Source       Xie et al., LoCo: Low-Bit Communication Adaptor for Large-scale Model Training
//              (arXiv 2407.04480).
absl::Status LocoQuantize(absl::Span<const LocoSegment> segments, const LocoQuantOptions& options,
                          device::Stream& stream);

}  // namespace brigade::kernels

#endif  // BRIGADE_KERNELS_LOCO_QUANT_LOCO_QUANT_H_
