#include "brigade/device/file/store_file.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "brigade/device/file/aligned_memory.h"
#include "brigade/device/printable.h"
#include "brigade/device/status_macros.h"

namespace brigade::device::internal {
namespace {

// Of one write of zeros, where the file system cannot take room by itself.
constexpr int64_t kZeroBytes = int64_t{1} << 20;

// 10 ms apart: a second.
constexpr int kLockAttempts = 100;

// What O_DIRECT asks for, by the kernel's answer; 0 where the file does not take it.
FileAlignment DirectAlignment(int fd) {
#ifdef STATX_DIOALIGN
  struct statx status = {};
  if (::statx(fd, "", AT_EMPTY_PATH, STATX_DIOALIGN, &status) == 0 &&
      (status.stx_mask & STATX_DIOALIGN) != 0) {
    return {status.stx_dio_mem_align, status.stx_dio_offset_align};
  }
#endif
  // Linux before 6.1, or a file system that does not say.
  return {kFileBlockBytes, kFileBlockBytes};
}

absl::Status CheckName(absl::string_view name) {
  if (name.empty() || name == "." || name == ".." || name.find('/') != absl::string_view::npos ||
      name.find('\0') != absl::string_view::npos) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", Printable(name, 400), "\" is no name of a file"));
  }
  return absl::OkStatus();
}

}  // namespace

StoreFile::StoreFile(SystemCalls& system, const std::string& directory, absl::string_view name,
                     int64_t bytes)
    : system_(&system),
      directory_(directory),
      path_(absl::StrCat(directory, "/", name)),
      bytes_(bytes) {}

StoreFile::StoreFile(StoreFile&& other) noexcept
    : system_(other.system_),
      directory_(std::move(other.directory_)),
      path_(std::move(other.path_)),
      bytes_(other.bytes_),
      fd_(std::exchange(other.fd_, -1)),
      has_name_(other.has_name_),
      direct_(other.direct_),
      alignment_(other.alignment_),
      mode_(std::move(other.mode_)) {}

StoreFile::~StoreFile() {
  if (fd_ >= 0) system_->Close(fd_);
}

absl::Status StoreFile::Fail(absl::string_view what) const {
  // Printable may change it.
  const int error = errno;
  return absl::ErrnoToStatus(error, absl::StrCat("cannot ", what, " ", Printable(path_, 400)));
}

absl::StatusOr<StoreFile> StoreFile::Create(SystemCalls& system, const std::string& directory,
                                            absl::string_view name, int64_t bytes,
                                            absl::string_view purpose, bool direct,
                                            bool keeps_name) {
  BRIGADE_RETURN_IF_ERROR(CheckName(name));
  StoreFile file(system, directory, name, bytes);
  file.fd_ =
      Repeat([&] { return system.Open(file.path_, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW, 0600); });
  if (file.fd_ < 0) return file.Fail("create");
  if (!keeps_name) {
    if (Repeat([&] { return system.Unlink(file.path_); }) != 0) {
      return file.Fail("remove the name of");
    }
    file.has_name_ = false;
  }
  absl::Status status = file.TakeRoom(purpose);
  if (status.ok() && direct) file.TryDirect();
  if (status.ok()) status = file.Lock();
  if (status.ok()) return file;
  if (keeps_name) system.Unlink(file.path_);
  return status;
}

absl::StatusOr<StoreFile> StoreFile::Open(SystemCalls& system, const std::string& directory,
                                          absl::string_view name, int64_t bytes, bool direct) {
  BRIGADE_RETURN_IF_ERROR(CheckName(name));
  StoreFile file(system, directory, name, bytes);
  // A pipe would be waited for.
  file.fd_ = Repeat([&] { return system.Open(file.path_, O_RDWR | O_NOFOLLOW | O_NONBLOCK, 0); });
  if (file.fd_ < 0) return file.Fail("open");
  BRIGADE_RETURN_IF_ERROR(file.Check());
  if (direct) file.TryDirect();
  BRIGADE_RETURN_IF_ERROR(file.Lock());
  return file;
}

absl::Status StoreFile::NoRoom(absl::string_view purpose, const absl::Status& cause) const {
  std::string text =
      absl::StrCat("cannot take ", bytes_, " bytes for ", purpose, " in ", Printable(path_, 400));
  struct statvfs space = {};
  if (system_->SpaceOf(directory_, space) == 0) {
    absl::StrAppend(&text, ", where ", FreeBytes(space), " are free");
  }
  return absl::Status(cause.code(), absl::StrCat(text, ": ", cause.message()));
}

