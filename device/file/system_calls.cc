#include "brigade/device/file/system_calls.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <limits>

namespace brigade::device {
namespace {

// Whether a byte of a file is in memory; false where the file system does not say.
bool IsCached(int fd, off_t offset) {
  char byte = 0;
  const iovec to = {&byte, 1};
  return ::preadv2(fd, &to, 1, offset, RWF_NOWAIT) == 1;
}

class RealSystemCalls final : public SystemCalls {
 public:
  int Open(const std::string& path, int flags, mode_t mode) override {
    return ::open(path.c_str(), flags | O_CLOEXEC, mode);
  }
  int Close(int fd) override { return ::close(fd); }
  int Stat(int fd, struct stat& status) override { return ::fstat(fd, &status); }
  ssize_t ReadAt(int fd, void* to, size_t bytes, off_t offset) override {
    return ::pread(fd, to, bytes, offset);
  }
  ssize_t WriteAt(int fd, const void* from, size_t bytes, off_t offset) override {
    return ::pwrite(fd, from, bytes, offset);
  }
  int SetDirect(int fd, bool direct) override {
    const int flags = ::fcntl(fd, F_GETFL);
    if (flags < 0) return flags;
    return ::fcntl(fd, F_SETFL, direct ? flags | O_DIRECT : flags & ~O_DIRECT);
  }
  int Allocate(int fd, off_t bytes) override {
    return ::fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, bytes);
  }
  int Lock(int fd) override { return ::flock(fd, LOCK_EX | LOCK_NB); }
  int BeginToWrite(int fd, off_t offset, off_t bytes) override {
    return ::sync_file_range(fd, offset, bytes, SYNC_FILE_RANGE_WRITE);
  }
  int BeginToRead(int fd, off_t offset, off_t bytes) override {
    // The call looks for each page: a fifth of the time of reading those that are there.
    if (IsCached(fd, offset) && IsCached(fd, offset + bytes - 1)) return 0;
    return ::posix_fadvise(fd, offset, bytes, POSIX_FADV_WILLNEED);
  }
  int SyncData(int fd) override { return ::fdatasync(fd); }
  int Sync(int fd) override { return ::fsync(fd); }

  int MakeFolder(const std::string& path, mode_t mode) override {
    return ::mkdir(path.c_str(), mode);
  }
  int RemoveFolder(const std::string& path) override { return ::rmdir(path.c_str()); }
  int Unlink(const std::string& path) override { return ::unlink(path.c_str()); }
  int Rename(const std::string& from, const std::string& to) override {
    return ::rename(from.c_str(), to.c_str());
  }
  int RenameToNew(const std::string& from, const std::string& to) override {
    const int renamed = ::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_NOREPLACE);
    if (renamed == 0 || (errno != EINVAL && errno != ENOSYS)) return renamed;
    // A file system that cannot do both at once.
    if (::access(to.c_str(), F_OK) == 0) {
      errno = EEXIST;
      return -1;
    }
    return ::rename(from.c_str(), to.c_str());
  }
  int List(const std::string& path, std::vector<std::string>& names) override {
    DIR* const folder = ::opendir(path.c_str());
    if (folder == nullptr) return -1;
    names.clear();
    errno = 0;
    while (const dirent* const entry = ::readdir(folder)) {
      const std::string name = entry->d_name;
      if (name != "." && name != "..") names.push_back(name);
    }
    const int error = errno;
    ::closedir(folder);
    errno = error;
    return error == 0 ? 0 : -1;
  }
  int SpaceOf(const std::string& path, struct statvfs& space) override {
    return ::statvfs(path.c_str(), &space);
  }
};

}  // namespace

SystemCalls& SystemCalls::Real() {
  static auto& real = *new RealSystemCalls;
  return real;
}

int64_t FreeBytes(const struct statvfs& space) {
  constexpr uint64_t kMost = std::numeric_limits<int64_t>::max();
  const uint64_t blocks = space.f_bavail, bytes = space.f_frsize;
  if (bytes > 0 && blocks > kMost / bytes) return static_cast<int64_t>(kMost);
  return static_cast<int64_t>(blocks * bytes);
}

}  // namespace brigade::device
