#ifndef BRIGADE_TESTS_COLLECTIVES_ENGINES_NCCL_FAKE_WORLD_H_
#define BRIGADE_TESTS_COLLECTIVES_ENGINES_NCCL_FAKE_WORLD_H_

// What FakeNccl's functions share: its communicators, and the record of who calls what.

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
#include "brigade/tests/collectives/engines/nccl/fake_group.h"
#include "brigade/tests/collectives/engines/nccl/fake_nccl.h"

namespace brigade::collectives {

// What kernels of a rank need, also when its communicator is gone.
struct FakeRank {
  // Null until the ranks of a split are known.
  std::shared_ptr<FakeGroup> group;
  int rank = 0;
  std::atomic<bool> aborted{false};
};

// A collective, or the transfers of a group.
struct FakeWork {
  device::Stream* stream = nullptr;
  std::optional<FakeCollective> collective;
  std::vector<FakeTransfer> transfers;
};

// The calls of ncclCommSplit that belong together.
struct FakeSplit {
  struct Post {
    int color = -1, key = 0;
    std::shared_ptr<FakeRank> child;
  };
  std::map<int, Post> posts;  // by rank
  bool resolved = false;
};

}  // namespace brigade::collectives

struct ncclComm {
  std::shared_ptr<brigade::collectives::FakeRank> state =
      std::make_shared<brigade::collectives::FakeRank>();
  std::atomic<bool> inside{false};
  bool initialised = false;
  const brigade::collectives::FakeSplit* splitting = nullptr;  // for which it waits
  bool hangs = false;
  brigade::collectives::NcclResult error = brigade::collectives::NcclResult::kSuccess;
  std::chrono::steady_clock::time_point error_at = std::chrono::steady_clock::time_point::max();
  uint64_t collectives = 0;
  int launches = 0;
  int polls_left = 0;  // until `deferred` is enqueued
  brigade::collectives::FakeWork deferred, grouped;
  std::vector<brigade::device::Access> accesses;
};

namespace brigade::collectives {

struct FakeWorld {
  static FakeWorld& Get();

  std::mutex mutex;
  std::map<std::string, std::shared_ptr<FakeGroup>> groups;  // by unique id
  std::map<std::shared_ptr<FakeGroup>, std::vector<std::unique_ptr<FakeSplit>>> splits;
  std::set<NcclComm> live;
  struct Registration {
    NcclComm comm;
    int rank;
    int64_t bytes;
  };
  // By address, which is the handle.
  std::map<void*, Registration> registered;
  std::vector<FakeNccl::Fault> faults;
  std::map<std::string, int, std::less<>> calls;
  std::vector<std::string> misuses;
  int ids = 0;
  std::atomic<bool> capturing{false};
};

// Every function begins with one: counts the call, applies a fault, and finds misuse.
class FakeEntry {
 public:
  explicit FakeEntry(const char* function, NcclComm comm = nullptr,
                     bool may_be_in_progress = false);
  ~FakeEntry() {
    if (comm_ != nullptr) comm_->inside = false;
  }

  bool failed() const { return result_ != NcclResult::kSuccess; }
  NcclResult result() const { return result_; }
  bool is_gone() const { return is_gone_; }  // the communicator
  void Leave() { std::exchange(comm_, nullptr)->inside = false; }

 private:
  void Apply(const FakeNccl::Fault& fault);

  NcclComm comm_;
  NcclResult result_ = NcclResult::kSuccess;
  bool is_gone_ = false;
};

// The functions that enqueue.
void AddFakeCalls(NcclApi& api);

}  // namespace brigade::collectives

#endif  // BRIGADE_TESTS_COLLECTIVES_ENGINES_NCCL_FAKE_WORLD_H_
