#ifndef BRIGADE_COLLECTIVES_COMPRESSED_ONE_BIT_ALL_REDUCE_H_
#define BRIGADE_COLLECTIVES_COMPRESSED_ONE_BIT_ALL_REDUCE_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "brigade/collectives/collective.h"
#include "brigade/collectives/communicator.h"
#include "brigade/collectives/compressed/codec_call.h"
#include "brigade/collectives/compressed/node_groups.h"
#include "brigade/collectives/engines/call_order.h"
#include "brigade/collectives/options.h"
#include "brigade/device/buffer.h"
#include "brigade/device/context.h"
#include "brigade/device/stream.h"
#include "brigade/kernels/sign_pack/sign_pack_math.h"
#include "brigade/kernels/step_control/step_state.h"
#include "brigade/precision/dtype.h"

namespace brigade::collectives {

// Of `count` elements those that one rank adds up: rank r has the elements from r * OneBitPart on,
// as far as there are such.
inline int64_t OneBitPart(int64_t count, int ranks) { return (count + ranks - 1) / ranks; }

// The elements of errors, of each rank: all in one hop, and in two hops between `nodes` nodes.
struct OneBitErrorCounts {
  // Of the array; in two hops of the part that a rank of a node adds up.
  int64_t local;
  // Of the part of that which one rank adds up.
  int64_t sum;
};
inline OneBitErrorCounts OneBitErrorCountsOf(int64_t count, int ranks, int nodes = 1) {
  if (nodes == 1) return {count, OneBitPart(count, ranks)};
  const int64_t local = OneBitPart(count, ranks / nodes);
  return {local, OneBitPart(local, nodes)};
}

// The two exchanges of an all-reduce of `count` elements: of bytes, a message a part. In two hops
// they are between nodes, of a part of the array, which is added up inside before them and gathered
// behind them.
struct OneBitCalls {
  CollectiveSignature exchange, gather;
  // Of two hops.
  CollectiveSignature sum_inside, gather_inside;
};
inline OneBitCalls OneBitCallsOf(int64_t count, int ranks, Algorithm algorithm = Algorithm::kAuto,
                                 int nodes = 1,
                                 precision::DType dtype = precision::DType::kFloat32) {
  const OneBitErrorCounts counts = OneBitErrorCountsOf(count, ranks, nodes);
  const int64_t bytes = kernels::SignBytes(counts.sum);
  constexpr auto kByte = precision::DType::kUint8;
  return {
      {.kind = CollectiveKind::kAllToAll, .dtype = kByte, .count = bytes},
      {.kind = CollectiveKind::kAllGather, .algorithm = algorithm, .dtype = kByte, .count = bytes},
      {.kind = CollectiveKind::kReduceScatter, .dtype = dtype, .count = counts.local},
      {.kind = CollectiveKind::kAllGather, .dtype = dtype, .count = counts.local}};
}

// What exchanges have left out so far, which enters the next one: the caller's, in fp32 and device
// memory, [OneBitErrorCountsOf], zero at the beginning. Save both with the state of a training.
// Only the mean over ranks of `local` enters the identity below: for another number of ranks each
// new rank may get that. Elements past the array's end keep their bits.
struct OneBitErrors {
  // Of this rank's array; in two hops of its node's sum.
  float* local = nullptr;
  // Of the sum of its part.
  float* sum = nullptr;
};

// The mean of arrays that cross the wire as signs, with error feedback, in two phases:
//
//   c_r = input_r + local_r;   s_r = norm2(c_r) / sqrt(count);   local_r = c_r - s_r sign(c_r)
//   of the part of each rank:  d = (s_0 sign(c_0) + s_1 sign(c_1) + ...) / size + sum
//                              t = norm2(d) / sqrt(elements of the part);   sum = d - t sign(d)
//   output = t sign(d) of each part
//
// so that at every step the sum over steps of outputs + mean over ranks of local + sum, in its
// part, is the sum over steps of the inputs' mean, but for roundings to fp32.
//
// Two hops     With communicators of nodes, c is of the sum of a node, which its ranks make by a
//              reduce-scatter (16 bits round it once), and the exchanges are between the nodes'
//              ranks of one place, of a part each: of m nodes of g ranks (m - 1) / (m g - 1) of the
//              signs leave a node that would in one hop, and there are 1/g as many errors. The mean
//              over ranks of `local` is then its sum over nodes, over the number of all ranks.
//
// Order        All ranks make the same calls in the same order; they take part in the order of the
//              communicator's other calls. A call runs after this object's earlier ones, whatever
//              stream they were on.
// Arrays       Memory of the stream's device. input, output: [count] of fp32, fp16 or bf16; output
//              may be input. One call for all tensors of a bucket: there is one scale. Parts of
//              other sizes, or of none, count as they are: no padding enters a norm.
// Determinism  All ranks get the same bits, on every engine and device.
// Not finite   If anywhere an element of c or d is NaN, infinite or 2^64 and more, the errors of
//              all ranks keep every bit, and outputs are NaN: all of them where it was of c, those
//              of the part where it was of d. In two hops that holds for each place in nodes alone:
//              the others' parts go on.
// Skipped      So they do if *state says that its step is skipped. It is read on the stream, behind
//              the exchange; all ranks give the same. What outputs hold is then of no use.
// Traffic      OneBitCallsOf's: 1/16 of a 16-bit all-reduce, and about 128 bytes from rank to rank.
//              In memory 32.4 bytes for each element of fp32, and 32.1 / size; in two hops those of
//              a part.
// Memory       Bytes, of purpose communication: two times 1/8 byte an element for messages, 4 bytes
//              for the error before the call, and 8 / size; in two hops those of a part, and 4 for
//              each element of the array.
// Errors       InvalidArgument for this rank's bad arguments: nothing happens, the others wait.
//              Everything else as Communicator; ranks whose parts differ in size, or in the
//              algorithm, are told, other types of the arrays are not noticed.
// Allocation   None in steady state, and no host wait.
// Lifetime     Communicator and context must outlive all calls. Once the communicator has failed it
//              must go first: other ranks may still read the messages.
// Threads      One thread at a time.
// Source       Tang et al., 1-bit Adam (arXiv 2102.02888), algorithm 1 and section 5.
class OneBitAllReduce {
 public:
  // For calls of up to `max_count` elements. In one hop over `communicator`, or in two over
  // `nodes`, whose ranks are numbered node by node in `communicator`; InvalidArgument if they are
  // not.
  static absl::StatusOr<std::unique_ptr<OneBitAllReduce>> Create(
      Communicator& communicator, device::Context& context, int64_t max_count,
      const NodeCommunicators& nodes = {});
  // What that allocates.
  static int64_t Bytes(int ranks, int64_t max_count, int nodes = 1);

