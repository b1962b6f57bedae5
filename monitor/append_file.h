#ifndef BRIGADE_MONITOR_APPEND_FILE_H_
#define BRIGADE_MONITOR_APPEND_FILE_H_

#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace brigade::monitor {

// A file that grows by whole pieces: a piece that did not fit on the disk leaves nothing behind,
// and the next one comes in its place.
//
// Errors       What the system says, naming the path.
// Threads      One at a time.
class AppendFile {
 public:
  // What is there stays; the file is made if it is not there.
  static absl::StatusOr<AppendFile> Open(const std::string& path);
  // AlreadyExists if it is there.
  static absl::StatusOr<AppendFile> Create(const std::string& path);

  const std::string& path() const { return path_; }
  int64_t size() const { return size_; }

  // Hands all of it to the system, or nothing.
  absl::Status Append(absl::string_view bytes);

  // Cuts off everything from the first line for which keep(line, with its end) is false, or which
  // has no end, or is longer than any line of ours.
  absl::Status KeepLines(absl::FunctionRef<bool(absl::string_view line)> keep);

 private:
  AppendFile(const std::string& path, std::FILE* file) : path_(path), file_(file, &std::fclose) {}

  absl::Status Failed(const char* what) const;

  std::string path_;
  // Written past its buffer, at `size_`.
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file_;
  int64_t size_ = 0;
};

// Makes a folder and those above it. Errors as above; FailedPrecondition of what is no folder.
absl::Status MakeFolder(const std::string& path);

}  // namespace brigade::monitor

#endif  // BRIGADE_MONITOR_APPEND_FILE_H_
