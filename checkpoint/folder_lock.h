#ifndef BRIGADE_CHECKPOINT_FOLDER_LOCK_H_
#define BRIGADE_CHECKPOINT_FOLDER_LOCK_H_

#include <string>

#include "absl/status/statusor.h"
#include "brigade/device/file/system_calls.h"

namespace brigade::checkpoint {

// Keeps other trainings from saving into a folder: they would take the unfinished saves of this one
// for litter. It is a lock (flock) on a file ".lock" in the folder, which stays there.
//
// Lifetime     Until destruction, or the end of the process, however it ends.
// NFS          The server has the lock, for all hosts. Of a host that has crashed it keeps it until
//              its lease is over (90 s), or, before version 4, until the host is there again.
//              A file system without locks, or one that is mounted without, has none of this.
class FolderLock {
 public:
  // Ranks of one training give the same `token`, of 16 characters that no other one gives: the
  // first of those that see the same folder has the lock for all of them. Waits for a process that
  // is about to end, at most 5 s. FailedPrecondition, naming the folder, if another training has
  // it.
  static absl::StatusOr<FolderLock> Take(device::SystemCalls& system, const std::string& folder,
                                         const std::string& token);
  FolderLock(FolderLock&& other) noexcept;
  FolderLock& operator=(FolderLock&&) = delete;
  ~FolderLock();

 private:
  FolderLock(device::SystemCalls& system, int fd) : system_(&system), fd_(fd) {}

  device::SystemCalls* system_;
  // -1: another rank has it, or there are no locks.
  int fd_;
};

}  // namespace brigade::checkpoint

#endif  // BRIGADE_CHECKPOINT_FOLDER_LOCK_H_
