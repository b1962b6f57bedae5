#ifndef BRIGADE_COLLECTIVES_COMPRESSED_TOP_K_ALL_REDUCE_H_
#define BRIGADE_COLLECTIVES_COMPRESSED_TOP_K_ALL_REDUCE_H_

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "brigade/collectives/collective.h"
#include "brigade/collectives/communicator.h"
#include "brigade/collectives/compressed/codec_call.h"
#include "brigade/collectives/engines/call_order.h"
#include "brigade/collectives/options.h"
#include "brigade/device/buffer.h"
#include "brigade/device/context.h"
#include "brigade/device/stream.h"
#include "brigade/kernels/step_control/step_state.h"
#include "brigade/precision/dtype.h"

namespace brigade::collectives {

// The exchange of an all-reduce by `k` elements of each rank: a gather of bytes, of an index and a
// value for each.
inline CollectiveSignature TopKCallOf(int64_t k, Algorithm algorithm = Algorithm::kAuto) {
  constexpr auto kBytes = static_cast<int64_t>(sizeof(int32_t) + sizeof(float));
  return {.kind = CollectiveKind::kAllGather,
          .algorithm = algorithm,
          .dtype = precision::DType::kUint8,
          .count = k * kBytes};
}

// The mean of arrays of which each rank sends the k elements of greatest magnitude, with error
// feedback:
//
//   c_r = input_r + error_r;   s_r = c_r where it is one of its k greatest, else 0;
//   error_r = c_r - s_r;       output = (s_0 + s_1 + ...) / size
//
// so that at every step the sum over steps of outputs + mean over ranks of error is the sum over
// steps of the inputs' mean, but for roundings to fp32.
//
// Order        All ranks make the same calls in the same order; they take part in the order of the
//              communicator's other calls. A call runs after this object's earlier ones, whatever
//              stream they were on.
// Arrays       Memory of the stream's device. input, output: [count] of fp32, fp16 or bf16; output
//              may be input. error: [count], the caller's, fp32, zero at the beginning. Save it
//              with the state of a training: for another number of ranks each new rank may get the
//              mean over ranks, which alone enters the identity.
// Selection    As kernels/top_k: of equal magnitudes the lower index, what is not finite first. One
//              call for all tensors of a bucket: they share the k elements.
// Precision    fp32, added in ascending order of ranks, times 1 / size, rounded to the type.
// Determinism  All ranks get the same bits, on every engine and device.
// Not finite   An element of c that is infinite or NaN on a rank is in the output of all, and the
//              errors of all ranks keep every bit; so they do if a sum overflows.
// Skipped      So they do if *state says that its step is skipped. It is read on the stream, behind
//              the exchange; all ranks give the same. What outputs hold is then of no use.
// Traffic      TopKCallOf's: 8 k bytes from rank to rank, so that from k = count / (2 size) on an
//              all-reduce in 16 bits sends less: sums do not merge on the way. In memory 36 bytes
//              for each element of fp32 on a GPU, and 8 k for each rank.
// Memory       Bytes(size, max_count, max_k), of purpose communication: messages of 8 k bytes for
//              each rank, 4 bytes an element for the error before the call, and 0.25 to select.
// Errors       InvalidArgument for this rank's bad arguments: nothing happens, the others wait.
//              Everything else as Communicator; ranks that give other k, or another algorithm, are
//              told, other counts and types of the arrays are not noticed.
// Allocation   None in steady state, and no host wait.
// Lifetime     Communicator and context must outlive all calls. Once the communicator has failed it
//              must go first: other ranks may still read the messages.
// Threads      One thread at a time.
// Source       Stich, Cordonnier, Jaggi, Sparsified SGD with Memory (arXiv 1809.07599).
class TopKAllReduce {
 public:
  // For calls of up to `max_count` elements, of which each rank sends up to `max_k`.
  static absl::StatusOr<std::unique_ptr<TopKAllReduce>> Create(Communicator& communicator,
                                                               device::Context& context,
                                                               int64_t max_count, int64_t max_k);
  // What that allocates.
  static int64_t Bytes(int ranks, int64_t max_count, int64_t max_k);

  // `state`: device memory; null: the step is not skipped.
  absl::Status AllReduce(const void* input, void* output, int64_t count, int64_t k,
                         precision::DType dtype, float* error, const kernels::StepState* state,
                         const GatherOptions& options, device::Stream& stream);

 private:
  // Where things lie in `scratch_`, in bytes.
  struct Scratch {
    explicit Scratch(int64_t max_count);
    // The error before the call, first; what TopK works in; whether the mean is not finite.
    int64_t workspace, non_finite;
    int64_t end;
  };

  TopKAllReduce(Communicator& communicator, device::Context& context, int64_t max_count,
                int64_t max_k, MessageBuffer messages, device::Buffer scratch, CallOrder order);

  template <typename T>
  T* At(int64_t offset) const {
    return reinterpret_cast<T*>(scratch_.as<char>().data() + offset);
  }

  Communicator& communicator_;
  device::Context& context_;
  const int64_t max_count_, max_k_;
  // [size], by rank.
  const MessageBuffer messages_;
  const Scratch layout_;
  const device::Buffer scratch_;
  CallOrder order_;
};

}  // namespace brigade::collectives

#endif  // BRIGADE_COLLECTIVES_COMPRESSED_TOP_K_ALL_REDUCE_H_
