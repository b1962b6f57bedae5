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
#include "brigade/device/threads/mutex.h"
#include "brigade/emulator/nccl/emulated_nccl.h"
#include "brigade/emulator/nccl/streams.h"

namespace brigade::emulator {

// What is enqueued, once or when the communicator has been polled for a while.
struct NcclWork {
  NcclStream stream = nullptr;
  std::optional<CollectivePart> collective;
  std::vector<TransferPart> transfers;
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
  std::shared_ptr<brigade::emulator::RankState> state;
  std::atomic<bool> inside{false};
  bool initialised = false;
  std::optional<brigade::emulator::NcclSplit> split;
  uint64_t splits = 0;
  bool hangs = false;
  brigade::emulator::NcclResult error = brigade::emulator::NcclResult::kSuccess;
  std::chrono::steady_clock::time_point error_at = std::chrono::steady_clock::time_point::max();
  int launches = 0;
  // Until a split is done, or `deferred` is enqueued.
  int polls_left = 0;
  bool is_deferred = false;
  brigade::emulator::NcclWork deferred, grouped;
};

namespace brigade::emulator {

struct NcclState {
  static NcclState& Get();

  device::Mutex mutex;
  std::atomic<NcclStreams*> streams = nullptr;
  // By name; this process has each of them once.
  std::map<std::string, std::weak_ptr<RankGroup>> groups ABSL_GUARDED_BY(mutex);
  std::set<NcclComm> live ABSL_GUARDED_BY(mutex);
  struct Registration {
    NcclComm comm;
    int rank;
    int64_t bytes;
  };
  // By address, which is the handle.
  std::map<void*, Registration> registered ABSL_GUARDED_BY(mutex);
  std::vector<EmulatedNccl::Fault> faults ABSL_GUARDED_BY(mutex);
  std::map<std::string, int, std::less<>> calls ABSL_GUARDED_BY(mutex);
  std::vector<std::string> misuses ABSL_GUARDED_BY(mutex);
  // Of the last call that was refused, or could not be carried out.
  std::string last_error ABSL_GUARDED_BY(mutex);
  int ids ABSL_GUARDED_BY(mutex) = 0;
  std::atomic<bool> capturing{false};
};

// Every function begins with one: counts the call, applies a fault, finds misuse, and refuses what
// NCCL refuses: a communicator that is null or gone, and one that is not ready.
class NcclEntry {
 public:
  // Of a function without a communicator.
  explicit NcclEntry(const char* function);
  NcclEntry(const char* function, NcclComm comm, bool may_be_in_progress = false);
  ~NcclEntry() {
    if (comm_ != nullptr) comm_->inside = false;
  }

  bool failed() const { return result_ != NcclResult::kSuccess; }
  NcclResult result() const { return result_; }
  // Whether there is no such communicator.
  bool is_gone() const { return is_gone_; }
  void Leave() { std::exchange(comm_, nullptr)->inside = false; }

 private:
  void Count(const char* function) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(NcclState::Get().mutex);
  void Refuse(const char* function, const char* why)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(NcclState::Get().mutex);
  void ApplyFaults(const char* function) ABSL_EXCLUSIVE_LOCKS_REQUIRED(NcclState::Get().mutex);
  void Apply(const EmulatedNccl::Fault& fault);

  NcclComm comm_;
  NcclResult result_ = NcclResult::kSuccess;
  bool is_gone_ = false;
};

NcclComm CreateComm(std::shared_ptr<RankState> state)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(NcclState::Get().mutex);

// Makes `rank` one of a group's, which other ranks know by the same name.
absl::Status JoinGroup(const std::string& name, int size, RankState& rank)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(NcclState::Get().mutex);

// Keeps the error for ncclGetLastError.
NcclResult SystemError(const absl::Status& error)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(NcclState::Get().mutex);

// Takes a split a step further; whether it is done.
absl::StatusOr<bool> Advance(ncclComm& comm) ABSL_EXCLUSIVE_LOCKS_REQUIRED(NcclState::Get().mutex);

// All of NCCL's, on one kind of streams in a process.
NcclApi NcclFunctions(NcclStreams& streams);

// The functions that enqueue.
void AddEnqueueCalls(NcclApi& api);

}  // namespace brigade::emulator

#endif  // BRIGADE_EMULATOR_NCCL_COMMUNICATOR_H_
