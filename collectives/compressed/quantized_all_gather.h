#ifndef BRIGADE_COLLECTIVES_COMPRESSED_QUANTIZED_ALL_GATHER_H_
#define BRIGADE_COLLECTIVES_COMPRESSED_QUANTIZED_ALL_GATHER_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "brigade/collectives/collective.h"
#include "brigade/collectives/communicator.h"
#include "brigade/collectives/compressed/codec_call.h"
#include "brigade/collectives/engines/call_order.h"
#include "brigade/collectives/options.h"
#include "brigade/device/context.h"
#include "brigade/device/stream.h"
#include "brigade/kernels/block_quant/block_quant_math.h"
#include "brigade/precision/dtype.h"

namespace brigade::collectives {

// The all-gather that carries parts of `count` elements: of bytes, one message of each rank.
inline CollectiveSignature QuantizedGatherCall(int64_t count, kernels::QuantFormat format,
                                               Algorithm algorithm = Algorithm::kAuto) {
  return {.kind = CollectiveKind::kAllGather,
          .algorithm = algorithm,
          .dtype = precision::DType::kUint8,
          .count = kernels::QuantBytes(count, format)};
}

// An all-gather of arrays that cross the wire as int8 or int4 codes (kernels/block_quant): qwZ of
// ZeRO++.
//
//   output[rank r] = dequantize(quantize(input of rank r))
//
// Order        All ranks make the same calls in the same order; they take part in the order of the
//              communicator's other calls. A call runs after this object's earlier ones, whatever
//              stream they were on.
// Arrays       Memory of the stream's device, fp32, fp16 or bf16: input [count], output
//              [size * count]; input may be output + rank * count.
// Precision    As BlockQuantize, and a rounding to the type. A rank's own part goes through codes
//              too, so that all ranks get the same bits, on every engine.
// Not finite   A block of 256 elements that holds an infinity or NaN is NaN, all of it, on all
//              ranks.
// Traffic      QuantizedGatherCall's: with int8 0.51 of 16 bits. In memory, for p ranks and
//              elements of b bytes, (b + 1) / p + 1 + b bytes for each element of the output.
// Memory       Bytes(size, max_count, format), of purpose communication.
// Errors       InvalidArgument for this rank's bad arguments: nothing happens, the others wait.
//              Everything else as Communicator; ranks whose counts, formats or algorithms differ
//              are told, other types of the arrays are not noticed.
// Allocation   None in steady state, and no host wait.
// Lifetime     Communicator and context must outlive all calls. Once the communicator has failed it
//              must go first: other ranks may still read the messages.
// Threads      One thread at a time.
// Source       Wang et al., ZeRO++ (arXiv 2306.10209), with scales that reach the maximum.
class QuantizedAllGather {
 public:
  // For calls of up to `max_count` elements of each rank.
  static absl::StatusOr<std::unique_ptr<QuantizedAllGather>> Create(Communicator& communicator,
                                                                    device::Context& context,
                                                                    int64_t max_count,
                                                                    kernels::QuantFormat format);
  // What that allocates.
  static int64_t Bytes(int ranks, int64_t max_count, kernels::QuantFormat format) {
    return ranks * kernels::QuantBytes(max_count, format);
  }

  absl::Status AllGather(const void* input, void* output, int64_t count, precision::DType dtype,
                         const GatherOptions& options, device::Stream& stream);

  // What a gather would leave of parts that this rank has all: replaces each of `whole`,
  // [size * count], by what codes keep of it. Values that a gather has left stay as they are. No
  // rank waits for another one.
  absl::Status KeepCodes(void* whole, int64_t count, precision::DType dtype,
                         device::Stream& stream);

 private:
  QuantizedAllGather(Communicator& communicator, device::Context& context, int64_t max_count,
                     kernels::QuantFormat format, MessageBuffer messages, CallOrder order);

  // From all messages.
  absl::Status Dequantize(void* whole, int64_t count, precision::DType dtype,
                          device::Stream& stream);

  Communicator& communicator_;
  device::Context& context_;
  const int64_t max_count_;
  const kernels::QuantFormat format_;
  // [size] messages, by rank.
  const MessageBuffer messages_;
  CallOrder order_;
  // Of each rank.
  std::vector<kernels::QuantizeSegment> sources_;
  std::vector<kernels::DequantizeSegment> parts_;
};

}  // namespace brigade::collectives

#endif  // BRIGADE_COLLECTIVES_COMPRESSED_QUANTIZED_ALL_GATHER_H_
