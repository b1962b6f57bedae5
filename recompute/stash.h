#ifndef BRIGADE_RECOMPUTE_STASH_H_
#define BRIGADE_RECOMPUTE_STASH_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "brigade/device/buffer.h"
#include "brigade/device/context.h"
#include "brigade/device/event.h"
#include "brigade/device/file/file_options.h"
#include "brigade/device/file/file_store.h"
#include "brigade/device/stream.h"

namespace brigade::recompute {

// The reasons for which the compute stream and the stash's wait for each other.
enum class StashWait : uint8_t {
  // A copy to the host reads a state after compute has written it.
  kStateWritten,
  // Compute writes over a state after the copy to the host.
  kStashed,
  // A copy from the host writes to memory after compute's last use of it.
  kStashFree,
  // Compute reads a state after the copy from the host.
  kRestored,

  // With a file:
  // A copy to the host writes to memory after what was there has gone to the file.
  kWrittenToFile,
  // What is written to the file has been copied to the host.
  kOnHost,
  // What is read from the file goes to memory after what was there has been copied to the device.
  kOnDevice,
  // A copy from the host reads what has been read from the file.
  kReadFromFile,
};

// Bytes copied so far.
struct StashMovement {
  int64_t to_host = 0;
  int64_t from_host = 0;
  int64_t file_read = 0;
  int64_t file_written = 0;

  bool operator==(const StashMovement&) const = default;
};

// Carries out the operations on a slower tier of a schedule (schedule.h): inputs of stages go to
// the host's memory and come back, on a stream of its own, beside compute:
//
//   compute   forward 1  | forward 2 | forward 3 ...   backward 4 | save 3, backward 3 | save 2 ...
//   stash      write 1     | write 2                    fetch 3   | fetch 2
//
// Its stream makes the copies in the order of the calls, so a state is read back after it was
// written, and written anew after it was read back. In a file, a stream of the host writes and
// reads in that order, beside the copies, through two pieces of memory for each direction.
//
// Memory       Of the host, page-locked on CUDA: HostBytes, of purpose activations. All at Create.
// File         Two slots for each state (FileBytes). It has no name, and ends with the process.
// Stream       `compute` is the same stream in all calls. Allocates nothing, and waits on no host.
// Errors       Those of the streams, which an event carries from one to the other; then it is of no
//              use any more. A file's name the slot ("input of stage 3").
// Threads      One at a time. The memory of the states outlives it.
class Stash {
 public:
  // Slot s has room for slot_bytes[s], 0 or more: Schedule::written_bytes. On the host; with `file`
  // in a new one, of which `operations` and `crash_safety` are the stash's choice. Errors of
  // FileStore::Create.
  static absl::StatusOr<std::unique_ptr<Stash>> Create(absl::Span<const int64_t> slot_bytes,
                                                       device::Context& context,
                                                       const device::FileOptions* file = nullptr);
  static int64_t HostBytes(absl::Span<const int64_t> slot_bytes,
                           const device::FileOptions* file = nullptr);
  static int64_t FileBytes(absl::Span<const int64_t> slot_bytes);

  // Compute begins a pass that knows nothing of the copies so far: it may write over all states.
  absl::Status Begin(device::Stream& compute);
  // kWrite: copies what compute has written to `state`.
  absl::Status Write(int slot, const void* state, device::Stream& compute);
  // Before an operation with this after_write.
  absl::Status AwaitWrite(int slot, device::Stream& compute);
  // kFetch: copies the slot to `state`, which compute has used until now.
  absl::Status Fetch(int slot, void* state, device::Stream& compute);
  // kRead: what compute does from now on reads what is fetched.
  absl::Status AwaitFetch(int slot, device::Stream& compute);

  const StashMovement& movement() const { return movement_; }
  // Null without one.
  const device::FileStore* file() const { return file_.get(); }

 private:
  friend class StashTestPeer;

  // Of one state: on the host, or a chunk of the file.
  struct Slot {
    char* data = nullptr;
    int64_t chunk = -1;
    int64_t bytes = 0;
    // On the stash's stream.
    std::unique_ptr<device::Event> written, fetched;
  };

  // Memory of the host between the device and the file, in one direction: what fills it and what
  // empties it take turns.
  struct Passage {
    device::Buffer memory;
    std::unique_ptr<device::Event> filled, emptied;

    absl::Span<char> Bytes(const Slot& slot) const {
      return memory.as<char>().first(static_cast<size_t>(slot.bytes));
    }
  };
  // In turn, by how many states have gone through them.
  struct Passages {
    std::vector<Passage> all;
    size_t passed = 0;

    Passage& Next() { return all[passed++ % all.size()]; }
  };

  explicit Stash(size_t slots) : slots_(slots) {}

  absl::Status CreateFile(absl::Span<const int64_t> slot_bytes, const device::FileOptions& options,
                          device::Context& context);
  Slot& slot(int index) { return slots_[static_cast<size_t>(index)]; }
  absl::Status Wait(StashWait point, device::Event& event, device::Stream& waiter);
  absl::Status WriteToFile(const Slot& slot, Passage& from);
  absl::Status ReadFromFile(const Slot& slot, Passage& to);

  // Of the states, or of the file's store.
  device::Buffer memory_;
  std::vector<Slot> slots_;
  // With a file: its stream is a CPU's, of a context of its own beside a GPU.
  std::unique_ptr<device::Context> host_context_;
  std::unique_ptr<device::FileStore> file_;
  Passages to_file_, from_file_;
  std::unique_ptr<device::Stream> file_stream_;
  // On the compute stream: what it has done when a copy may begin. On the stash's: the copies to
  // the host so far.
  std::unique_ptr<device::Event> computed_, all_written_;
  // The first to go, with its copies over.
  std::unique_ptr<device::Stream> stream_;
  StashMovement movement_;
  // Wait does nothing at this point: with it a test shows that the race checker reports the wait's
  // absence.
  std::optional<StashWait> omitted_;
};

}  // namespace brigade::recompute

#endif  // BRIGADE_RECOMPUTE_STASH_H_
