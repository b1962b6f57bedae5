#include "brigade/checkpoint/folder_lock.h"

#include <fcntl.h>

#include <cerrno>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "brigade/checkpoint/durable_file.h"

namespace brigade::checkpoint {
namespace {

// A process that was killed closes its files after it has given back its memory, which takes
// seconds if that is page-locked.
constexpr absl::Duration kLongestWait = absl::Seconds(5), kInterval = absl::Milliseconds(10);

// Whether the file begins with these bytes.
bool Has(device::SystemCalls& system, const std::string& path, const std::string& token) {
  const auto file = RandomAccessFile::Open(system, path);
  std::string there(token.size(), '\0');
  return file.ok() && file->Read(there.data(), static_cast<int64_t>(there.size()), 0).ok() &&
         there == token;
}

}  // namespace

absl::StatusOr<FolderLock> FolderLock::Take(device::SystemCalls& system, const std::string& folder,
                                            const std::string& token) {
  const std::string path = absl::StrCat(folder, "/.lock");
  for (absl::Duration waited; waited <= kLongestWait; waited += kInterval) {
    // Other hosts read at once what is written.
    const int fd = device::Repeat(
        [&] { return system.Open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_DSYNC, 0666); });
    if (fd < 0) return Failed("open", path);
    FolderLock lock(system, fd);
    if (device::Repeat([&] { return system.Lock(fd); }) == 0) {
      const ssize_t written =
          device::Repeat([&] { return system.WriteAt(fd, token.data(), token.size(), 0); });
      if (written < 0) return Failed("write", path);
      return lock;
    }
    // A file system without locks, or a rank of this training.
    if (errno != EWOULDBLOCK || Has(system, path, token)) return FolderLock(system, -1);
    absl::SleepFor(kInterval);
  }
  return absl::FailedPreconditionError(
      absl::StrCat("another training saves to ", PrintablePath(folder)));
}

FolderLock::FolderLock(FolderLock&& other) noexcept
    : system_(other.system_), fd_(std::exchange(other.fd_, -1)) {}

FolderLock::~FolderLock() {
  if (fd_ >= 0) system_->Close(fd_);
}

}  // namespace brigade::checkpoint
