#include "brigade/device/files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "brigade/device/printable.h"

namespace brigade::device {
namespace {

std::string Shown(const std::string& path) {
  constexpr size_t kMost = 800;
  return Printable(path, kMost);
}

const char* NameOf(mode_t mode) {
  return S_ISDIR(mode)    ? "a folder"
         : S_ISLNK(mode)  ? "a link"
         : S_ISFIFO(mode) ? "a pipe"
         : S_ISSOCK(mode) ? "a socket"
                          : "a device";
}

absl::Status NoFile(const std::string& path, mode_t mode) {
  return absl::InvalidArgumentError(
      absl::StrCat(Shown(path), " is ", NameOf(mode), ", not a file"));
}

absl::Status Failed(const char* what, const std::string& path) {
  return absl::ErrnoToStatus(errno, absl::StrCat("cannot ", what, " ", Shown(path)));
}

// Of a path to write to, before it is opened: that may wait, or do something. Returns whether a
// file is there, and its `status`.
absl::StatusOr<bool> IsThere(const std::string& path, struct stat& status) {
  if (lstat(path.c_str(), &status) != 0) return false;
  if (!S_ISREG(status.st_mode)) return NoFile(path, status.st_mode);
  return true;
}

// Of a regular file that is open, or an error; the descriptor is closed then.
absl::StatusOr<std::FILE*> Regular(int fd, const char* mode, const std::string& path,
                                   struct stat& status) {
  if (fstat(fd, &status) != 0) {
    const absl::Status failed = Failed("open", path);
    close(fd);
    return failed;
  }
  if (!S_ISREG(status.st_mode)) {
    close(fd);
    return NoFile(path, status.st_mode);
  }
  std::FILE* const file = fdopen(fd, mode);
  if (file != nullptr) return file;
  const absl::Status failed = Failed("open", path);
  close(fd);
  return failed;
}

absl::StatusOr<std::FILE*> OpenOrMake(const std::string& path, int flags, const char* mode) {
  struct stat status = {};
  const absl::StatusOr<bool> is_there = IsThere(path, status);
  if (!is_there.ok()) return is_there.status();
  const int fd = open(path.c_str(), flags | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0666);
  if (fd < 0) return Failed("write", path);
  return Regular(fd, mode, path, status);
}

}  // namespace

// Another one for each process: they do not write into each other's.
std::string FileReplacement::NameBeside(const std::string& path) {
  return absl::StrCat(path, ".", getpid(), ".part");
}

int64_t MostFileBytes() {
  return static_cast<int64_t>(sysconf(_SC_PHYS_PAGES)) / 4 *
         static_cast<int64_t>(sysconf(_SC_PAGESIZE));
}

absl::StatusOr<InputFile> InputFile::Open(const std::string& path, int64_t most_bytes) {
  // A pipe without a writer opens at once.
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return Failed("open", path);
  struct stat status = {};
  const absl::StatusOr<std::FILE*> file = Regular(fd, "rb", path, status);
  if (!file.ok()) return file.status();
  InputFile input(path, *file, status.st_size);
  if (input.size() > most_bytes) {
    return absl::ResourceExhaustedError(absl::StrCat(Shown(path), " has ", input.size(),
                                                     " bytes; at most ", most_bytes, " are read"));
  }
  return input;
}

absl::Status InputFile::Read(void* to, int64_t bytes) {
  const auto size = static_cast<size_t>(bytes);
  if (std::fread(to, 1, size, file_.get()) == size) return absl::OkStatus();
  if (std::ferror(file_.get()) != 0) return Failed("read", path_);
  return absl::DataLossError(absl::StrCat("cannot read ", Shown(path_), ": it has become shorter"));
}

absl::StatusOr<std::string> ReadFile(const std::string& path, int64_t most_bytes) {
  absl::StatusOr<InputFile> file = InputFile::Open(path, most_bytes);
  if (!file.ok()) return file.status();
  std::string bytes(static_cast<size_t>(file->size()), '\0');
  const absl::Status read = file->Read(bytes.data(), file->size());
  if (!read.ok()) return read;
  return bytes;
}

bool SameFile(const std::string& one, const std::string& other) {
  const std::filesystem::path a = one, b = other;
  std::error_code error;
  return !one.empty() && !other.empty() &&
         (a.lexically_normal() == b.lexically_normal() || std::filesystem::equivalent(a, b, error));
}

absl::StatusOr<std::FILE*> OpenForWriting(const std::string& path) {
  return OpenOrMake(path, O_WRONLY | O_TRUNC, "wb");
}

absl::StatusOr<std::FILE*> OpenForUpdate(const std::string& path) {
  return OpenOrMake(path, O_RDWR, "r+b");
}

absl::StatusOr<FileReplacement> FileReplacement::Begin(const std::string& path) {
  struct stat status = {}, status_beside = {};
  const absl::StatusOr<bool> is_there = IsThere(path, status);
  if (!is_there.ok()) return is_there.status();
  const std::string beside = NameBeside(path);
  const absl::StatusOr<bool> is_left = IsThere(beside, status_beside);
  if (!is_left.ok()) return is_left.status();
  // Of an earlier process of this number; or another user's, or another name of his file.
  if (*is_left && unlink(beside.c_str()) != 0) return Failed("replace", beside);
  const int fd = open(beside.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0666);
  if (fd < 0) return Failed("write", beside);
  const absl::StatusOr<std::FILE*> file = Regular(fd, "wb", beside, status_beside);
  if (!file.ok()) return file.status();
  FileReplacement replacement(path, *file);
  if (*is_there && fchmod(fd, status.st_mode & 07777) != 0) return Failed("write", beside);
  return replacement;
}

FileReplacement::~FileReplacement() {
  if (file_ != nullptr) unlink(beside().c_str());
}

void FileReplacement::Write(absl::string_view bytes) {
  const bool is_written = std::fwrite(bytes.data(), 1, bytes.size(), file_.get()) == bytes.size();
  if (!is_written && error_ == 0) error_ = errno;
}

absl::Status FileReplacement::Commit() {
  const auto failed = [&](const char* what, int error) {
    return absl::UnavailableError(
        absl::StrCat("cannot ", what, " ", Shown(beside()), ": ", std::strerror(error)));
  };
  if (error_ != 0) return failed("write", error_);
  if (std::fflush(file_.get()) != 0 || fsync(fileno(file_.get())) != 0) {
    return failed("write", errno);
  }
  if (std::rename(beside().c_str(), path_.c_str()) != 0) return failed("rename", errno);
  file_.reset();
  // The name is on the disk when the folder is: where this user may read it, and the system writes
  // folders on demand.
  const size_t slash = path_.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : path_.substr(0, slash + 1);
  const int fd = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  const int error = fd < 0 || fsync(fd) != 0 ? errno : 0;
  if (fd >= 0) close(fd);
  if (error == 0 || error == (fd < 0 ? EACCES : EINVAL)) return absl::OkStatus();
  return absl::UnavailableError(
      absl::StrCat("cannot write ", Shown(folder), " to the disk: ", std::strerror(error)));
}

}  // namespace brigade::device
