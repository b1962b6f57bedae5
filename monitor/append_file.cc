#include "brigade/monitor/append_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "brigade/device/files.h"
#include "brigade/device/printable.h"
#include "brigade/device/status_macros.h"

namespace brigade::monitor {
namespace {

// More than any line of these files has.
constexpr size_t kMostLineBytes = 64 * 1024;

}  // namespace

absl::Status AppendFile::Failed(const char* what) const {
  return absl::ErrnoToStatus(errno,
                             absl::StrCat("cannot ", what, " ", device::Printable(path_, 800)));
}

absl::StatusOr<AppendFile> AppendFile::Open(const std::string& path) {
  BRIGADE_ASSIGN_OR_RETURN(std::FILE* const opened, device::OpenForUpdate(path));
  AppendFile file(path, opened);
  struct stat status = {};
  if (fstat(fileno(opened), &status) != 0) return file.Failed("open");
  file.size_ = status.st_size;
  return file;
}

absl::StatusOr<AppendFile> AppendFile::Create(const std::string& path) {
  const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0666);
  std::FILE* const opened = fd < 0 ? nullptr : fdopen(fd, "r+b");
  if (opened == nullptr) {
    const absl::Status status =
        absl::ErrnoToStatus(errno, absl::StrCat("cannot make ", device::Printable(path, 800)));
    if (fd >= 0) close(fd);
    return status;
  }
  return AppendFile(path, opened);
}

absl::Status AppendFile::Append(absl::string_view bytes) {
  const int fd = fileno(file_.get());
  size_t written = 0;
  while (written < bytes.size()) {
    const ssize_t more = pwrite(fd, bytes.data() + written, bytes.size() - written,
                                static_cast<off_t>(size_) + static_cast<off_t>(written));
    if (more < 0 && errno == EINTR) continue;
    if (more <= 0) {
      if (more == 0) errno = ENOSPC;
      const absl::Status status = Failed("write");
      // If this fails too, the next piece is written over what is left.
      const int cut = written > 0 ? ftruncate(fd, static_cast<off_t>(size_)) : 0;
      static_cast<void>(cut);
      return status;
    }
    written += static_cast<size_t>(more);
  }
  size_ += static_cast<int64_t>(written);
  return absl::OkStatus();
}

absl::Status AppendFile::KeepLines(absl::FunctionRef<bool(absl::string_view line)> keep) {
  int64_t kept = 0;
  std::string line;
  std::rewind(file_.get());
  for (int c = 0; (c = std::fgetc(file_.get())) != EOF;) {
    line += static_cast<char>(c);
    if (line.size() > kMostLineBytes) break;
    if (c != '\n') continue;
    if (!keep(line)) break;
    kept += static_cast<int64_t>(line.size());
    line.clear();
  }
  if (std::ferror(file_.get()) != 0 || ftruncate(fileno(file_.get()), kept) != 0) {
    return Failed("go on with");
  }
  size_ = kept;
  return absl::OkStatus();
}

absl::Status MakeFolder(const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (!error && std::filesystem::is_directory(path, error)) return absl::OkStatus();
  const std::string why = error ? error.message() : "it is no folder";
  return absl::FailedPreconditionError(
      absl::StrCat("cannot make ", device::Printable(path, 800), ": ", why));
}

}  // namespace brigade::monitor
