#ifndef BRIGADE_CHECKPOINT_SAVER_H_
#define BRIGADE_CHECKPOINT_SAVER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "brigade/checkpoint/fields.h"
#include "brigade/checkpoint/layout.h"
#include "brigade/checkpoint/model_part.h"
#include "brigade/checkpoint/write_mode.h"
#include "brigade/collectives/communicator.h"
#include "brigade/device/context.h"
#include "brigade/device/file/system_calls.h"
#include "brigade/zero/zero_optimizer.h"

namespace brigade::checkpoint {

struct SaverOptions {
  // The folder of the checkpoints; made at Create if it is not there, in a folder that is.
  std::string root;
  WriteMode mode = WriteMode::kInPlace;
  // How many checkpoints stay once a new one is saved; 0: all.
  int keep = 0;
  // Of page-locked memory: at most so much of what a rank owns waits to be written, or two chunks
  // of it. The next update waits for the rest: so if that is more than this, ranks wait for the
  // slowest disk, and for no longer than the communicator's timeout.
  int64_t staging_bytes = int64_t{256} << 20;
  int64_t chunk_bytes = int64_t{4} << 20;
  // In place rank 0 has all files open at a time, and syncs each once: so few files.
  int64_t file_bytes = Layout::kFileBytes;
};

struct SaveReport {
  // Of the step state: how many steps the training had made, skipped ones included. It names the
  // folder.
  int64_t iteration = 0;
  std::string path;
  // Of all files of all ranks, without the manifest.
  int64_t bytes = 0;
  // From Begin until it was on the disk, and older ones were gone.
  double seconds = 0;
  // OK, or why older checkpoints that should have gone are there.
  absl::Status older_removed = {};
};

// Saves a training while it goes on. The folder is the same, byte for byte, in every stage and for
// any number of ranks (kInPlace), and is a checkpoint as a whole or not at all, whatever fails
// meanwhile: docs/checkpoints.md.
//
// Host waits   Begin does not wait for device, disk or ranks. ZeroOptimizer::Step waits while it
//              must not overwrite what is not copied yet: never on the host if staging_bytes are
//              a multiple of chunk_bytes that is no less than what the rank owns. Wait waits for
//              all. A system call that never returns, as of a file server that is gone, cannot be
//              cancelled: Wait, the destructor, and a Step that needs room in the ring then never
//              return either.
// Memory       Of page-locked memory as many whole chunks as staging_bytes have, at least two, and
//              no more than the rank owns.
// Errors       Of any rank: on all ranks, naming the first rank that has one. The training goes on,
//              nothing of the save is left, so that the same step can be saved again, and older
//              checkpoints stay as they are. Once the ranks cannot speak with each other any more,
//              every save fails: one that had its name by then, or whose name the disk does not
//              take back, is there, whole, on some hosts or all.
// Threads      Calls from one thread; two of its own.
class Saver {
 public:
  // A call of all ranks; waits. `communicator` is of all ranks that have parts of the model, and
  // `part` says which this rank's group has. All but the part must outlive the saver. On all ranks:
  // InvalidArgument for options that differ between them, and, naming the parameter, for a part
  // that does not fit, and unless each parameter of the model is saved by one group; what the
  // system says of a root that cannot have checkpoints, FailedPrecondition for one to which another
  // saver saves, of this process or of another one (FolderLock: until this one is destroyed),
  // ResourceExhausted without two threads.
  static absl::StatusOr<std::unique_ptr<Saver>> Create(
      const SaverOptions& options, zero::ZeroOptimizer& zero,
      collectives::Communicator& communicator, device::Context& context,
      device::SystemCalls& system = device::SystemCalls::Real(), const ModelPart& part = {});

  // Gives up a save that is in flight, on all ranks.
  ~Saver();
  Saver(const Saver&) = delete;
  Saver& operator=(const Saver&) = delete;

  // Begins to save the state between two steps; a call of all ranks, at the same step. `training`
  // is what the loader compares beside model and options: seed, data, batch; rank 0's is saved.
  // FailedPrecondition, with nothing begun, while a save is in flight and in the middle of a step;
  // all else is an error of Poll and Wait. So is a save that is in flight on another rank alone,
  // where Poll has not told its end yet.
  absl::Status Begin(const Fields& training);

  // A save was begun, and neither Poll nor Wait has told its end.
  bool in_flight() const;

  // The end of the save, told once; nothing while there is none. Never waits. Ranks may see it at
  // different times.
  absl::StatusOr<std::optional<SaveReport>> Poll();
  // Waits for it. FailedPrecondition without a save in flight.
  absl::StatusOr<SaveReport> Wait();

  // Page-locked memory.
  int64_t staging_bytes() const;

 private:
  class Impl;
  explicit Saver(std::unique_ptr<Impl> impl);

  const std::unique_ptr<Impl> impl_;
};

}  // namespace brigade::checkpoint

#endif  // BRIGADE_CHECKPOINT_SAVER_H_
