#include "brigade/checkpoint/durable_file.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "brigade/device/printable.h"

namespace brigade::checkpoint {
namespace {

using device::Repeat;

// Of one call: as much as the system takes at once.
constexpr int64_t kMostBytesAtOnce = 0x7ffff000;

// Of reading: DataLoss where the disk cannot read what it has, or finds that it is not what it
// wrote.
absl::Status FailedToRead(absl::string_view what, absl::string_view path) {
  const bool is_damage = errno == EIO || errno == EUCLEAN || errno == EBADMSG;
  const absl::Status failed = Failed(what, path);
  return is_damage ? absl::DataLossError(failed.message()) : failed;
}

}  // namespace

absl::Status Failed(absl::string_view what, absl::string_view path) {
  // PrintablePath may change it.
  const int error = errno;
  return absl::ErrnoToStatus(error, absl::StrCat("cannot ", what, " ", PrintablePath(path)));
}

std::string PrintablePath(absl::string_view path) { return device::Printable(path, 400); }

absl::StatusOr<WritableFile> WritableFile::Create(device::SystemCalls& system,
                                                  const std::string& path, int64_t bytes) {
  const int fd = Repeat([&] { return system.Open(path, O_WRONLY | O_CREAT | O_EXCL, 0666); });
  if (fd < 0) return Failed("create", path);
  WritableFile file(system, path, fd);
  if (const absl::Status room = file.TakeRoom(bytes); !room.ok()) return room;
  return file;
}

absl::StatusOr<WritableFile> WritableFile::Open(device::SystemCalls& system,
                                                const std::string& path) {
  const int fd = Repeat([&] { return system.Open(path, O_WRONLY | O_NOFOLLOW, 0); });
  if (fd < 0) return Failed("open", path);
  return WritableFile(system, path, fd);
}

WritableFile::WritableFile(WritableFile&& other) noexcept
    : system_(other.system_), path_(std::move(other.path_)), fd_(std::exchange(other.fd_, -1)) {}

WritableFile::~WritableFile() {
  if (fd_ >= 0) system_->Close(fd_);
}

absl::Status WritableFile::TakeRoom(int64_t bytes) const {
  if (bytes == 0 || Repeat([&] { return system_->Allocate(fd_, bytes); }) == 0) {
    return absl::OkStatus();
  }
  // Without fallocate the disk is found full while it is written to.
  if (errno == EOPNOTSUPP || errno == ENOSYS) return absl::OkStatus();
  return Failed("take room for", path_);
}

absl::Status WritableFile::Write(absl::string_view bytes, int64_t offset) const {
  const int64_t begin = offset;
  const auto size = static_cast<int64_t>(bytes.size());
  while (!bytes.empty()) {
    const auto most = std::min(static_cast<int64_t>(bytes.size()), kMostBytesAtOnce);
    const ssize_t written = Repeat(
        [&] { return system_->WriteAt(fd_, bytes.data(), static_cast<size_t>(most), offset); });
    // A system that takes nothing and says nothing would be asked for ever.
    if (written == 0) errno = EIO;
    if (written <= 0) return Failed("write", path_);
    bytes.remove_prefix(static_cast<size_t>(written));
    offset += written;
  }
  // Where it cannot begin now, Finish does it all.
  system_->BeginToWrite(fd_, begin, size);
  return absl::OkStatus();
}

absl::Status WritableFile::Finish() {
  const int fd = std::exchange(fd_, -1);
  // The first error counts. Close is not repeated either: the descriptor is gone.
  absl::Status status;
  if (system_->SyncData(fd) != 0) status = Failed("sync", path_);
  if (system_->Close(fd) != 0 && errno != EINTR && status.ok()) status = Failed("close", path_);
  return status;
}

absl::StatusOr<RandomAccessFile> RandomAccessFile::Open(device::SystemCalls& system,
                                                        const std::string& path) {
  // A pipe without a writer opens at once.
  const int fd = Repeat([&] { return system.Open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK, 0); });
  const auto no_file = [&] {
    return absl::InvalidArgumentError(absl::StrCat(PrintablePath(path), " is no regular file"));
  };
  // ELOOP: a link.
  if (fd < 0) return errno == ELOOP ? no_file() : FailedToRead("open", path);
  struct stat status = {};
  const bool is_known = Repeat([&] { return system.Stat(fd, status); }) == 0;
  RandomAccessFile file(system, path, fd, status.st_size);
  if (!is_known) return FailedToRead("open", path);
  if (!S_ISREG(status.st_mode)) return no_file();
  return file;
}

RandomAccessFile::RandomAccessFile(RandomAccessFile&& other) noexcept
    : system_(other.system_),
      path_(std::move(other.path_)),
      fd_(std::exchange(other.fd_, -1)),
      size_(other.size_) {}

RandomAccessFile::~RandomAccessFile() {
  if (fd_ >= 0) system_->Close(fd_);
}

absl::Status RandomAccessFile::Read(void* to, int64_t bytes, int64_t offset) const {
  auto* at = static_cast<char*>(to);
  while (bytes > 0) {
    const ssize_t read = Repeat([&] {
      return system_->ReadAt(fd_, at, static_cast<size_t>(std::min(bytes, kMostBytesAtOnce)),
                             offset);
    });
    if (read < 0) return FailedToRead("read", path_);
    if (read == 0) {
      return absl::DataLossError(
          absl::StrCat("cannot read ", PrintablePath(path_), ": it ends at byte ", offset));
    }
    at += read;
    bytes -= read;
    offset += read;
  }
  return absl::OkStatus();
}

void RandomAccessFile::BeginToRead(int64_t bytes, int64_t offset) const {
  system_->BeginToRead(fd_, offset, bytes);
}

absl::Status SyncFolder(device::SystemCalls& system, const std::string& path) {
  const int fd = Repeat([&] { return system.Open(path, O_RDONLY | O_DIRECTORY, 0); });
  if (fd < 0) return errno == EACCES ? absl::OkStatus() : Failed("open", path);
  absl::Status status;
  if (system.Sync(fd) != 0 && errno != EINVAL) status = Failed("sync", path);
  system.Close(fd);
  return status;
}

absl::Status RemoveFolderWithFiles(device::SystemCalls& system, const std::string& path) {
  // A link to a folder elsewhere goes alone. Nothing happens to a folder.
  if (system.Unlink(path) == 0) return absl::OkStatus();
  std::vector<std::string> names;
  if (system.List(path, names) != 0) return Failed("list", path);
  absl::Status status;
  const auto note = [&](int removed, const std::string& of) {
    if (removed != 0 && errno != ENOENT) status.Update(Failed("remove", of));
  };
  for (const std::string& name : names) {
    const std::string file = absl::StrCat(path, "/", name);
    note(system.Unlink(file), file);
  }
  note(system.RemoveFolder(path), path);
  return status;
}

}  // namespace brigade::checkpoint
