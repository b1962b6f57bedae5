#ifndef BRIGADE_KERNELS_BLOCK_QUANT_BLOCK_QUANT_H_
#define BRIGADE_KERNELS_BLOCK_QUANT_BLOCK_QUANT_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "brigade/device/stream.h"
#include "brigade/kernels/block_quant/block_quant_math.h"
#include "brigade/precision/dtype.h"

namespace brigade::kernels {

struct BlockQuantOptions {
  // Of the arrays: float32, float16 or bfloat16.
  precision::DType dtype = precision::DType::kFloat32;
  QuantFormat format = QuantFormat::kInt8;
};

// Arrays to messages of int8 or int4 codes with one fp32 maximum for each 256 elements, and
// messages to arrays. block_quant_math.h says what each byte of a message is; QuantBytes how many
// there are.
//
//   code = round(x / (maximum / 127)), or / 7 for int4
//
// Shapes       Any number of segments of any size, empty ones included; arrays at any
//              element-aligned address, messages at multiples of 64.
// Precision    Ties to even. The largest magnitude of a block comes back exactly, any other element
//              with an error of at most maximum / 254 (int8) or maximum / 14 (int4), but for
//              roundings to fp32 and to the array's type. A block with NaN or an infinity comes
//              back as NaN, all of it. What came out of a message of fp32 becomes the same message
//              again, where no maximum is subnormal. -0 comes back as 0.
// Traffic      The array's bytes and the message's, each once: 5.02 an element from fp32 to int8,
//              2.52 from 16 bits to int4.
// Aliasing     None: what is written may not overlap another array or message.
// Stream       Enqueued on `stream`; allocates nothing in steady state and never waits. The list
//              and the options may go when the call returns.
// Determinism  Same bits on every device, for any number of threads and SIMD target, payloads of
//              NaN in arrays aside. Every byte of a message is written.
// Errors       InvalidArgument naming segment, argument and value, before anything is enqueued:
//              null with elements, negative size, misaligned address, overlap, memory known as
//              another device's, another dtype or format.
// Source       The symmetric quantisation by blocks of ZeRO++ (arXiv 2306.10209), with scales that
//              reach the maximum.
absl::Status BlockQuantize(absl::Span<const QuantizeSegment> segments,
                           const BlockQuantOptions& options, device::Stream& stream);
absl::Status BlockDequantize(absl::Span<const DequantizeSegment> segments,
                             const BlockQuantOptions& options, device::Stream& stream);

// InvalidArgument unless `format`, which messages call `name`, is one of the enumerators: for
// operations on such messages.
absl::Status CheckQuantFormat(absl::string_view operation, absl::string_view name,
                              QuantFormat format);

}  // namespace brigade::kernels

#endif  // BRIGADE_KERNELS_BLOCK_QUANT_BLOCK_QUANT_H_
