#include "brigade/device/append_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "brigade/device/files.h"
#include "brigade/device/printable.h"
#include "brigade/device/status_macros.h"

namespace brigade::device {
namespace {

// More than any line of these files has.
constexpr size_t kMostLineBytes = 64 * 1024;

}  // namespace

absl::Status AppendFile::Failed(const char* what) const {
  return absl::ErrnoToStatus(errno, absl::StrCat("cannot ", what, " ", Printable(path_, 800)));
}

absl::StatusOr<AppendFile> AppendFile::Own(const std::string& path, std::FILE* opened) {
  AppendFile file(path, opened);
  const int fd = fileno(opened);
  // Whatever others do meanwhile, a piece comes behind theirs.
  const int flags = fcntl(fd, F_GETFL);
  struct stat status = {};
  if (flags < 0 || fcntl(fd, F_SETFL, flags | O_APPEND) != 0 || fstat(fd, &status) != 0) {
    return file.Failed("open");
  }
  file.size_ = file.end_ = status.st_size;
  file.has_name_ = status.st_nlink > 0;
  return file;
}

absl::StatusOr<AppendFile> AppendFile::Open(const std::string& path) {
  BRIGADE_ASSIGN_OR_RETURN(std::FILE* const opened, OpenForUpdate(path));
  return Own(path, opened);
}

absl::StatusOr<AppendFile> AppendFile::Create(const std::string& path) {
  const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0666);
  std::FILE* const opened = fd < 0 ? nullptr : fdopen(fd, "r+b");
  if (opened == nullptr) {
    const absl::Status status =
        absl::ErrnoToStatus(errno, absl::StrCat("cannot make ", Printable(path, 800)));
    if (fd >= 0) close(fd);
    return status;
  }
  return Own(path, opened);
}

absl::Status AppendFile::CheckOthers() {
  if (file_ == nullptr) {
    return absl::FailedPreconditionError(
        absl::StrCat("cannot write ", Printable(path_, 800), ": it was closed"));
  }
  struct stat status = {};
  if (fstat(fileno(file_.get()), &status) != 0) return Failed("write");
  const auto refused = [&](const char* why) {
    return absl::FailedPreconditionError(
        absl::StrCat("cannot write ", Printable(path_, 800), ": ", why));
  };
  if (has_name_ && status.st_nlink == 0) return refused("it was removed");
  if (status.st_size == end_) return absl::OkStatus();
  size_ = end_ = status.st_size;
  return refused("another process writes to it, or has cut it off");
}

absl::Status AppendFile::CutHalfPiece() {
  if (end_ == size_) return absl::OkStatus();
  if (ftruncate(fileno(file_.get()), static_cast<off_t>(size_)) != 0) return Failed("write");
  end_ = size_;
  return absl::OkStatus();
}

absl::Status AppendFile::Append(absl::string_view bytes) {
  BRIGADE_RETURN_IF_ERROR(CheckOthers());
  BRIGADE_RETURN_IF_ERROR(CutHalfPiece());
  while (!bytes.empty()) {
    const ssize_t more = write(fileno(file_.get()), bytes.data(), bytes.size());
    if (more < 0 && errno == EINTR) continue;
    if (more <= 0) {
      if (more == 0) errno = ENOSPC;
      const absl::Status status = Failed("write");
      // If this fails too, it is tried again before the next piece.
      CutHalfPiece().IgnoreError();
      return status;
    }
    bytes.remove_prefix(static_cast<size_t>(more));
    end_ += static_cast<int64_t>(more);
  }
  size_ = end_;
  return absl::OkStatus();
}

absl::Status AppendFile::Close() {
  // Where the system was interrupted the file is closed all the same.
  if (file_ == nullptr || std::fclose(file_.release()) == 0 || errno == EINTR) {
    return absl::OkStatus();
  }
  return Failed("write");
}

absl::Status AppendFile::Sync() {
  if (file_ == nullptr) return CheckOthers();
  int failed = 0;
  do {
    failed = fsync(fileno(file_.get()));
  } while (failed != 0 && errno == EINTR);
  // Some file systems have no disk.
  if (failed == 0 || errno == EINVAL || errno == ENOSYS) return absl::OkStatus();
  return Failed("write");
}

absl::Status AppendFile::KeepLines(absl::FunctionRef<Fate(absl::string_view line)> fate) {
  if (file_ == nullptr) return CheckOthers();
  int64_t kept = 0, read = 0;
  std::string line;
  // Not by the stream, whose buffer may have what the file had before.
  const int fd = fileno(file_.get());
  std::array<char, 4096> buffer;
  ssize_t filled = 0, used = 0;
  while (true) {
    if (used == filled) {
      do {
        filled = pread(fd, buffer.data(), buffer.size(), static_cast<off_t>(read));
      } while (filled < 0 && errno == EINTR);
      if (filled < 0) return Failed("go on with");
      if (filled == 0) break;
      used = 0;
    }
    const char c = buffer[static_cast<size_t>(used++)];
    ++read;
    // Of a longer one the rest is not needed.
    if (line.size() <= kMostLineBytes) line += c;
    if (c != '\n') continue;
    const Fate of = line.size() > kMostLineBytes ? Fate::kDamaged : fate(line);
    if (of == Fate::kCutOff) break;
    if (of == Fate::kKept) kept = read;
    line.clear();
  }
  if (ftruncate(fd, static_cast<off_t>(kept)) != 0) return Failed("go on with");
  size_ = end_ = kept;
  return absl::OkStatus();
}

absl::Status MakeFolder(const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (!error && std::filesystem::is_directory(path, error)) return absl::OkStatus();
  const std::string why = error ? error.message() : "it is no folder";
  return absl::FailedPreconditionError(
      absl::StrCat("cannot make ", Printable(path, 800), ": ", why));
}

}  // namespace brigade::device
