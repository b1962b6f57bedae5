#include "brigade/tests/testing/late_disk.h"

#include <dlfcn.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <mutex>
#include <system_error>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace brigade::testing {
namespace {

std::mutex mutex;
// Empty: the disk is well.
std::string& Part() {
  static std::string& part = *new std::string();
  return part;
}
std::atomic<int> said_at_sync = 0, said_at_close = 0;

// Whether the file of this descriptor is on the disk.
bool IsOnDisk(int fd) {
  std::error_code error;
  const std::string path =
      std::filesystem::read_symlink(absl::StrCat("/proc/self/fd/", fd), error).string();
  const std::lock_guard lock(mutex);
  return !Part().empty() && absl::StrContains(path, Part());
}

template <typename Call>
Call* Next(const char* name) {
  return reinterpret_cast<Call*>(dlsym(RTLD_NEXT, name));
}

}  // namespace

LateDisk::LateDisk(const std::string& part) {
  said_at_sync = said_at_close = 0;
  // As the system names files.
  std::error_code error;
  const std::string path = std::filesystem::weakly_canonical(part, error).string();
  const std::lock_guard lock(mutex);
  Part() = path;
}
LateDisk::~LateDisk() {
  const std::lock_guard lock(mutex);
  Part().clear();
}
int LateDisk::syncs() { return said_at_sync; }
int LateDisk::closes() { return said_at_close; }

}  // namespace brigade::testing

extern "C" int fsync(int fd) {
  using namespace brigade::testing;
  static auto* const next = Next<int(int)>("fsync");
  if (!IsOnDisk(fd)) return next(fd);
  ++said_at_sync;
  errno = ENOSPC;
  return -1;
}

extern "C" int fclose(std::FILE* file) {
  using namespace brigade::testing;
  static auto* const next = Next<int(std::FILE*)>("fclose");
  const bool says = IsOnDisk(fileno(file));
  const int closed = next(file);
  if (!says) return closed;
  ++said_at_close;
  errno = ENOSPC;
  return EOF;
}