absl::Status StoreFile::TakeRoom(absl::string_view purpose) {
  const AlignedMemory zeros = AllocateAligned(kZeroBytes);
  if (zeros == nullptr) return absl::ResourceExhaustedError("the system refuses memory");
  // The last block gives the file its size; where room cannot be taken at once, all blocks do.
  int64_t at = bytes_ - kFileBlockBytes;
  if (Repeat([&] { return system_->Allocate(fd_, bytes_); }) != 0) {
    if (errno != EOPNOTSUPP && errno != ENOSYS) {
      return NoRoom(purpose, absl::ErrnoToStatus(errno, "fallocate"));
    }
    at = 0;
  }
  for (; at < bytes_; at += kZeroBytes) {
    const auto most = static_cast<size_t>(std::min(kZeroBytes, bytes_ - at));
    if (absl::Status written = Write({zeros.get(), most}, at); !written.ok()) {
      return NoRoom(purpose, written);
    }
  }
  return absl::OkStatus();
}

void StoreFile::TryDirect() {
  std::string reason;
  if (system_->SetDirect(fd_, true) != 0) {
    reason = std::string(absl::ErrnoToStatus(errno, "O_DIRECT").message());
  } else {
    const FileAlignment alignment = DirectAlignment(fd_);
    const AlignedMemory block = AllocateAligned(kFileBlockBytes);
    const int64_t asked = std::max(alignment.memory, alignment.offset);
    if (alignment.memory == 0 || alignment.offset == 0) {
      reason = "the file does not take O_DIRECT";
    } else if (asked > kFileBlockBytes) {
      reason = absl::StrCat("O_DIRECT asks for ", asked, " bytes at a time");
    } else if (block == nullptr || !Read({block.get(), kFileBlockBytes}, 0).ok()) {
      // Some say yes to the flag and no to the call.
      reason = "a direct read fails";
    } else {
      direct_ = true;
      alignment_ = alignment;
      mode_ = absl::StrCat("direct, aligned to ", asked, " bytes");
      return;
    }
    system_->SetDirect(fd_, false);
  }
  mode_ = absl::StrCat("buffered, because ", reason);
}

absl::Status StoreFile::Lock() const {
  // What a killed process had in flight keeps its lock until it is over.
  for (int attempt = 0; Repeat([&] { return system_->Lock(fd_); }) != 0; ++attempt) {
    // A file system without locks.
    if (errno != EWOULDBLOCK) return absl::OkStatus();
    if (attempt == kLockAttempts) {
      return absl::FailedPreconditionError(
          absl::StrCat(Printable(path_, 400), " is in use by another store"));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return absl::OkStatus();
}

absl::Status StoreFile::Check() const {
  struct stat status = {};
  if (Repeat([&] { return system_->Stat(fd_, status); }) != 0) return Fail("look at");
  if (!S_ISREG(status.st_mode)) {
    return absl::DataLossError(absl::StrCat(Printable(path_, 400), " is no regular file"));
  }
  if (status.st_size < bytes_) {
    return absl::DataLossError(absl::StrCat(Printable(path_, 400), " was cut: it has ",
                                            status.st_size, " bytes of ", bytes_));
  }
  if (has_name_ && status.st_nlink == 0) {
    return absl::DataLossError(absl::StrCat(Printable(path_, 400), " was removed"));
  }
  return absl::OkStatus();
}

absl::Status StoreFile::Read(absl::Span<char> to, int64_t offset) const {
  while (!to.empty()) {
    const ssize_t read = Repeat([&] { return system_->ReadAt(fd_, to.data(), to.size(), offset); });
    if (read < 0) return Fail("read");
    if (read == 0) {
      return absl::DataLossError(absl::StrCat(Printable(path_, 400), " ends at byte ", offset));
    }
    to.remove_prefix(static_cast<size_t>(read));
    offset += read;
  }
  return absl::OkStatus();
}

absl::Status StoreFile::Write(absl::Span<const char> from, int64_t offset) const {
  while (!from.empty()) {
    const ssize_t written =
        Repeat([&] { return system_->WriteAt(fd_, from.data(), from.size(), offset); });
    // A system that takes nothing and says nothing would be asked for ever.
    if (written == 0) errno = EIO;
    if (written <= 0) return Fail("write");
    from.remove_prefix(static_cast<size_t>(written));
    offset += written;
  }
  return absl::OkStatus();
}

absl::Status StoreFile::Sync() const {
  return system_->SyncData(fd_) == 0 ? absl::OkStatus() : Fail("sync");
}

absl::Status StoreFile::SyncDirectory() const {
  const int fd = Repeat([&] { return system_->Open(directory_, O_RDONLY | O_DIRECTORY, 0); });
  if (fd < 0) return Fail("sync the directory of");
  // EINVAL: a file system that writes names by itself.
  const bool synced = system_->Sync(fd) == 0 || errno == EINVAL;
  absl::Status status = synced ? absl::OkStatus() : Fail("sync the directory of");
  system_->Close(fd);
  return status;
}

}  // namespace brigade::device::internal
