#include "brigade/tests/checkpoint/crash_file_system.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "absl/status/status.h"

namespace brigade::checkpoint::testing {
namespace {

thread_local int host_of_thread = 0;

int Error(int error) {
  errno = error;
  return -1;
}

}  // namespace

CrashFileSystem::CrashFileSystem(uint64_t blocks)
    : blocks_(blocks), root_(std::make_shared<Node>()) {
  // Makes Abseil's table of errors' texts before there are threads: ThreadSanitizer does not see
  // that they wait for it.
  absl::ErrnoToStatus(EIO, "").IgnoreError();
  root_->is_folder = true;
}

void CrashFileSystem::set_host(int host) { host_of_thread = host; }
int CrashFileSystem::host() { return host_of_thread; }

// Null: removes it.
void CrashFileSystem::SetName(Node& folder, const std::string& name, std::shared_ptr<Node> node) {
  if (node == nullptr) {
    folder.names.erase(name);
  } else {
    folder.names[name] = std::move(node);
  }
  folder.unsynced_names[host_of_thread].insert(name);
}

void CrashFileSystem::SyncBytes(Node& node) {
  for (const auto& [begin, end] : node.unsynced[host_of_thread]) {
    node.synced_bytes.resize(std::max(node.synced_bytes.size(), end));
    node.synced_bytes.replace(begin, end - begin, node.bytes, begin, end - begin);
  }
  node.unsynced.erase(host_of_thread);
}

int CrashFileSystem::Enter(const char* call, const std::string& path) {
  ++calls_;
  const int fault = fault_ == nullptr ? 0 : fault_(call, path);
  if (fault <= 0) return fault;
  errno = fault;
  return 1;
}

std::shared_ptr<CrashFileSystem::Node> CrashFileSystem::Find(const std::string& path) const {
  std::shared_ptr<Node> node = root_;
  for (size_t at = 1; at < path.size() && node != nullptr;) {
    const size_t end = std::min(path.find('/', at), path.size());
    // Else it is one slash of several.
    if (end > at) {
      const auto found = node->names.find(path.substr(at, end - at));
      node = found == node->names.end() ? nullptr : found->second;
    }
    at = end + 1;
  }
  return node;
}

std::shared_ptr<CrashFileSystem::Node> CrashFileSystem::FolderOf(const std::string& path,
                                                                 std::string& name) const {
  const size_t slash = path.rfind('/');
  name = path.substr(slash + 1);
  const std::shared_ptr<Node> folder = Find(path.substr(0, slash));
  return folder != nullptr && folder->is_folder ? folder : nullptr;
}

std::shared_ptr<CrashFileSystem::Node> CrashFileSystem::Survivor(const Node& node, Data data,
                                                                 Names names, int depth) {
  auto survivor = std::make_shared<Node>();
  survivor->is_folder = node.is_folder;
  const std::string &now = node.bytes, &synced = node.synced_bytes;
  survivor->bytes = data == Data::kNone ? synced : now;
  if (data == Data::kEvery512 || data == Data::kEvery4096) {
    const size_t block = data == Data::kEvery512 ? 512 : 4096;
    for (size_t at = 0; at < now.size(); at += 2 * block) {
      for (size_t i = at; i < std::min(at + block, now.size()); ++i) {
        survivor->bytes[i] = i < synced.size() ? synced[i] : '\0';
      }
    }
  }
  survivor->synced_bytes = survivor->bytes;
  const bool keeps_names =
      names == Names::kAll || names == (depth <= 1 ? Names::kOuter : Names::kInner);
  for (const auto& [name, child] : keeps_names ? node.names : node.synced_names) {
    survivor->names[name] = Survivor(*child, data, names, depth + 1);
  }
  survivor->synced_names = survivor->names;
  return survivor;
}

std::unique_ptr<CrashFileSystem> CrashFileSystem::AfterCrash(Data data, Names names) const {
  const std::lock_guard<std::recursive_mutex> lock(mutex_);
  auto after = std::make_unique<CrashFileSystem>();
  after->root_ = Survivor(*root_, data, names, /*depth=*/0);
  return after;
}

std::map<std::string, std::string> CrashFileSystem::All() const {
  const std::lock_guard<std::recursive_mutex> lock(mutex_);
  std::map<std::string, std::string> all;
  const std::function<void(const std::string&, const Node&)> add = [&](const std::string& path,
                                                                       const Node& node) {
    for (const auto& [name, child] : node.names) {
      const std::string its = path + "/" + name;
      if (child->is_folder) {
        all[its + "/"] = "";
        add(its, *child);
      } else {
        all[its] = child->bytes;
      }
    }
  };
  add("", *root_);
  return all;
}

int CrashFileSystem::Open(const std::string& path, int flags, mode_t) {
  const std::lock_guard<std::recursive_mutex> lock(mutex_);
  if (Enter("open", path) > 0) return -1;
  std::shared_ptr<Node> node = Find(path);
  if (node != nullptr && (flags & O_EXCL) != 0) return Error(EEXIST);
  if (node == nullptr && (flags & O_CREAT) == 0) return Error(ENOENT);
  if (node != nullptr && (flags & O_DIRECTORY) != 0 && !node->is_folder) return Error(ENOTDIR);
  if (node == nullptr) {
    std::string name;
    const std::shared_ptr<Node> folder = FolderOf(path, name);
    if (folder == nullptr) return Error(ENOENT);
    node = std::make_shared<Node>();
    SetName(*folder, name, node);
  }
  open_[next_fd_] = {node, path};
  return next_fd_++;
}

int CrashFileSystem::Close(int fd) {
  const std::lock_guard<std::recursive_mutex> lock(mutex_);
  const std::string path = open_.at(fd).path;
  // Also where it fails.
  open_.erase(fd);
  return Enter("close", path) > 0 ? -1 : 0;
}

int CrashFileSystem::Stat(int fd, struct stat& status) {
  const std::lock_guard<std::recursive_mutex> lock(mutex_);
  if (Enter("stat", open_.at(fd).path) > 0) return -1;
  status = {};
  status.st_mode = open_.at(fd).node->is_folder ? S_IFDIR : S_IFREG;
  status.st_size = static_cast<off_t>(open_.at(fd).node->bytes.size());
  status.st_nlink = Find(open_.at(fd).path) == open_.at(fd).node ? 1 : 0;
  return 0;
}

ssize_t CrashFileSystem::ReadAt(int fd, void* to, size_t bytes, off_t offset) {
  const std::lock_guard<std::recursive_mutex> lock(mutex_);
  const int entered = Enter("read", open_.at(fd).path);
  if (entered > 0) return -1;
  const std::string& content = open_.at(fd).node->bytes;
  const auto at = std::min(static_cast<size_t>(offset), content.size());
  size_t count = std::min(bytes, content.size() - at);
  if (entered == kShort) count = (count + 1) / 2;
  std::memcpy(to, content.data() + at, count);
  return static_cast<ssize_t>(count);
}

ssize_t CrashFileSystem::WriteAt(int fd, const void* from, size_t bytes, off_t offset) {
  const std::lock_guard<std::recursive_mutex> lock(mutex_);
  const int entered = Enter("write", open_.at(fd).path);
  if (entered > 0) return -1;
  if (entered == kShort) bytes = (bytes + 1) / 2;
  Node& node = *open_.at(fd).node;
  std::string& content = node.bytes;
  const auto begin = static_cast<size_t>(offset);
  content.resize(std::max(content.size(), begin + bytes));
  node.unsynced[host_of_thread].emplace_back(begin, begin + bytes);
  std::memcpy(content.data() + offset, from, bytes);
  return static_cast<ssize_t>(bytes);
}

// There is no page cache to go past.
int CrashFileSystem::SetDirect(int, bool) { return Error(EINVAL); }

int CrashFileSystem::Allocate(int fd, off_t) {
  const std::lock_guard<std::recursive_mutex> lock(mutex_);
  return Enter("allocate", open_.at(fd).path) > 0 ? -1 : 0;
}

int CrashFileSystem::Lock(int fd) {
  const std::lock_guard<std::recursive_mutex> lock(mutex_);
  if (Enter("lock", open_.at(fd).path) > 0) return -1;
  int& holder = open_.at(fd).node->lock_fd;
  if (open_.count(holder) != 0 && holder != fd) return Error(EWOULDBLOCK);
  holder = fd;
  return 0;
}

int CrashFileSystem::BeginToWrite(int fd, off_t, off_t) {
  const std::lock_guard<std::recursive_mutex> lock(mutex_);
  return Enter("begin to write", open_.at(fd).path) > 0 ? -1 : 0;
}

int CrashFileSystem::BeginToRead(int fd, off_t, off_t) {
  const std::lock_guard<std::recursive_mutex> lock(mutex_);
  return Enter("begin to read", open_.at(fd).path) > 0 ? -1 : 0;
}

int CrashFileSystem::SyncData(int fd) {
  const std::lock_guard<std::recursive_mutex> lock(mutex_);
  const int entered = Enter("sync data", open_.at(fd).path);
  if (entered != 0) return entered == kLost ? 0 : -1;
  SyncBytes(*open_.at(fd).node);
  return 0;
}

int CrashFileSystem::Sync(int fd) {
  const std::lock_guard<std::recursive_mutex> lock(mutex_);
  const int entered = Enter("sync", open_.at(fd).path);
  if (entered != 0) return entered == kLost ? 0 : -1;
  Node& node = *open_.at(fd).node;
  SyncBytes(node);
  for (const std::string& name : node.unsynced_names[host_of_thread]) {
    const auto found = node.names.find(name);
    if (found == node.names.end()) {
      node.synced_names.erase(name);
    } else {
      node.synced_names[name] = found->second;
    }
  }
  node.unsynced_names.erase(host_of_thread);
  return 0;
}

int CrashFileSystem::MakeFolder(const std::string& path, mode_t) {
  const std::lock_guard<std::recursive_mutex> lock(mutex_);
  if (Enter("make folder", path) > 0) return -1;
  std::string name;
  const std::shared_ptr<Node> folder = FolderOf(path, name);
  if (folder == nullptr) return Error(ENOENT);
  if (folder->names.count(name) != 0) return Error(EEXIST);
  auto node = std::make_shared<Node>();
  node->is_folder = true;
  SetName(*folder, name, std::move(node));
  return 0;
}

int CrashFileSystem::Remove(const std::string& path, bool is_folder) {
  std::string name;
  const std::shared_ptr<Node> folder = FolderOf(path, name), node = Find(path);
  if (folder == nullptr || node == nullptr) return Error(ENOENT);
  if (node->is_folder != is_folder) return Error(is_folder ? ENOTDIR : EISDIR);
  if (!node->names.empty()) return Error(ENOTEMPTY);
  SetName(*folder, name, nullptr);
  return 0;
}

int CrashFileSystem::RemoveFolder(const std::string& path) {
  const std::lock_guard<std::recursive_mutex> lock(mutex_);
  return Enter("remove folder", path) > 0 ? -1 : Remove(path, /*is_folder=*/true);
}

int CrashFileSystem::Unlink(const std::string& path) {
  const std::lock_guard<std::recursive_mutex> lock(mutex_);
  return Enter("unlink", path) > 0 ? -1 : Remove(path, /*is_folder=*/false);
}

int CrashFileSystem::Rename(const std::string& from, const std::string& to) {
  const std::lock_guard<std::recursive_mutex> lock(mutex_);
  if (Enter("rename", from) > 0) return -1;
  std::string old_name, new_name;
  const std::shared_ptr<Node> source = FolderOf(from, old_name), target = FolderOf(to, new_name);
  const std::shared_ptr<Node> node = Find(from), replaced = Find(to);
  if (source == nullptr || target == nullptr || node == nullptr) return Error(ENOENT);
  if (replaced != nullptr && replaced->is_folder != node->is_folder) {
    return Error(replaced->is_folder ? EISDIR : ENOTDIR);
  }
  if (replaced != nullptr && !replaced->names.empty()) return Error(ENOTEMPTY);
  SetName(*source, old_name, nullptr);
  SetName(*target, new_name, node);
  return 0;
}

int CrashFileSystem::RenameToNew(const std::string& from, const std::string& to) {
  const std::lock_guard<std::recursive_mutex> lock(mutex_);
  if (Find(to) != nullptr) return Enter("rename", from) > 0 ? -1 : Error(EEXIST);
  return Rename(from, to);
}

int CrashFileSystem::List(const std::string& path, std::vector<std::string>& names) {
  const std::lock_guard<std::recursive_mutex> lock(mutex_);
  if (Enter("list", path) > 0) return -1;
  const std::shared_ptr<Node> folder = Find(path);
  if (folder == nullptr) return Error(ENOENT);
  if (!folder->is_folder) return Error(ENOTDIR);
  names.clear();
  for (const auto& [name, node] : folder->names) names.push_back(name);
  return 0;
}

int CrashFileSystem::SpaceOf(const std::string& path, struct statvfs& space) {
  const std::lock_guard<std::recursive_mutex> lock(mutex_);
  if (Enter("space", path) > 0) return -1;
  space = {};
  space.f_frsize = 4096;
  space.f_bavail = blocks_;
  for (const auto& [name, bytes] : All()) space.f_bavail -= (bytes.size() + 4095) / 4096;
  return 0;
}

}  // namespace brigade::checkpoint::testing
