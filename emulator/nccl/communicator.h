#ifndef BRIGADE_EMULATOR_NCCL_COMMUNICATOR_H_
#define BRIGADE_EMULATOR_NCCL_COMMUNICATOR_H_

// What EmulatedNccl's functions share: its communicators, and the record of who calls what.

#include <atomic>
#include <chrono>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "brigade/device/stream.h"
#include "brigade/emulator/nccl/emulated_nccl.h"
#include "brigade/emulator/nccl/rank_group.h"

namespace brigade::emulator {

// What kernels of a rank need, also when its communicator is gone.
struct RankState {
  // Null until the ranks of a split are known.
  std::shared_ptr<RankGroup> group;
  int rank = 0;
  std::atomic<bool> aborted{false};
};

// A collective, or the transfers of a group.
struct Work {
  device::Stream* stream = nullptr;
  std::optional<CollectivePart> collective;
  std::vector<TransferPart> transfers;
};

// The calls of ncclCommSplit that belong together.
struct Split {
  struct Post {
    int color = -1, key = 0;
    // Null for a rank that gets nothing.
    std::shared_ptr<RankState> child;
  };
  std::map<int, Post> posts;  // by rank
  bool resolved = false;
};

}  // namespace brigade::emulator

struct ncclComm {
  std::shared_ptr<brigade::emulator::RankState> state;
  std::atomic<bool> inside{false};
  bool initialised = false;
  // For which it waits, what becomes of it, and where the caller wants that.
  const brigade::emulator::Split* splitting = nullptr;
  std::shared_ptr<brigade::emulator::RankState> child_state;
  ncclComm** child = nullptr;
  bool hangs = false;
  brigade::emulator::NcclResult error = brigade::emulator::NcclResult::kSuccess;
  std::chrono::steady_clock::time_point error_at = std::chrono::steady_clock::time_point::max();
  uint64_t collectives = 0;
  int launches = 0;
  int polls_left = 0;  // until a split is done, or `deferred` is enqueued
  brigade::emulator::Work deferred, grouped;
  std::vector<brigade::device::Access> accesses;
};

namespace brigade::emulator {

struct NcclState {
  static NcclState& Get();

  std::mutex mutex;
  std::map<std::string, std::shared_ptr<RankGroup>> groups;  // by unique id
  std::map<std::shared_ptr<RankGroup>, std::vector<std::unique_ptr<Split>>> splits;
  std::set<NcclComm> live;
  struct Registration {
    NcclComm comm;
    int rank;
    int64_t bytes;
  };
  // By address, which is the handle.
  std::map<void*, Registration> registered;
  std::vector<EmulatedNccl::Fault> faults;
  std::map<std::string, int, std::less<>> calls;
  std::vector<std::string> misuses;
  int ids = 0;
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
  void Count(const char* function) const;
  void Refuse(const char* function, const char* why);
  void ApplyFaults(const char* function);
  void Apply(const EmulatedNccl::Fault& fault);

  NcclComm comm_;
  NcclResult result_ = NcclResult::kSuccess;
  bool is_gone_ = false;
};

// NcclState::mutex is held.
NcclComm CreateComm(std::shared_ptr<RankState> state);

// The functions that enqueue.
void AddEnqueueCalls(NcclApi& api);

}  // namespace brigade::emulator

#endif  // BRIGADE_EMULATOR_NCCL_COMMUNICATOR_H_
