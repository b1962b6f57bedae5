#ifndef BRIGADE_CHECKPOINT_STAGING_H_
#define BRIGADE_CHECKPOINT_STAGING_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "brigade/checkpoint/layout.h"
#include "brigade/device/buffer.h"
#include "brigade/device/context.h"
#include "brigade/device/event.h"
#include "brigade/device/stream.h"
#include "brigade/kernels/step_control/step_state.h"
#include "brigade/zero/zero_optimizer.h"

namespace brigade::checkpoint {

// Takes the state that a rank owns through a bounded ring of page-locked memory, chunk by chunk,
// beside the forward and backward passes that follow.
//
// Memory       `ring_bytes`, page-locked, or less where the rank owns less; at least two chunks.
// Threads      Begin where steps are enqueued; the others on one thread at a time, then.
class Staging {
 public:
  // A part of a piece, in a chunk.
  struct Part {
    // Of the pieces given to Create.
    int piece = 0;
    // Bytes in the piece, and in the chunk.
    int64_t offset = 0;
    int64_t at = 0;
    int64_t bytes = 0;
  };
  struct Chunk {
    absl::Span<const Part> parts;
    const char* data = nullptr;
  };

  // All must outlive it. `pieces`: what this rank owns, in the order in which it is taken.
  static absl::StatusOr<std::unique_ptr<Staging>> Create(std::vector<Piece> pieces,
                                                         const Layout& layout, int64_t ring_bytes,
                                                         int64_t chunk_bytes,
                                                         zero::ZeroOptimizer& zero,
                                                         device::Context& context);
  ~Staging();

  int64_t ring_bytes() const { return ring_.bytes(); }

  // Borrows the state, and enqueues copies of as many chunks as there is room for. Never waits. If
  // that is all, the state is given back. FailedPrecondition, on all ranks, if it is not to be had
  // now (LendState); every other error is one of TakeState.
  absl::Status Begin();

  // The step state, once it has arrived: waits.
  absl::StatusOr<kernels::StepState> TakeState();

  int chunks() const { return static_cast<int>(chunks_.size()); }
  // Chunk `index`, once it has arrived: waits. It stays until Release(index), which makes room for
  // the copy of another one. In order: Take(0), Release(0), Take(1), ...
  absl::StatusOr<Chunk> Take(int index);
  absl::Status Release(int index);

  // Gives the state back if it is not: chunks that were not copied never arrive. Waits for the
  // copies.
  absl::Status End();

 private:
  // A chunk before it is anywhere: [first, last) of parts_.
  struct Cut {
    size_t first = 0;
    size_t last = 0;
  };

  Staging(std::vector<Piece> pieces, const Layout& layout, zero::ZeroOptimizer& zero)
      : pieces_(std::move(pieces)), layout_(layout), zero_(zero) {}

  // Of a part, elements of the rank's slice of an array of a bucket.
  struct Source {
    int bucket = 0;
    int array = 0;
    zero::ElementRange range = {};
  };

  void CutIntoChunks(int64_t chunk_bytes);
  char* SlotOf(int index);
  absl::Status EnqueueFirst();
  absl::Status EnqueueNext();
  absl::Status GiveBack();

  const std::vector<Piece> pieces_;
  const Layout& layout_;
  zero::ZeroOptimizer& zero_;
  std::vector<Part> parts_;
  std::vector<Cut> chunks_;
  int64_t slot_bytes_ = 0;
  device::Buffer ring_, state_;
  std::vector<std::unique_ptr<device::Event>> arrived_;
  std::unique_ptr<device::Event> state_arrived_;
  // Copies are enqueued of the chunks before this one.
  int next_ = 0;
  bool borrowed_ = false;
  // Of the copies that Begin enqueues.
  absl::Status enqueued_;
  // Last: its destruction waits for the copies.
  std::unique_ptr<device::Stream> stream_;
};

}  // namespace brigade::checkpoint

#endif  // BRIGADE_CHECKPOINT_STAGING_H_
