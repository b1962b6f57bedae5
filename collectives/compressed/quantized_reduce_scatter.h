#ifndef BRIGADE_COLLECTIVES_COMPRESSED_QUANTIZED_REDUCE_SCATTER_H_
#define BRIGADE_COLLECTIVES_COMPRESSED_QUANTIZED_REDUCE_SCATTER_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "brigade/collectives/collective.h"
#include "brigade/collectives/communicator.h"
#include "brigade/collectives/compressed/codec_call.h"
#include "brigade/collectives/compressed/node_groups.h"
#include "brigade/collectives/engines/call_order.h"
#include "brigade/device/buffer.h"
#include "brigade/device/context.h"
#include "brigade/device/stream.h"
#include "brigade/kernels/block_quant/block_quant_math.h"
#include "brigade/kernels/dequant_reduce/dequant_reduce_math.h"
#include "brigade/kernels/loco_quant/loco_quant_math.h"
#include "brigade/precision/dtype.h"

namespace brigade::collectives {

// The all-to-alls that carry a sum with parts of `count` elements: of bytes, a message of all codes
// that go from one rank to another. In one hop `inside` is between all ranks; in two hops between
// those of a node, and `between` between those that have one place in `nodes` nodes.
struct QuantizedScatterCalls {
  CollectiveSignature inside, between;
};
inline QuantizedScatterCalls QuantizedScatterCallsOf(int64_t count, kernels::QuantFormat format,
                                                     int nodes = 1) {
  const int64_t bytes = kernels::QuantBytes(count, format);
  const auto exchange = [](int64_t each) {
    return CollectiveSignature{
        .kind = CollectiveKind::kAllToAll, .dtype = precision::DType::kUint8, .count = each};
  };
  return {exchange(nodes * bytes), exchange(bytes)};
}

// The bytes of errors, of each rank: all in one hop, and in two hops between `nodes` nodes.
struct QuantizedErrorBytes {
  // Of the array: a message of each part.
  int64_t local;
  // In two hops, of the sums inside the node: a message for each node.
  int64_t sum;
};
inline QuantizedErrorBytes QuantizedErrorBytesOf(int64_t count, int ranks, int nodes = 1) {
  const int64_t each = kernels::QuantBytes(count, kernels::kLocoErrors);
  return {ranks * each, nodes == 1 ? 0 : nodes * each};
}

// Error feedback (kernels/loco_quant): what messages leave out enters those of the next call. The
// errors are the caller's, in device memory at multiples of 64, of QuantizedErrorBytesOf, zeros at
// the beginning.
struct QuantizedFeedback {
  void* local = nullptr;
  // Not looked at in one hop.
  void* sum = nullptr;
  kernels::LocoParameters parameters = {};
};

// A reduce-scatter of arrays that cross the wire as int8 or int4 codes (kernels/block_quant): qgZ
// of ZeRO++.
//
//   one hop   output of rank r = factor * (q(part r of rank 0) + q(part r of rank 1) + ...)
//   two hops  output of rank r = factor * (q(sum of node 0) + q(sum of node 1) + ...),
//             where the sum of a node is that of its ranks' q(part r)
//
// q is what codes keep of an array. Sums are fp32, in ascending order of ranks and of nodes.
//
// Feedback     With a QuantizedFeedback q is what LocoQuantize's messages keep: what they leave out
//              enters the next call. Each part has an error of its own, and in two hops each sum of
//              a node. A block that is not finite keeps its error bit for bit; errors before a call
//              that is to count for nothing are the caller's to save.
//
// Order        All ranks make the same calls in the same order; they take part in the order of the
//              communicators' other calls. A call runs after this object's earlier ones, whatever
//              stream they were on.
// Arrays       Memory of the stream's device, fp32, fp16 or bf16: input [size * count], output
//              [count]; output may be input + rank * count.
// Precision    Each q as BlockQuantize. Of int4 an element's error is at most 1/14 of the largest
//              magnitude in its block, for each rank, and once more for each node.
// Determinism  The same bits on every engine and device, by the numbers of ranks and nodes.
// Not finite   A block of 256 elements that holds an infinity or NaN on one rank is NaN, all of it,
//              in the sum.
// Traffic      QuantizedScatterCallsOf's: with int4 0.26 of 16 bits, and between g ranks of a node
//              and m nodes (m - 1) / m of 1 / g of that leaves the node. The communicators count.
//              In memory, with c bytes of codes an element, for each element of the input of b
//              bytes b + 2 c + b / p; 2 c / g more in two hops. Feedback adds 2.03, and in two
//              hops 10.03 / g.
// Memory       Bytes, of purpose communication.
// Errors       InvalidArgument for this rank's bad arguments: nothing happens, the others wait.
//              Everything else as Communicator; ranks whose counts or formats differ are told,
//              other types and factors are not noticed. An error of one hop's communicator ends
//              that one alone: who gets it ends the other ones too.
// Allocation   None in steady state, and no host wait.
// Lifetime     Communicators and context must outlive all calls. Once a communicator has failed it
//              must go first: other ranks may still read the messages.
// Threads      One thread at a time.
// Source       Wang et al., ZeRO++ (arXiv 2306.10209), with scales that reach the maximum.
class QuantizedReduceScatter {
 public:
  // For calls of up to `max_count` elements of a part. In one hop over `communicator`, or in two
  // over `nodes`, whose ranks are numbered node by node in `communicator`; InvalidArgument if they
  // are not. Without `has_feedback` no call in two hops has one.
  static absl::StatusOr<std::unique_ptr<QuantizedReduceScatter>> Create(
      Communicator& communicator, const NodeCommunicators& nodes, device::Context& context,
      int64_t max_count, kernels::QuantFormat format, bool has_feedback = false);
  // What that allocates. `feedback_nodes`: more than 1 with feedback in two hops.
  static int64_t Bytes(int ranks, int64_t max_count, kernels::QuantFormat format,
                       int feedback_nodes = 1) {
    return 2 * ranks * kernels::QuantBytes(max_count, format) +
           SumsBytes(max_count, feedback_nodes);
  }

