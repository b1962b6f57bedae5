#ifndef BRIGADE_EMULATOR_NCCL_RANK_GROUP_H_
#define BRIGADE_EMULATOR_NCCL_RANK_GROUP_H_

// What the ranks of a communicator of EmulatedNccl share: the meeting place of their "kernels".

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "absl/types/span.h"
#include "brigade/device/threads/thread_pool.h"
#include "brigade/emulator/nccl/emulated_nccl.h"

namespace brigade::emulator {

// One rank's part of a collective.
struct CollectivePart {
  enum class Kind : uint8_t { kAllReduce, kReduceScatter, kAllGather, kBroadcast };
  Kind kind = Kind::kAllReduce;
  const void* input = nullptr;
  void* output = nullptr;
  size_t count = 0;
  NcclType type = NcclType::kUint8;
  NcclOp op = NcclOp::kSum;
  int root = 0;
};

// One send or receive of a group.
struct TransferPart {
  bool sends = false;
  void* data = nullptr;
  size_t bytes = 0;
  int peer = 0;
};

size_t BytesOf(NcclType type);

// Like NCCL's kernels: they wait, without a limit, for those of the other ranks, and when aborted
// they end without an error and leave their output as it is. Collectives that differ wait for ever.
class RankGroup {
 public:
  explicit RankGroup(int size);

  int size() const { return size_; }

  // In the stream's worker. `number` counts this communicator's collectives.
  void Run(int rank, uint64_t number, const CollectivePart& mine, const std::atomic<bool>& aborted,
           device::ThreadPool& pool);
  void Run(int rank, absl::Span<const TransferPart> transfers, const std::atomic<bool>& aborted);

  // After `aborted` has been set.
  void Wake();

  std::atomic<int> joined{0};

 private:
  struct Slot {
    std::vector<CollectivePart> posts;  // [rank]
    std::vector<char> there;            // [rank]
    int arrived = 0;
    // Number + 1 of the last collective that was complete.
    uint64_t done = 0;
  };
  struct Mail {
    std::vector<TransferPart> messages;
    uint64_t posted = 0, taken = 0;
  };

  bool AreAlike(const Slot& slot) const;
  void Compute(const Slot& slot, device::ThreadPool& pool);
  void Reduce(const Slot& slot, size_t begin, size_t count, char* result, device::ThreadPool& pool);
  Mail& MailOf(int from, int to) { return mail_[static_cast<size_t>(from * size_ + to)]; }

  const int size_;
  std::mutex mutex_;
  std::condition_variable changed_;
  // No rank is further ahead than by one.
  std::array<Slot, 2> slots_;
  std::vector<Mail> mail_;
  std::vector<char> results_;
};

}  // namespace brigade::emulator

#endif  // BRIGADE_EMULATOR_NCCL_RANK_GROUP_H_
