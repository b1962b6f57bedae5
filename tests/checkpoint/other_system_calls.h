#ifndef BRIGADE_TESTS_CHECKPOINT_OTHER_SYSTEM_CALLS_H_
#define BRIGADE_TESTS_CHECKPOINT_OTHER_SYSTEM_CALLS_H_

#include <condition_variable>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "brigade/device/file/system_calls.h"

namespace brigade::checkpoint::testing {

// The calls of another one, which may change between two saves.
class OtherSystemCalls : public device::SystemCalls {
 public:
  explicit OtherSystemCalls(device::SystemCalls* other) : other_(other) {}
  void set(device::SystemCalls* other) { other_ = other; }

  int Open(const std::string& path, int flags, mode_t mode) override {
    return other()->Open(path, flags, mode);
  }
  int Close(int fd) override { return other()->Close(fd); }
  int Stat(int fd, struct stat& status) override { return other()->Stat(fd, status); }
  ssize_t ReadAt(int fd, void* to, size_t bytes, off_t offset) override {
    return other()->ReadAt(fd, to, bytes, offset);
  }
  ssize_t WriteAt(int fd, const void* from, size_t bytes, off_t offset) override {
    return other()->WriteAt(fd, from, bytes, offset);
  }
  int SetDirect(int fd, bool direct) override { return other()->SetDirect(fd, direct); }
  int Allocate(int fd, off_t bytes) override { return other()->Allocate(fd, bytes); }
  int Lock(int fd) override { return other()->Lock(fd); }
  int BeginToWrite(int fd, off_t offset, off_t bytes) override {
    return other()->BeginToWrite(fd, offset, bytes);
  }
  int BeginToRead(int fd, off_t offset, off_t bytes) override {
    return other()->BeginToRead(fd, offset, bytes);
  }
  int SyncData(int fd) override { return other()->SyncData(fd); }
  int Sync(int fd) override { return other()->Sync(fd); }
  int MakeFolder(const std::string& path, mode_t mode) override {
    return other()->MakeFolder(path, mode);
  }
  int RemoveFolder(const std::string& path) override { return other()->RemoveFolder(path); }
  int Unlink(const std::string& path) override { return other()->Unlink(path); }
  int Rename(const std::string& from, const std::string& to) override {
    return other()->Rename(from, to);
  }
  int RenameToNew(const std::string& from, const std::string& to) override {
    return other()->RenameToNew(from, to);
  }
  int List(const std::string& path, std::vector<std::string>& names) override {
    return other()->List(path, names);
  }
  int SpaceOf(const std::string& path, struct statvfs& space) override {
    return other()->SpaceOf(path, space);
  }

 protected:
  // Whose calls these are; before each.
  virtual device::SystemCalls* other() { return other_; }

 private:
  device::SystemCalls* other_;
};

// A disk that takes no bytes while it is closed: writes wait, but for those to a folder's lock.
class SlowDisk final : public OtherSystemCalls {
 public:
  using OtherSystemCalls::OtherSystemCalls;

  void Close() { Set(true); }
  void Open() { Set(false); }
  // Until so many writes wait.
  void AwaitWrites(int count) {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [&] { return waiting_ >= count; });
  }

  using OtherSystemCalls::Close;
  int Open(const std::string& path, int flags, mode_t mode) override {
    const int fd = OtherSystemCalls::Open(path, flags, mode);
    const std::lock_guard<std::mutex> lock(mutex_);
    if (path.ends_with("/.lock")) locks_.insert(fd);
    return fd;
  }
  ssize_t WriteAt(int fd, const void* from, size_t bytes, off_t offset) override {
    if (std::unique_lock<std::mutex> lock(mutex_); locks_.count(fd) == 0) {
      ++waiting_;
      changed_.notify_all();
      changed_.wait(lock, [&] { return !is_closed_; });
      --waiting_;
    }
    return OtherSystemCalls::WriteAt(fd, from, bytes, offset);
  }

 private:
  void Set(bool is_closed) {
    const std::lock_guard<std::mutex> lock(mutex_);
    is_closed_ = is_closed;
    changed_.notify_all();
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_closed_ = false;
  int waiting_ = 0;
  std::set<int> locks_;
};

}  // namespace brigade::checkpoint::testing

#endif  // BRIGADE_TESTS_CHECKPOINT_OTHER_SYSTEM_CALLS_H_
