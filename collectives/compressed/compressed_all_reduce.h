#ifndef BRIGADE_COLLECTIVES_COMPRESSED_COMPRESSED_ALL_REDUCE_H_
#define BRIGADE_COLLECTIVES_COMPRESSED_COMPRESSED_ALL_REDUCE_H_

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "brigade/collectives/collective.h"
#include "brigade/collectives/communicator.h"
#include "brigade/collectives/compressed/amax_scale_math.h"
#include "brigade/collectives/engines/call_order.h"
#include "brigade/device/buffer.h"
#include "brigade/device/context.h"
#include "brigade/device/event.h"
#include "brigade/device/stream.h"
#include "brigade/kernels/amax/amax_math.h"
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
  precision::DType wire = precision::DType::kFloat16;  // or kBFloat16
  WireScaling scaling = WireScaling::kDynamic;
  float scale = 1.0f;                             // of kStatic: kMinAmaxScale to kMaxAmaxScale
  Reduction reduction = Reduction::kRoundedOnce;  // of the sum on the wire
  Algorithm algorithm = Algorithm::kAuto;
};

// Sums of fp32 arrays that cross the wire in 16 bits, T:
//
//   wire_r = T(input_r * scale),   sum = wire_0 + wire_1 + ... by Communicator::AllReduce,   output = sum * (1 / scale)
//
// Order        All ranks make the same calls in the same order, with the same options; they take
//              part in the order of the communicator's other calls. A call runs after this object's
//              earlier ones, whatever stream they were on.
// Arrays       input, output: [count], fp32 memory of the stream's device; output may be input.
// Precision    An element differs from the sum of the p ranks' x_r, while nothing overflows, by at
//              most
//                1.1 (n u + p 2^-22) sum |x_r|  +  1.1 p t / scale  +  2^-149,
//              where u is 2^-11 for float16 and 2^-8 for bfloat16; t, half of the smallest subnormal, 2^-25 and 2^-134;
//              n the roundings on a value's way, p for kRoundedPerHop and else 2, its own and the sum's; n u <= 0.1.
//              With kDynamic nothing overflows but sums that, rounded to 16 bits, are beyond fp32.
//              All ranks get the same bits; with kRoundedOnce the same on every engine.
// Not finite   An infinity or NaN on one rank makes the element infinite or NaN on all, and
//              non_finite() 1 on all: it is judged on the sums, which are the same. The other
//              elements are as above, with scale 1 if kDynamic.
// Traffic      On the wire half of an fp32 all-reduce's bytes, unless partial sums travel in fp32;
//              kDynamic adds an all-reduce of 4 bytes. In memory, per element, 14 bytes besides the
//              exchange, 18 for kDynamic.
// Memory       2 bytes per element of the capacity and about 4 KiB, of purpose communication.
// Errors       InvalidArgument for this rank's bad arguments: nothing happens, the others wait.
//              Everything else as Communicator; ranks whose wire, count, algorithm or use of
//              kDynamic differ are told, other scales are not noticed.
// Allocation   None in steady state, and no host wait.
// Lifetime     Communicator and context must outlive all calls. Once the communicator has failed it
//              must go first: other ranks may still read the wire.
// Threads      One thread at a time.
// Source       The ranges that scaling saves: Micikevicius et al., Mixed Precision Training, 2018.
//              The bound: Higham, Accuracy and Stability of Numerical Algorithms, 2002, lemma 3.1.
class CompressedAllReduce {
 public:
  // For up to `capacity` elements a call.
  static absl::StatusOr<std::unique_ptr<CompressedAllReduce>> Create(Communicator& communicator,
                                                                     device::Context& context,
                                                                     int64_t capacity);

  absl::Status AllReduce(const float* input, float* output, int64_t count,
                         const WireOptions& options, device::Stream& stream);

  // Device memory: 1 if an element of the last call's output is infinite or NaN, else 0.
  const int32_t* non_finite() const { return &state().result.non_finite; }

 private:
  struct State {  // in device memory
    kernels::AmaxResult agreed;
    AmaxScale scale;
    kernels::AmaxResult result;
    kernels::AmaxWorkspace workspace;
  };

  CompressedAllReduce(Communicator& communicator, device::Context& context, device::Buffer wire,
                      device::Buffer state, std::unique_ptr<device::Event> last);

  absl::Status Check(const float* input, float* output, int64_t count, const WireOptions& options,
                     device::Stream& stream) const;
  absl::Status ChooseScale(const float* input, int64_t count, const WireOptions& options,
                           device::Stream& stream);
  State& state() const { return *state_.as<State>().data(); }

  Communicator& communicator_;
  device::Context& context_;
  const device::Buffer wire_, state_;
  CallOrder order_;
};

}  // namespace brigade::collectives

#endif  // BRIGADE_COLLECTIVES_COMPRESSED_COMPRESSED_ALL_REDUCE_H_
