#ifndef BRIGADE_EMULATOR_NCCL_RANK_GROUP_H_
#define BRIGADE_EMULATOR_NCCL_RANK_GROUP_H_

// What the ranks of a communicator share: where their "kernels" wait for each other.

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "brigade/emulator/nccl/emulated_nccl.h"

namespace brigade::emulator {

// One rank's part of a collective. In a group's Run its addresses are the host's.
struct CollectivePart {
  enum class Kind : uint8_t { kAllReduce, kReduceScatter, kAllGather, kBroadcast };
  Kind kind = Kind::kAllReduce;
  const void* input = nullptr;
  void* output = nullptr;
  size_t count = 0;
  NcclType type = NcclType::kUint8;
  NcclOp op = NcclOp::kSum;
  int root = 0;

  // Only the root of a broadcast reads.
  bool Reads(int rank) const { return kind != Kind::kBroadcast || rank == root; }
};

// One send or receive of a group of calls.
struct TransferPart {
  bool sends = false;
  void* data = nullptr;
  size_t bytes = 0;
  int peer = 0;
};

// As many transfers are enqueued and run without an allocation.
inline constexpr size_t kFewTransfers = 160;

// 0 of a type that is not here.
size_t BytesOf(NcclType type);
size_t InputBytes(const CollectivePart& part, int size);
size_t OutputBytes(const CollectivePart& part, int size);

// Like NCCL's kernels: they wait, without a limit, for those of the other ranks, and when aborted
// they end without an error and leave their output as it is. Collectives that differ wait for ever.
//
// Processes    Ranks may be threads of several processes of one host: the state lies in POSIX
//              shared memory, and the last rank that comes reaches the arrays of the others by
//              process_vm_readv and process_vm_writev.
// Errors       Unavailable if the system refuses those, or shared memory: in the kernels of all
//              ranks of the collective.
class RankGroup {
 public:
  // The group of that name, the same one for all that ask in all processes until all ranks have
  // joined. InvalidArgument if the others have another size.
  static absl::StatusOr<std::shared_ptr<RankGroup>> Open(const std::string& name, int size);
  ~RankGroup();

  const std::string& name() const { return name_; }
  int size() const { return size_; }

  // InvalidArgument if there is such a rank already.
  absl::Status Join(int rank);
  bool is_complete() const;

  // In the stream's worker. `number` counts this rank's collectives. Whether it has its results:
  // not when it was aborted.
  absl::StatusOr<bool> Run(int rank, uint64_t number, const CollectivePart& mine,
                           const std::atomic<bool>& aborted);
  absl::StatusOr<bool> Run(int rank, absl::Span<const TransferPart> transfers,
                           const std::atomic<bool>& aborted);

  // After `aborted` has been set: the rank's kernels end, and nobody reaches their arrays any more.
  void Withdraw(int rank);

  // `number` counts this rank's splits; `color` is -1 for a rank that gets nothing.
  void PostSplit(int rank, uint64_t number, int color, int key);
  // This rank's place among those of its color; none before all ranks have posted.
  struct Place {
    int rank = 0, size = 0;
  };
  std::optional<Place> PlaceInSplit(int rank, uint64_t number);

 private:
  struct Shared;
  struct CollectivePost;
  struct SplitPost;
  struct Mail;
  struct Layout;

  RankGroup(std::string name, int size, Shared* shared)
      : name_(name), size_(size), shared_(shared) {}

  absl::Status Take(int rank, const TransferPart& receive);
  // Nobody takes what the rank has sent. The lock is held.
  void WithdrawMail(int rank);

  absl::Span<bool> Joined();
  absl::Span<CollectivePost> CollectivePosts(uint64_t number);
  absl::Span<SplitPost> SplitPosts(uint64_t number);
  Mail& MailOf(int from, int to);
  absl::Status Compute(absl::Span<const CollectivePost> posts);
  absl::Status Reduce(absl::Span<const CollectivePost> posts, size_t begin, size_t count,
                      char* result);

  const std::string name_;
  const int size_;
  Shared* const shared_;
  // A rank of this process.
  std::atomic<bool> has_joined_{false};
  // Of the rank that computes; the lock is held.
  std::vector<char> results_, fetched_;
};

}  // namespace brigade::emulator

#endif  // BRIGADE_EMULATOR_NCCL_RANK_GROUP_H_
