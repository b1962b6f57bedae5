#ifndef BRIGADE_DEVICE_FILE_STORE_VERSIONS_H_
#define BRIGADE_DEVICE_FILE_STORE_VERSIONS_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "brigade/device/file/file_options.h"
#include "brigade/device/file/store_file.h"
#include "brigade/device/file/store_table.h"
#include "brigade/device/operation.h"
#include "brigade/device/threads/mutex.h"

namespace brigade::device::internal {

// Which slot of each chunk is current, and which was written since: in memory, and, with a
// CrashSafety, in the table of the file, which is written before a commit counts here.
//
// Errors       Those of the file. A table that could not be written may be on the disk all the
//              same; from then on BeginWrite and Commit return its error, because a crash would
//              find that commit, with what is written next in it.
// Allocation   None after the constructor.
// Threads      Safe from any thread.
class StoreVersions {
 public:
  // `file` outlives it, and so does `table`: TableBytes, on an address that kFileBlockBytes
  // divides. Empty for CrashSafety::kNone.
  StoreVersions(const StoreFile& file, absl::Span<const int64_t> chunk_bytes, CrashSafety safety,
                absl::Span<char> table);

  // Of a new file: nothing is committed. Of one that is there: its last commit.
  absl::Status Create();
  absl::Status Open();

  ChunkVersion Current(int64_t chunk) const;
  // The slot that is not current, to be written from now on: what was written before is forgotten.
  absl::StatusOr<int32_t> BeginWrite(int64_t chunk);
  // All of it was written.
  void EndWrite(int64_t chunk, const ChunkVersion& written);

  // What was written since the last Commit or Abandon is current.
  absl::Status Commit();
  // It is forgotten.
  void Abandon();

  // That have ended, those that Open found included.
  int64_t commits() const { return commits_.load(std::memory_order_acquire); }

  // What the race checker hears of operations that read or change versions. It does not hear of the
  // mutex, which orders none of them.
  Access ReadsCurrent(int64_t chunk) const {
    return Reads(&current_[At(chunk)], sizeof(ChunkVersion));
  }
  Access WritesWritten(int64_t chunk) { return Writes(&written_[At(chunk)], sizeof(ChunkVersion)); }
  Access WritesAllCurrent() { return Writes(current_.data(), AllBytes()); }
  Access WritesAllWritten() { return Writes(written_.data(), AllBytes()); }

 private:
  static size_t At(int64_t chunk) { return static_cast<size_t>(chunk); }
  int64_t AllBytes() const { return static_cast<int64_t>(current_.size() * sizeof(ChunkVersion)); }
  bool syncs() const { return safety_ == CrashSafety::kMachine; }

  absl::Status WriteTable(absl::Span<const ChunkVersion> versions, int64_t commits)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const StoreFile& file_;
  const CrashSafety safety_;
  const uint32_t layout_sum_;
  const uint32_t boot_sum_ = BootSum();
  mutable Mutex mutex_;
  // Their sizes stay. Their contents are guarded by the mutex.
  std::vector<ChunkVersion> current_;
  // Slot -1: nothing.
  std::vector<ChunkVersion> written_;
  std::vector<ChunkVersion> next_ ABSL_GUARDED_BY(mutex_);
  const absl::Span<char> table_ ABSL_GUARDED_BY(mutex_);
  // Of a table that could not be written.
  absl::Status broken_ ABSL_GUARDED_BY(mutex_);
  std::atomic<int64_t> commits_{0};
};

}  // namespace brigade::device::internal

#endif  // BRIGADE_DEVICE_FILE_STORE_VERSIONS_H_
