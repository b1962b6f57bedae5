#ifndef BRIGADE_CHECKPOINT_DURABLE_FILE_H_
#define BRIGADE_CHECKPOINT_DURABLE_FILE_H_

// Files and folders whose content is on the disk when the call says so.
//
// Errors       What the system says, naming the path and what was being done. A sync that has
//              failed or was interrupted is not repeated: the system may have forgotten what it did
//              not write (Rebello et al., 2020).

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "brigade/device/file/system_calls.h"

namespace brigade::checkpoint {

// "cannot WHAT PATH: ", and what errno says. For all errors of this package.
absl::Status Failed(absl::string_view what, absl::string_view path);

// A path in a message: at most 400 bytes of it, none that a terminal obeys.
std::string PrintablePath(absl::string_view path);

// A file that is written at any offsets.
class WritableFile {
 public:
  // AlreadyExists if there is one. Takes room for `bytes`.
  static absl::StatusOr<WritableFile> Create(device::SystemCalls& system, const std::string& path,
                                             int64_t bytes);
  // One that another process, or another part of this one, has created for several to write.
  static absl::StatusOr<WritableFile> Open(device::SystemCalls& system, const std::string& path);
  WritableFile(WritableFile&& other) noexcept;
  WritableFile& operator=(WritableFile&&) = delete;
  // Closes it; what was not finished may be lost.
  ~WritableFile();

  // At once, where the file system can: ResourceExhausted on a full disk. The file's size is what
  // Write makes it.
  absl::Status TakeRoom(int64_t bytes) const;

  // In any order; several at a time from several threads. The bytes begin to go to the disk, so
  // that few are left to Finish.
  absl::Status Write(absl::string_view bytes, int64_t offset) const;

  // All bytes are on the disk, the name is when the folder is (SyncFolder). The last call.
  absl::Status Finish();

 private:
  WritableFile(device::SystemCalls& system, const std::string& path, int fd)
      : system_(&system), path_(path), fd_(fd) {}

  device::SystemCalls* system_;
  std::string path_;
  int fd_;
};

// An existing file, from any thread.
class RandomAccessFile {
 public:
  // InvalidArgument for what is no regular file, or a link to one.
  static absl::StatusOr<RandomAccessFile> Open(device::SystemCalls& system,
                                               const std::string& path);
  RandomAccessFile(RandomAccessFile&& other) noexcept;
  RandomAccessFile& operator=(RandomAccessFile&&) = delete;
  ~RandomAccessFile();

  // At the time of Open, in bytes.
  int64_t size() const { return size_; }
  // All `bytes` bytes; DataLoss if the file ends before, or the disk cannot read them (EIO).
  absl::Status Read(void* to, int64_t bytes, int64_t offset) const;
  // These are read soon: the disk may begin.
  void BeginToRead(int64_t bytes, int64_t offset) const;

 private:
  RandomAccessFile(device::SystemCalls& system, const std::string& path, int fd, int64_t size)
      : system_(&system), path_(path), fd_(fd), size_(size) {}

  device::SystemCalls* system_;
  std::string path_;
  int fd_;
  int64_t size_;
};

// The names in the folder are on the disk. OK without a sync where this user may not read the
// folder, or the file system writes names by itself (EINVAL).
absl::Status SyncFolder(device::SystemCalls& system, const std::string& path);

// Removes a folder and the files in it, as far as it can. What another one removes meanwhile is
// gone.
absl::Status RemoveFolderWithFiles(device::SystemCalls& system, const std::string& path);

}  // namespace brigade::checkpoint

#endif  // BRIGADE_CHECKPOINT_DURABLE_FILE_H_
