#ifndef BRIGADE_TESTS_CHECKPOINT_OTHER_SYSTEM_CALLS_H_
#define BRIGADE_TESTS_CHECKPOINT_OTHER_SYSTEM_CALLS_H_

#include <condition_variable>
#include <mutex>
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
    return other_->Open(path, flags, mode);
  }
  int Close(int fd) override { return other_->Close(fd); }
  int Stat(int fd, struct stat& status) override { return other_->Stat(fd, status); }
  ssize_t ReadAt(int fd, void* to, size_t bytes, off_t offset) override {
    return other_->ReadAt(fd, to, bytes, offset);
  }
  ssize_t WriteAt(int fd, const void* from, size_t bytes, off_t offset) override {
    return other_->WriteAt(fd, from, bytes, offset);
  }
  int Allocate(int fd, off_t bytes) override { return other_->Allocate(fd, bytes); }
  int Lock(int fd) override { return other_->Lock(fd); }
  int BeginToWrite(int fd, off_t offset, off_t bytes) override {
    return other_->BeginToWrite(fd, offset, bytes);
  }
  int BeginToRead(int fd, off_t offset, off_t bytes) override {
    return other_->BeginToRead(fd, offset, bytes);
  }
  int SyncData(int fd) override { return other_->SyncData(fd); }
  int Sync(int fd) override { return other_->Sync(fd); }
  int MakeFolder(const std::string& path, mode_t mode) override {
    return other_->MakeFolder(path, mode);
  }
  int RemoveFolder(const std::string& path) override { return other_->RemoveFolder(path); }
  int Unlink(const std::string& path) override { return other_->Unlink(path); }
  int Rename(const std::string& from, const std::string& to) override {
    return other_->Rename(from, to);
  }
  int RenameToNew(const std::string& from, const std::string& to) override {
    return other_->RenameToNew(from, to);
  }
  int List(const std::string& path, std::vector<std::string>& names) override {
    return other_->List(path, names);
  }
  int SpaceOf(const std::string& path, struct statvfs& space) override {
    return other_->SpaceOf(path, space);
  }

 private:
  device::SystemCalls* other_;
};

// A disk that takes no bytes while it is closed: writes wait.
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
  using OtherSystemCalls::Open;
  ssize_t WriteAt(int fd, const void* from, size_t bytes, off_t offset) override {
    {
      std::unique_lock<std::mutex> lock(mutex_);
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
};

}  // namespace brigade::checkpoint::testing

#endif  // BRIGADE_TESTS_CHECKPOINT_OTHER_SYSTEM_CALLS_H_
