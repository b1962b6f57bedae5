#ifndef BRIGADE_PARALLEL_CONTEXT_ULYSSES_H_
#define BRIGADE_PARALLEL_CONTEXT_ULYSSES_H_

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "brigade/collectives/communicator.h"
#include "brigade/device/buffer.h"
#include "brigade/device/context.h"
#include "brigade/device/stream.h"
#include "brigade/nn/attention.h"
#include "brigade/parallel/context/head_exchange_math.h"

namespace brigade::parallel {

// Attention over texts whose positions are cut over context ranks: rank r has position r of c equal
// parts of every text, for everything else that a model does. For attention the ranks exchange
// positions for heads and back, so that each has all positions of 1/c of the heads.
//
// Shapes       With s positions and width n of all heads: qkv, dqkv [batch * s/c, 3 n], out, dout
//              [batch * s/c, n] as nn::Attention's, of this rank's positions.
// Precision    nn::Attention of the rank's heads.
// Memory       Bytes, scratch, at Create. What the backward pass needs of the forward pass is the
//              caller's (Saved).
// Traffic      A rank sends (c-1)/c of an array of its positions in each exchange: of 3 n and of n
//              columns in each pass.
// Aliasing     None.
// Stream       Enqueued as the communicator's calls are; allocates nothing. Calls of all ranks, all
//              on one stream.
// Determinism  Out has the same bits for any number of ranks, and so has dqkv on GPUs; on the CPU
//              those of dqkv are the same for numbers of ranks with batch * heads / c of at least
//              16: below, nn::AttentionBackward adds up gradients of queries in parts, by its
//              number of heads.
// Source       Jacobs et al. 2023 (arXiv 2309.14509).
class Ulysses {
 public:
  // What the forward pass leaves for the backward pass: device memory.
  struct Saved {
    // [batch * s, 3 n / c], [batch * s, n / c].
    void* qkv = nullptr;
    void* out = nullptr;
    // nn::AttentionShape::statistics of local_shape().
    void* log_sum_exp = nullptr;
  };

  // `shape`: of whole texts and all heads. `ranks` must outlive it.
  //
  // Errors       InvalidArgument naming both numbers for heads or a context that the ranks do not
  //              divide, or a width that the heads do not; those of Context::Allocate.
  static absl::StatusOr<std::unique_ptr<Ulysses>> Create(const nn::AttentionShape& shape,
                                                         collectives::Communicator& ranks,
                                                         device::Context& context);

  static int64_t Bytes(const nn::AttentionShape& shape, int ranks, device::Device device);

  // An exchange of so many matrices: one or three in each.
  static collectives::CollectiveSignature SignatureOf(const nn::AttentionShape& shape, int ranks,
                                                      int64_t parts);

  // What this rank attends to: whole texts, its heads.
  const nn::AttentionShape& local_shape() const { return local_; }

  // The calls that follow are of so many texts, at most those of Create: the arrays' first ones.
  // The same on all ranks. InvalidArgument naming both numbers.
  absl::Status SetBatch(int64_t texts);

  // The forward pass: saved.qkv, and from it all else, so that either can be made again.
  absl::Status GatherQkv(const void* qkv, const Saved& saved, device::Stream& stream);
  absl::Status Attend(const Saved& saved, void* out, device::Stream& stream);
  absl::Status Backward(const void* dout, const Saved& saved, void* dqkv, device::Stream& stream);

 private:
  Ulysses(const nn::AttentionShape& shape, collectives::Communicator& ranks, device::Buffer memory);

  absl::Status Exchange(int64_t parts, PieceOrder from_order, const void* from, PieceOrder to_order,
                        void* to, device::Stream& stream);
  // From this rank's positions of all heads to all positions of its heads, and back.
  absl::Status GatherPositions(int64_t parts, const void* mine, void* all, device::Stream& stream);
  absl::Status GatherHeads(int64_t parts, const void* all, void* mine, device::Stream& stream);

  const int64_t most_texts_;
  nn::AttentionShape shape_, local_;
  collectives::Communicator& ranks_;
  const device::Buffer memory_;
  // In the memory: what is sent and received, gradients of this rank's heads, attention's
  // workspace.
  char *sent_, *received_, *dout_, *dqkv_, *workspace_;
};

}  // namespace brigade::parallel

#endif  // BRIGADE_PARALLEL_CONTEXT_ULYSSES_H_
