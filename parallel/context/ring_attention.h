#ifndef BRIGADE_PARALLEL_CONTEXT_RING_ATTENTION_H_
#define BRIGADE_PARALLEL_CONTEXT_RING_ATTENTION_H_

#include <cstdint>
#include <memory>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "brigade/collectives/communicator.h"
#include "brigade/device/buffer.h"
#include "brigade/device/context.h"
#include "brigade/device/event.h"
#include "brigade/device/stream.h"
#include "brigade/nn/attention_block.h"

namespace brigade::parallel {

namespace internal {

// The reasons for which one stream of a ring waits for another.
enum class RingWait : uint8_t {
  // Keys and values are sent after they have been laid side by side.
  kPacked,
  // Compute reads keys and values that have come.
  kReceived,
  // Others come to the place of keys and values that compute has read.
  kRead,
  // Sums of gradients are sent on after this rank has added its part.
  kAdded,
  // This rank adds its part to sums that have come, or takes those that came home.
  kSumsReceived,
};

}  // namespace internal

// Causal attention over texts whose positions are cut over context ranks, for any number of heads.
// Rank r of c has two chunks of every text (ZigzagRuns), and keeps its queries; keys and values go
// round, one hop for each block of scores, beside the block's computation. Blocks of keys that no
// query of a rank sees are left out: each rank computes as much, 1/c of the work.
//
//   c = 4, rank 1: chunks 1 and 6. Step 0: its own keys; then those of ranks 0, 3 and 2.
//     keys of rank   1: 1 6      0: 0 7      3: 3 4      2: 2 5      x: all, \: up to the own place
//     chunk 1           \ .         x .         . .         . .      .: left out
//     chunk 6           x \         x .         x x         x x
//
// In the backward pass keys and values go round once more, and behind them the sums of their
// gradients, to which each rank adds its part: they come home after c hops.
//
// Shapes       With s positions and width n of all heads: qkv, dqkv [batch * s/c, 3 n], out, dout
//              [batch * s/c, n] as nn::Attention's, of this rank's positions in ascending order;
//              log_sum_exp [batch, heads, s/c] of float (double for double), of all keys.
// Precision    Blocks are nn::AttentionOfBlock; they are merged, and gradients added up over blocks
//              and ranks, in float (double for double), and rounded once. The constant of the
//              softmax's gradient is made of `out`, rounded to the type. On one rank all is
//              nn::Attention.
// Memory       Bytes, scratch, at Create.
// Traffic      Forward c-1 hops of keys and values; backward these and c hops of the sums: of
//              2 n columns of the rank's positions, the sums in float (double for double).
// Aliasing     None.
// Stream       Computed on the caller's stream, the same for all calls, and exchanged on a stream
//              of its own: what is enqueued after a call runs after it. Allocates nothing, never
//              waits. Calls of all ranks, in one order. Other calls of the communicator between two
//              of them change no result, but a hop waits for those before it: what is not to hold a
//              ring up has a communicator of its own.
// Determinism  The same bits in every run, on every engine, for any number of threads. A rank
//              merges blocks in the order of the hops: its own, then those of ranks r-1, r-2, ...;
//              gradients of a rank's keys are added up in the order r, r+1, .... Bits therefore
//              depend on c, but for `out` and log_sum_exp of the text's first s/2c positions, which
//              are those of nn::Attention.
// Errors       Create: InvalidArgument naming both numbers for positions that 2c does not divide,
//              and for a width that the heads do not; those of Context::Allocate and CreateStream.
//              SetBatch: InvalidArgument naming both numbers. Calls: those of the communicator.
// Source       Liu et al. 2023 (arXiv 2310.01889); the chunks: Zhu 2024 (zigzag ring attention),
//              Brandon et al. 2023 (arXiv 2311.09431).
class RingAttention {
 public:
  // `shape`: of whole texts and all heads. `ranks` must outlive it.
  static absl::StatusOr<std::unique_ptr<RingAttention>> Create(const nn::AttentionShape& shape,
                                                               collectives::Communicator& ranks,
                                                               device::Context& context);

  static int64_t Bytes(const nn::AttentionShape& shape, int ranks, device::Device device);

  // A hop of keys and values, and one of the sums of their gradients.
  static collectives::CollectiveSignature SignatureOf(const nn::AttentionShape& shape, int ranks);
  static collectives::CollectiveSignature SignatureOfSums(const nn::AttentionShape& shape,
                                                          int ranks);

  // This rank's positions, of all heads.
  const nn::AttentionShape& local_shape() const { return local_; }

  // The calls that follow are of so many texts, at most those of Create: the arrays' first ones.
  // The same on all ranks.
  absl::Status SetBatch(int64_t texts);

  absl::Status Forward(const void* qkv, void* out, void* log_sum_exp, device::Stream& stream);
  // From what the forward pass read and wrote.
  absl::Status Backward(const void* qkv, const void* out, const void* log_sum_exp, const void* dout,
                        void* dqkv, device::Stream& stream);

 private:
  // With it a test shows that the race checker reports a wait's absence.
  friend class RingAttentionTestPeer;

  RingAttention(const nn::AttentionShape& shape, collectives::Communicator& ranks,
                device::Buffer memory);

  // What of this rank's queries meets what of the keys that come in a step, from rank - step.
  nn::AttentionBlock BlockOf(int step) const;
  absl::Status Wait(internal::RingWait point, device::Event& event, device::Stream& waiter);
  // Keys and values from qkv to the place of step 0.
  absl::Status Pack(const void* qkv, device::Stream& stream);
  // One hop of the keys and values of a step, and of the sums that `stream` has added to.
  absl::Status SendKeys(int step);
  absl::Status SendSums(int step, device::Stream& stream);

  const int64_t most_texts_;
  nn::AttentionShape shape_, local_;
  collectives::Communicator& ranks_;
  const device::Buffer memory_;
  std::unique_ptr<device::Stream> comm_;
  std::unique_ptr<device::Event> packed_, received_, read_, added_, sums_received_;
  // The point at which the ring does not wait.
  std::optional<internal::RingWait> omitted_;
  // In the memory: keys and values of this step and the next, and sums likewise; what a step adds
  // to the result or to the sums; the result, or the gradient of queries; attention's workspace.
  char *keys_[2], *sums_[2], *part_, *part_log_sum_exp_, *total_, *workspace_;
};

}  // namespace brigade::parallel

#endif  // BRIGADE_PARALLEL_CONTEXT_RING_ATTENTION_H_
