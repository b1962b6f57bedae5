#ifndef BRIGADE_DEVICE_FILE_SYSTEM_CALLS_H_
#define BRIGADE_DEVICE_FILE_SYSTEM_CALLS_H_

#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/types.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace brigade::device {

// The system calls by which checkpoints reach the disk and come back, one method each, with its
// results and errno. What stands here instead of the system can remember what was synced, and fail.
//
// Threads      Safe from any thread, as far as the system is.
class SystemCalls {
 public:
  virtual ~SystemCalls() = default;

  // The system's own.
  static SystemCalls& Real();

  // Of files and folders.
  virtual int Open(const std::string& path, int flags, mode_t mode) = 0;
  virtual int Close(int fd) = 0;
  virtual int Stat(int fd, struct stat& status) = 0;
  virtual ssize_t ReadAt(int fd, void* to, size_t bytes, off_t offset) = 0;
  virtual ssize_t WriteAt(int fd, const void* from, size_t bytes, off_t offset) = 0;
  // O_DIRECT on or off.
  virtual int SetDirect(int fd, bool direct) = 0;
  // fallocate: room for the bytes from 0 on; the size stays.
  virtual int Allocate(int fd, off_t bytes) = 0;
  // flock, for this open file alone and without waiting: EWOULDBLOCK if another one has it.
  virtual int Lock(int fd) = 0;
  // sync_file_range: begins to write, promises nothing.
  virtual int BeginToWrite(int fd, off_t offset, off_t bytes) = 0;
  // posix_fadvise: begins to read what comes next, promises nothing. Does nothing if its first and
  // its last byte are in memory.
  virtual int BeginToRead(int fd, off_t offset, off_t bytes) = 0;
  // fdatasync: the bytes and the size of a file are on the disk.
  virtual int SyncData(int fd) = 0;
  // fsync: of a folder, its names are on the disk.
  virtual int Sync(int fd) = 0;

  virtual int MakeFolder(const std::string& path, mode_t mode) = 0;
  virtual int RemoveFolder(const std::string& path) = 0;
  virtual int Unlink(const std::string& path) = 0;
  virtual int Rename(const std::string& from, const std::string& to) = 0;
  // EEXIST if something is there.
  virtual int RenameToNew(const std::string& from, const std::string& to) = 0;
  // The names in a folder, in any order, without "." and "..".
  virtual int List(const std::string& path, std::vector<std::string>& names) = 0;
  virtual int SpaceOf(const std::string& path, struct statvfs& space) = 0;
};

// What SpaceOf says is free, at most as many bytes as the type counts: of a file system without a
// limit.
int64_t FreeBytes(const struct statvfs& space);

// Calls again while a signal interrupts it. Not for syncs.
template <typename Call>
auto Repeat(const Call& call) {
  auto result = call();
  while (result < 0 && errno == EINTR) result = call();
  return result;
}

}  // namespace brigade::device

#endif  // BRIGADE_DEVICE_FILE_SYSTEM_CALLS_H_
