#ifndef BRIGADE_EMULATOR_NCCL_COMMUNICATOR_H_
#define BRIGADE_EMULATOR_NCCL_COMMUNICATOR_H_

// What EmulatedNccl's functions share: its communicators, and the record of who calls what.

#include <atomic>
#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "brigade/device/threads/mutex.h"
#include "brigade/emulator/nccl/emulated_nccl.h"
#include "brigade/emulator/nccl/streams.h"

namespace brigade::emulator {

// What is enqueued at once: a call, or those of a group. The transfers are one kernel, behind the
// collectives.
struct NcclWork {
  NcclStream stream = nullptr;
  std::vector<CollectivePart> collectives;
  std::vector<TransferPart> transfers;

  void Clear() {
    collectives.clear();
    transfers.clear();
  }
};

// A split that is in progress.
struct NcclSplit {
  uint64_t number = 0;
  int color = -1;
  // Made when all ranks have said where they go.
  std::shared_ptr<RankState> state;
  // Where the caller wants it.
  NcclComm* child = nullptr;
};

}  // namespace brigade::emulator

struct ncclComm {
  // Null when it is gone.
  std::shared_ptr<brigade::emulator::RankState> state;
  // The same, as kernels share it. Null when no more are enqueued: kernels_ended is set when the
  // last one lets it go.
  std::shared_ptr<brigade::emulator::RankState> kernels;
  std::atomic<bool> inside{false};
  bool initialised = false;
  std::optional<brigade::emulator::NcclSplit> split;
  uint64_t splits = 0;
  bool hangs = false;
  // ncclCommFinalize, or ncclCommRevoke, has been called.
  bool finalized = false, revoked = false;
  // One of these ends when the kernels have.
  bool awaits_kernels = false;
  // Once its time has come, every call has it.
  brigade::emulator::NcclResult error = brigade::emulator::NcclResult::kSuccess;
  std::chrono::steady_clock::time_point error_at = std::chrono::steady_clock::time_point::max();
  int launches = 0;
  // Until what is in progress is done, or `deferred` is enqueued.
  int polls_left = 0;
  bool is_deferred = false;
  brigade::emulator::NcclWork deferred, grouped;

  brigade::emulator::NcclResult Error() const;
  void Keep(brigade::emulator::NcclResult new_error);
  bool InProgress() const;
};

namespace brigade::emulator {

struct NcclState {
  static NcclState& Get();

  // Keeps it, and gives it to the streams.
  void AddMisuse(const std::string& misuse) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  // Of the last call that was refused, or could not be carried out.
  void SetLastError(std::string error);

  device::Mutex mutex;
  std::atomic<NcclStreams*> streams = nullptr;
  // By name; this process has each of them once.
  std::map<std::string, std::weak_ptr<RankGroup>> groups ABSL_GUARDED_BY(mutex);
  // Also those that are gone: a stale handle is never another communicator's.
  std::vector<std::unique_ptr<ncclComm>> comms ABSL_GUARDED_BY(mutex);
  std::set<NcclComm> live ABSL_GUARDED_BY(mutex);
  struct Registration {
    int rank = 0;
    int64_t bytes = 0;
    int times = 0;
  };
  // By communicator and address, which is the handle.
  std::map<std::pair<NcclComm, void*>, Registration> registered ABSL_GUARDED_BY(mutex);
  std::vector<EmulatedNccl::Fault> faults ABSL_GUARDED_BY(mutex);
  std::map<std::string, int, std::less<>> calls ABSL_GUARDED_BY(mutex);
  std::vector<std::string> misuses ABSL_GUARDED_BY(mutex);
  std::string last_error ABSL_GUARDED_BY(mutex);
  int ids ABSL_GUARDED_BY(mutex) = 0;
  std::atomic<bool> capturing{false};
};

// Begins a function: counts the call, applies a fault, finds misuse, and refuses what NCCL refuses:
// a communicator that is null or gone and, where the function needs a ready one, one that is in
// progress or has an error.
class NcclEntry {
 public:
  enum class Needs : uint8_t { kReady, kLive };

  // Of a function without a communicator.
  explicit NcclEntry(const char* function);
  NcclEntry(const char* function, NcclComm comm, Needs needs = Needs::kReady);
  ~NcclEntry() {
    if (is_inside_) comm_->inside = false;
  }
  NcclEntry(const NcclEntry&) = delete;
  NcclEntry& operator=(const NcclEntry&) = delete;

  bool failed() const { return result_ != NcclResult::kSuccess; }
  NcclResult result() const { return result_; }
  bool has_error() const { return failed() && result_ != NcclResult::kInProgress; }
  // Whether there is no such communicator.
  bool is_gone() const { return is_gone_; }

  // Reports a misuse; the function's result, which is returned.
  NcclResult Refuse(NcclResult result, absl::string_view why);
  // The communicator keeps the error that the function has, as NCCL's calls that work in the
  // background do; not that it was in progress, and not once it has been revoked. Returns the
  // result.
  NcclResult KeepError();

 private:
  void Begin() ABSL_EXCLUSIVE_LOCKS_REQUIRED(NcclState::Get().mutex);
  void RefuseLocked(absl::string_view why) ABSL_EXCLUSIVE_LOCKS_REQUIRED(NcclState::Get().mutex);
  void ApplyFaults() ABSL_EXCLUSIVE_LOCKS_REQUIRED(NcclState::Get().mutex);
  void Apply(const EmulatedNccl::Fault& fault);

  const char* const function_;
  NcclComm comm_ = nullptr;
  NcclResult result_ = NcclResult::kSuccess;
  bool is_gone_ = false;
  // No other thread was when this one came.
  bool is_inside_ = false;
  bool was_in_progress_ = false;
};

NcclComm CreateComm(std::shared_ptr<RankState> state)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(NcclState::Get().mutex);

std::shared_ptr<RankState> CreateRank(int rank);

// Makes `rank` one of a group's, which other ranks know by the same name. InvalidArgument if the
// group has another size, or such a rank.
absl::Status JoinGroup(const std::string& name, int size, RankState& rank)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(NcclState::Get().mutex);

// Takes a split a step further; whether it is done.
absl::StatusOr<bool> Advance(ncclComm& comm) ABSL_EXCLUSIVE_LOCKS_REQUIRED(NcclState::Get().mutex);

// All of NCCL's, on one kind of streams in a process.
NcclApi NcclFunctions(NcclStreams& streams);

// The functions that enqueue.
void AddEnqueueCalls(NcclApi& api);

}  // namespace brigade::emulator

#endif  // BRIGADE_EMULATOR_NCCL_COMMUNICATOR_H_
