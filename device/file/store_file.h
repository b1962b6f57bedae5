#ifndef BRIGADE_DEVICE_FILE_STORE_FILE_H_
#define BRIGADE_DEVICE_FILE_STORE_FILE_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "brigade/device/file/file_transfer.h"
#include "brigade/device/file/system_calls.h"

namespace brigade::device::internal {

// The file of a store: open, with room on the disk for all its bytes.
//
// Errors       What the system says, naming the path.
class StoreFile {
 public:
  // A new one. `purpose` says for what the bytes are: "2 slots of 12 chunks". With `direct`, past
  // the page cache if the file system takes that. Without `keeps_name` its name goes before its
  // room is taken; it lives as long as it is open.
  static absl::StatusOr<StoreFile> Create(SystemCalls& system, const std::string& directory,
                                          absl::string_view name, int64_t bytes,
                                          absl::string_view purpose, bool direct, bool keeps_name);
  // One that is there, with that size or more.
  static absl::StatusOr<StoreFile> Open(SystemCalls& system, const std::string& directory,
                                        absl::string_view name, int64_t bytes, bool direct);
  StoreFile(StoreFile&& other) noexcept;
  StoreFile& operator=(StoreFile&&) = delete;
  ~StoreFile();

  int fd() const { return fd_; }
  const std::string& path() const { return path_; }
  bool direct() const { return direct_; }
  const FileAlignment& alignment() const { return alignment_; }
  // "direct, aligned to 512 bytes", "buffered, because ...".
  const std::string& mode() const { return mode_; }

  // DataLoss if it has become shorter, or, unless its name was taken away here, has lost its name.
  absl::Status Check() const;

  // All of them, at a multiple of kFileBlockBytes, as address and length are.
  absl::Status Read(absl::Span<char> to, int64_t offset) const;
  absl::Status Write(absl::Span<const char> from, int64_t offset) const;
  // What was written is on the disk; the name is with SyncDirectory.
  absl::Status Sync() const;
  absl::Status SyncDirectory() const;

 private:
  StoreFile(SystemCalls& system, const std::string& directory, absl::string_view name,
            int64_t bytes);

  absl::Status Fail(absl::string_view what) const;
  absl::Status TakeRoom(absl::string_view purpose);
  absl::Status NoRoom(absl::string_view purpose, const absl::Status& cause) const;
  // FailedPrecondition if another one has it open, here or in another process.
  absl::Status Lock() const;
  // Goes past the page cache, if that goes.
  void TryDirect();

  SystemCalls* system_;
  std::string directory_;
  std::string path_;
  int64_t bytes_;
  int fd_ = -1;
  bool has_name_ = true;
  bool direct_ = false;
  FileAlignment alignment_;
  std::string mode_ = "buffered";
};

}  // namespace brigade::device::internal

#endif  // BRIGADE_DEVICE_FILE_STORE_FILE_H_