  // `state`: device memory; null: the step is not skipped.
  absl::Status AllReduce(const void* input, void* output, int64_t count, precision::DType dtype,
                         const OneBitErrors& errors, const kernels::StepState* state,
                         const GatherOptions& options, device::Stream& stream);

 private:
  // Where things lie in `scratch_`, in bytes.
  struct Scratch {
    Scratch(int ranks, int64_t max_count);
    // Doubles of SignPack, first.
    int64_t doubles;
    // Of the last SignPack; the sum of a part; errors before the call.
    int64_t scale, sums, local, sum;
    int64_t end;
  };

  OneBitAllReduce(Communicator& communicator, const NodeCommunicators& nodes,
                  device::Context& context, int64_t max_count, MessageBuffer sent,
                  MessageBuffer received, MessageBuffer whole, device::Buffer scratch,
                  CallOrder order);

  // A call of arguments that are checked: in two hops that of its part.
  struct Call {
    const void* input;
    void* output;
    int64_t count;
    precision::DType dtype;
    const OneBitErrors& errors;
    const kernels::StepState* state;
    const GatherOptions& options;
  };
  absl::Status Exchange(const Call& call, device::Stream& stream);
  absl::Status InTwoHops(const OneBitCalls& calls, const Call& call, device::Stream& stream);

  // The ranks that exchange signs.
  Communicator& exchanging() const { return nodes_.present() ? *nodes_.between : communicator_; }
  int node_count() const { return nodes_.present() ? nodes_.between->size() : 1; }
  template <typename T>
  T* At(int64_t offset) const {
    return reinterpret_cast<T*>(scratch_.as<char>().data() + offset);
  }
  absl::Status Pack(absl::Span<const kernels::SignPackSegment> segments, precision::DType dtype,
                    device::Stream& stream);
  absl::Status Save(const OneBitErrors& errors, int64_t count, int64_t mine,
                    device::Stream& stream);

  Communicator& communicator_;
  const NodeCommunicators nodes_;
  device::Context& context_;
  const int64_t max_count_;
  // A message to, or of, each rank.
  const MessageBuffer sent_, received_;
  // In two hops the array, in parts of the ranks of a node.
  const MessageBuffer whole_;
  const Scratch layout_;
  const device::Buffer scratch_;
  CallOrder order_;
  std::vector<kernels::SignPackSegment> packs_;
  std::vector<kernels::SignUnpackSegment> unpacks_;
};

}  // namespace brigade::collectives

#endif  // BRIGADE_COLLECTIVES_COMPRESSED_ONE_BIT_ALL_REDUCE_H_
