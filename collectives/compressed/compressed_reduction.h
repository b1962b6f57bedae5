#ifndef BRIGADE_COLLECTIVES_COMPRESSED_COMPRESSED_REDUCTION_H_
#define BRIGADE_COLLECTIVES_COMPRESSED_COMPRESSED_REDUCTION_H_

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "brigade/collectives/collective.h"
#include "brigade/collectives/communicator.h"
#include "brigade/collectives/compressed/amax_scale_math.h"
#include "brigade/collectives/compressed/codec_call.h"
#include "brigade/collectives/engines/call_order.h"
#include "brigade/device/buffer.h"
#include "brigade/device/context.h"
#include "brigade/device/event.h"
#include "brigade/device/stream.h"
#include "brigade/kernels/amax/amax_math.h"
#include "brigade/kernels/reduce/reduce_math.h"
#include "brigade/precision/dtype.h"

namespace brigade::collectives {

// What values are multiplied by before they go on the wire.
//
// kNone      1: for bfloat16, which has the range of float, and for values known to fit float16.
// kStatic    WireOptions::scale.
// kDynamic   The largest power of two that keeps every sum in range: from the largest absolute
//            value on any rank, on which the ranks agree in an all-reduce of one float.
//            collectives/compressed/amax_scale.h has the formula.
enum class WireScaling : uint8_t { kNone, kStatic, kDynamic };

struct WireOptions {
  // float16 or bfloat16; for the sum of a 16-bit array also float32.
  precision::DType wire = precision::DType::kFloat16;
  // kDynamic is for wires of 16 bits.
  WireScaling scaling = WireScaling::kDynamic;
  // Of kStatic: kMinAmaxScale to kMaxAmaxScale.
  float scale = 1.0f;
  // Of the sum on the wire.
  Reduction reduction = Reduction::kRoundedOnce;
  Algorithm algorithm = Algorithm::kAuto;
};

// The collective in which ranks agree on the scale of kDynamic, before each sum: to know beforehand
// what it sends and needs. The order of a maximum does not matter to its bits, so that kAuto is
// free to choose.
inline constexpr CollectiveSignature kAmaxExchange = {.kind = CollectiveKind::kAllReduce,
                                                      .algorithm = Algorithm::kAuto,
                                                      .dtype = precision::DType::kFloat32,
                                                      .op = kernels::ReduceOp::kMax,
                                                      .count = 1,
                                                      .reduction = Reduction::kRoundedPerHop};

// A sum in the wire's type: element i is data[i] * *unscale.
struct WireSum {
  // Of an all-reduce, [count]; of a reduce-scatter this rank's part of it, [count], in `whole`.
  void* data;
  // [size * count] of a reduce-scatter, in which the other ranks' parts hold no sums: an all-gather
  // of `data` may fill them. Of an all-reduce `data`.
  void* whole;
  precision::DType dtype;
  // Device memory; null means 1.
  const float* unscale;
};

// Sums of arrays that cross the wire in another type, T, mostly one of fewer bits:
//
//   wire_r = T(input_r * scale)
//   sum    = wire_0 + wire_1 + ... by the Communicator
//   output = sum * (1 / scale)
//
// Order        All ranks make the same calls in the same order, with the same options; they take
//              part in the order of the communicator's other calls. A call runs after this object's
//              earlier ones, whatever stream they were on.
// Arrays       Memory of the stream's device. AllReduce: input, output [count], fp32; output may be
//              input. SumOnWire: input [count], or [size * count] of a reduce-scatter, fp32, fp16
//              or bf16.
// Precision    An element differs from the sum of the p ranks' x_r, while nothing overflows, by at
//              most
//                1.1 (n u + p 2^-22) sum |x_r|  +  1.1 p t / scale  +  2^-149,
//              where u is 2^-11 for float16 and 2^-8 for bfloat16; t, half of the smallest
//              subnormal, 2^-25 and 2^-134; n the roundings on a value's way, p for kRoundedPerHop
//              and else 2, its own and the sum's; n u <= 0.1.
//              With kDynamic nothing overflows but sums that, rounded to 16 bits, are beyond fp32.
//              All ranks get the same bits; with kRoundedOnce the same on every engine, and the
//              same from an all-reduce and from a reduce-scatter of one input.
// Not finite   An infinity or NaN on one rank makes the element infinite or NaN on all. The other
//              elements are as above, with scale 1 if kDynamic. AllReduce says so in non_finite():
//              it is judged on the sums, which are the same on all ranks.
// Traffic      On a wire of 16 bits half of an fp32 collective's bytes, unless partial sums travel
//              in fp32; kDynamic adds an all-reduce of 4 bytes, kAmaxExchange. In memory AllReduce
//              takes 14 bytes per element besides the exchange, 18 for kDynamic.
// Memory       Bytes(wire_bytes), of purpose communication.
// Errors       InvalidArgument for this rank's bad arguments: nothing happens, the others wait.
//              Everything else as Communicator; ranks whose wire, count, algorithm or use of
//              kDynamic differ are told, other scales are not noticed.
// Allocation   None in steady state, and no host wait.
// Lifetime     Communicator and context must outlive all calls. Once the communicator has failed it
//              must go first: other ranks may still read the wire.
// Threads      One thread at a time.
// Source       The ranges that scaling saves: Micikevicius et al., Mixed Precision Training, 2018.
//              The bound: Higham, Accuracy and Stability of Numerical Algorithms, 2002, lemma 3.1.
class CompressedReduction {
 public:
  // For inputs that take up to `wire_bytes` on the wire: 2 bytes an element in 16 bits.
  static absl::StatusOr<std::unique_ptr<CompressedReduction>> Create(Communicator& communicator,
                                                                     device::Context& context,
                                                                     int64_t wire_bytes);
  // What that allocates.
  static int64_t Bytes(int64_t wire_bytes);

