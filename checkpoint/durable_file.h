#ifndef BRIGADE_CHECKPOINT_DURABLE_FILE_H_
#define BRIGADE_CHECKPOINT_DURABLE_FILE_H_

// Files and folders whose content is on the disk when the call says so.
//
// Errors       What the system says, naming the path and what was being done. A sync that has
//              failed is not repeated: the system has forgotten what it did not write (Rebello et
//              al., 2020).

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "brigade/checkpoint/system_calls.h"

namespace brigade::checkpoint {

// A new file.
class OutputFile {
 public:
  // AlreadyExists if there is one. Room for `bytes` is taken at once, where the file system can:
  // ResourceExhausted on a full disk.
  static absl::StatusOr<OutputFile> Create(SystemCalls& system, const std::string& path,
                                           int64_t bytes);
  OutputFile(OutputFile&& other) noexcept;
  OutputFile& operator=(OutputFile&&) = delete;
  // Closes it; what was not finished may be lost.
  ~OutputFile();

  // In any order; several at a time from several threads. The bytes begin to go to the disk, so
  // that few are left to Finish.
  absl::Status Write(absl::string_view bytes, int64_t offset) const;

  // All bytes are on the disk, the name is when the folder is (SyncFolder). The last call.
  absl::Status Finish();

 private:
  OutputFile(SystemCalls& system, const std::string& path, int fd)
      : system_(&system), path_(path), fd_(fd) {}

  SystemCalls* system_;
  std::string path_;
  int fd_;
};

// An existing file, from any thread.
class InputFile {
 public:
  // InvalidArgument for what is no regular file, or a link to one.
  static absl::StatusOr<InputFile> Open(SystemCalls& system, const std::string& path);
  InputFile(InputFile&& other) noexcept;
  InputFile& operator=(InputFile&&) = delete;
  ~InputFile();

  // At the time of Open, in bytes.
  int64_t size() const { return size_; }
  // All `bytes` bytes; DataLoss if the file ends before.
  absl::Status Read(void* to, int64_t bytes, int64_t offset) const;

 private:
  InputFile(SystemCalls& system, const std::string& path, int fd, int64_t size)
      : system_(&system), path_(path), fd_(fd), size_(size) {}

  SystemCalls* system_;
  std::string path_;
  int fd_;
  int64_t size_;
};

// The names in the folder are on the disk.
absl::Status SyncFolder(SystemCalls& system, const std::string& path);

// Removes a folder and the files in it, as far as it can.
absl::Status RemoveFolderWithFiles(SystemCalls& system, const std::string& path);

}  // namespace brigade::checkpoint

#endif  // BRIGADE_CHECKPOINT_DURABLE_FILE_H_
