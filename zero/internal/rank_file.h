#ifndef BRIGADE_ZERO_INTERNAL_RANK_FILE_H_
#define BRIGADE_ZERO_INTERNAL_RANK_FILE_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "brigade/device/buffer.h"
#include "brigade/device/context.h"
#include "brigade/device/event.h"
#include "brigade/device/file/file_store.h"
#include "brigade/device/stream.h"
#include "brigade/device/threads/mutex.h"
#include "brigade/kernels/step_control/step_state.h"
#include "brigade/zero/internal/step_streams.h"
#include "brigade/zero/options.h"
#include "brigade/zero/plan/file_layout.h"
#include "brigade/zero/plan/plan.h"

namespace brigade::zero::internal {

// A rank's file, and the page-locked memory through which its chunks go:
//
//   from the file       chunk 0 | chunk 1 | chunk 2 | chunk 3
//   host                          update 0 | update 1 | update 2 | update 3
//   to the file                            chunk 0 | chunk 1 | chunk 2 | chunk 3 | commit
//   weights from file   of the unit that is gathered next                        of the next step
//
// A chunk always has the same slot of memory: its index modulo their number. The first chunks of a
// step are read before the step is decided, beside the passes. A step that is skipped reads no
// others and writes none; one that fails is not committed.
class RankFile {
 public:
  // A new file in which all is zero; waits. ResourceExhausted if it has no room, saying how much is
  // needed for what.
  static absl::StatusOr<std::unique_ptr<RankFile>> Create(const Plan& plan,
                                                          const ZeroOptions& options,
                                                          StepStreams& streams);

  const FileLayout& layout() const { return layout_; }
  const device::FileStore& store() const { return *store_; }

  // The memory that a chunk of the optimizer state, or of weights that the host makes, goes
  // through.
  device::Buffer& Memory(int64_t chunk) { return OutOf(chunk).memory; }

  // In a step, all enqueued. The host's stream changes chunks of the state between ReadState and
  // Write, and writes weights between AwaitMemory and Write. BeginStep comes first, Commit last,
  // with the host's copy of the step's decision.
  absl::Status BeginStep();
  absl::Status ReadState(int64_t chunk, const kernels::StepState* decision);
  absl::Status AwaitMemory(int64_t chunk);
  absl::Status Write(int64_t chunk, const kernels::StepState* decision);
  absl::Status Commit(const kernels::StepState* decision);
  // What `stream` does from now on comes after that commit.
  absl::Status AwaitCommit(device::Stream& stream) {
    return streams_.Wait(WaitPoint::kCommitted, *committed_, stream);
  }

  // In a pass: the stream of copies to the device copies a bucket's weights to `target`.
  absl::Status RaiseWeights(int bucket, void* target);

  // At setup: `fill` writes the chunk into memory, and all that it enqueues has ended when it
  // returns. Waits until there is memory, not for the write.
  absl::Status Fill(int64_t chunk, absl::FunctionRef<absl::Status(char* memory)> fill);
  // All that was filled is the state of this step; waits.
  absl::Status FinishFilling(const kernels::StepState& state);

  // Copies what was committed of an array of a bucket's optimizer state (array 0 also: of frozen
  // weights), some elements of the slice, to the host's memory, as work on `stream`.
  absl::Status Copy(int bucket, int array, ElementRange range, void* to, device::Stream& stream);
  // The same at setup: the slice of an array. Waits.
  absl::Status CopyNow(int bucket, int array, void* to);

  // The step state that belongs to what is committed. No work of a step is enqueued.
  const kernels::StepState& state() const { return state_.as<kernels::StepState>()[0]; }

  // Forgets a step that failed. All streams are idle and without an error.
  absl::Status Reset();

 private:
  struct Slot {
    device::Buffer memory;
    // It holds what was read from the file, or what the host has made of it; nobody needs it.
    std::unique_ptr<device::Event> read, updated, free;
  };

  RankFile(const Plan& plan, const ZeroOptions& options, StepStreams& streams)
      : plan_(plan), options_(options), streams_(streams), layout_(plan, options) {}

  // `freer` records that a slot is free.
  absl::StatusOr<std::vector<Slot>> CreateSlots(bool is_state, const char* name,
                                                device::Context& freer);
  absl::Status WriteZeros();
  absl::Status EnqueueReads(int bucket, int array, ElementRange range, void* to);
  absl::Span<char> BytesOf(Slot& slot, int64_t chunk) const;
  Slot& OutOf(int64_t chunk);

  const Plan& plan_;
  const ZeroOptions& options_;
  StepStreams& streams_;
  const FileLayout layout_;
  // The store's.
  device::Buffer blocks_;
  std::unique_ptr<device::FileStore> store_;
  // Of the optimizer state; of weights on their way to the file, and to the device.
  std::vector<Slot> states_, weights_, raised_;
  // Of weights that were raised since Create.
  size_t raises_ = 0;
  // On the stream to the file.
  std::unique_ptr<device::Event> committed_;
  device::Buffer state_;
  // Of Copy, whose callers have threads of their own: on the caller's stream, and on that from the
  // file.
  device::Mutex copy_mutex_;
  std::unique_ptr<device::Event> asked_, copied_;
};

}  // namespace brigade::zero::internal

#endif  // BRIGADE_ZERO_INTERNAL_RANK_FILE_H_