  absl::Status AllReduce(const float* input, float* output, int64_t count,
                         const WireOptions& options, device::Stream& stream);

  // The sum by an all-reduce or a reduce-scatter, left on the wire until the next call: for callers
  // that store it in a type of their own, add it to something, or gather it before. They read it on
  // `stream`, on which the next call must be, too.
  absl::StatusOr<WireSum> SumOnWire(CollectiveKind kind, const void* input, int64_t count,
                                    precision::DType dtype, const WireOptions& options,
                                    device::Stream& stream);

  // Device memory: 1 if an element of the last AllReduce's output is infinite or NaN, else 0.
  const int32_t* non_finite() const { return &state().result.non_finite; }

 private:
  // In device memory.
  struct State {
    kernels::AmaxResult agreed;
    AmaxScale scale;
    kernels::AmaxResult result;
    kernels::AmaxWorkspace workspace;
  };
  // What a rank sums: all elements of its input.
  struct Input {
    const void* data;
    int64_t elements;
    precision::DType dtype;
  };

  CompressedReduction(Communicator& communicator, device::Context& context,
                      Algorithm amax_algorithm, MessageBuffer wire, device::Buffer state,
                      CallOrder order);

  // The number of parts of `count` elements that an input consists of.
  int64_t Parts(CollectiveKind kind) const {
    return kind == CollectiveKind::kReduceScatter ? communicator_.size() : 1;
  }
  absl::Status Check(CollectiveKind kind, int64_t count, precision::DType dtype,
                     const WireOptions& options, const device::Stream& stream);
  absl::Status ChooseScale(const Input& input, const WireOptions& options, device::Stream& stream);
  // SumOnWire of arguments that are checked.
  absl::StatusOr<WireSum> Sum(CollectiveKind kind, int64_t count, const Input& input,
                              const WireOptions& options, device::Stream& stream);
  State& state() const { return *state_.as<State>().data(); }

  Communicator& communicator_;
  device::Context& context_;
  // That kAmaxExchange takes, whatever the communicator is told later.
  const Algorithm amax_algorithm_;
  const MessageBuffer wire_;
  const device::Buffer state_;
  CallOrder order_;
};

}  // namespace brigade::collectives

#endif  // BRIGADE_COLLECTIVES_COMPRESSED_COMPRESSED_REDUCTION_H_
