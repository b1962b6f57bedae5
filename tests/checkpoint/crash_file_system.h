#ifndef BRIGADE_TESTS_CHECKPOINT_CRASH_FILE_SYSTEM_H_
#define BRIGADE_TESTS_CHECKPOINT_CRASH_FILE_SYSTEM_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "brigade/device/file/system_calls.h"

namespace brigade::checkpoint::testing {

// A file system in memory that knows what of it is on the disk: what may be there after
// the power has failed. Calls and faults run one at a time, on any thread.
class CrashFileSystem final : public device::SystemCalls {
 public:
  // What the disk has of what was not synced, when the power fails.
  enum class Data { kNone, kAll, kEvery512, kEvery4096 };
  // kOuter: those in folders of the root, but none further down; kInner: the others.
  enum class Names { kNone, kAll, kOuter, kInner };

  // Before each call: 0, or the errno with which it fails, without effect. kShort: a read or a
  // write takes half of its bytes. kLost: a sync says that all is well, and does nothing.
  static constexpr int kShort = -1, kLost = -2;
  using Fault = std::function<int(const std::string& call, const std::string& path)>;

  // With room for so many blocks of 4,096 bytes.
  explicit CrashFileSystem(uint64_t blocks = 1 << 20);

  void set_fault(Fault fault) { fault_ = std::move(fault); }

  // The host from which this thread's calls come: a sync keeps what its own host has written and
  // named, and nothing of what the others have.
  static void set_host(int host);
  static int host();
  // How many calls there were.
  int64_t calls() const { return calls_; }

  // What one finds there after the power has failed now. Torn data: of its blocks of 512 or 4096
  // bytes every other one is as it was when synced, or zeros.
  std::unique_ptr<CrashFileSystem> AfterCrash(Data data, Names names) const;

  // Of tests: all paths of files with their contents, and of folders with "/" behind them.
  std::map<std::string, std::string> All() const;
  int open_files() const { return static_cast<int>(open_.size()); }

  int Open(const std::string& path, int flags, mode_t mode) override;
  int Close(int fd) override;
  int Stat(int fd, struct stat& status) override;
  ssize_t ReadAt(int fd, void* to, size_t bytes, off_t offset) override;
  ssize_t WriteAt(int fd, const void* from, size_t bytes, off_t offset) override;
  int SetDirect(int fd, bool direct) override;
  int Allocate(int fd, off_t bytes) override;
  int Lock(int fd) override;
  int BeginToWrite(int fd, off_t offset, off_t bytes) override;
  int BeginToRead(int fd, off_t offset, off_t bytes) override;
  int SyncData(int fd) override;
  int Sync(int fd) override;
  int MakeFolder(const std::string& path, mode_t mode) override;
  int RemoveFolder(const std::string& path) override;
  int Unlink(const std::string& path) override;
  int Rename(const std::string& from, const std::string& to) override;
  int RenameToNew(const std::string& from, const std::string& to) override;
  int List(const std::string& path, std::vector<std::string>& names) override;
  int SpaceOf(const std::string& path, struct statvfs& space) override;

 private:
  struct Node {
    bool is_folder = false;
    // By which it is locked.
    int lock_fd = -1;
    // Of a file, and what each host has written of it and not synced: [begin, end).
    std::string bytes, synced_bytes;
    std::map<int, std::vector<std::pair<size_t, size_t>>> unsynced;
    // Of a folder, and the names that each host has made or removed and not synced.
    std::map<std::string, std::shared_ptr<Node>> names, synced_names;
    std::map<int, std::set<std::string>> unsynced_names;
  };
  struct OpenFile {
    std::shared_ptr<Node> node;
    std::string path;
  };

  // 0, kShort or kLost, or 1 with errno.
  int Enter(const char* call, const std::string& path);
  std::shared_ptr<Node> Find(const std::string& path) const;
  // The folder that holds the last name of the path.
  std::shared_ptr<Node> FolderOf(const std::string& path, std::string& name) const;
  int Remove(const std::string& path, bool is_folder);
  static void SetName(Node& folder, const std::string& name, std::shared_ptr<Node> node);
  static void SyncBytes(Node& node);
  // Of a node that is `depth` names below the root.
  static std::shared_ptr<Node> Survivor(const Node& node, Data data, Names names, int depth);

  // Some calls make others.
  mutable std::recursive_mutex mutex_;
  const uint64_t blocks_;
  std::shared_ptr<Node> root_;
  std::map<int, OpenFile> open_;
  int next_fd_ = 100;
  int64_t calls_ = 0;
  Fault fault_;
};

}  // namespace brigade::checkpoint::testing

#endif  // BRIGADE_TESTS_CHECKPOINT_CRASH_FILE_SYSTEM_H_