  absl::Status ReduceScatter(const void* input, void* output, int64_t count, precision::DType dtype,
                             float factor, device::Stream& stream) {
    return ReduceScatter(input, output, count, dtype, factor, nullptr, stream);
  }
  // `feedback`: null, or with errors.
  absl::Status ReduceScatter(const void* input, void* output, int64_t count, precision::DType dtype,
                             float factor, const QuantizedFeedback* feedback,
                             device::Stream& stream);

 private:
  QuantizedReduceScatter(Communicator& communicator, const NodeCommunicators& nodes,
                         device::Context& context, int64_t max_count, kernels::QuantFormat format,
                         MessageBuffer sent, MessageBuffer received, device::Buffer node_sums,
                         CallOrder order);

  // Of the sums of nodes before they are messages.
  static int64_t SumsBytes(int64_t max_count, int nodes) {
    constexpr auto kFloat = static_cast<int64_t>(sizeof(float));
    return nodes == 1 ? 0 : nodes * max_count * kFloat;
  }

  int node_count() const { return nodes_.present() ? nodes_.between->size() : 1; }
  absl::Status CheckFeedback(const QuantizedFeedback& feedback, const void* input, void* output,
                             int64_t count, precision::DType dtype, device::Stream& stream) const;
  absl::Status Quantize(const void* input, int64_t count, precision::DType dtype,
                        const QuantizedFeedback* feedback, device::Stream& stream);
  // The sum inside this node of what each node's rank with this one's place is to add, as messages.
  absl::Status SumInside(const QuantizedScatterCalls& calls, int64_t count,
                         const QuantizedFeedback* feedback, device::Stream& stream);

  Communicator& communicator_;
  const NodeCommunicators nodes_;
  device::Context& context_;
  const int64_t max_count_;
  const kernels::QuantFormat format_;
  // [size] messages each, by place in a node and then by node.
  const MessageBuffer sent_, received_;
  // Of two hops with feedback.
  const device::Buffer node_sums_;
  CallOrder order_;
  std::vector<kernels::QuantizeSegment> parts_;
  std::vector<kernels::DequantReduceSegment> sums_;
  // Of parts, and of sums of nodes.
  std::vector<kernels::LocoSegment> loco_parts_, loco_sums_;
};

}  // namespace brigade::collectives

#endif  // BRIGADE_COLLECTIVES_COMPRESSED_QUANTIZED_REDUCE_SCATTER_H_
