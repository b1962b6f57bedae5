#include "brigade/tests/device/file/disk_fault.h"

#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <system_error>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace brigade::device {

DiskFault& TheDiskFault() {
  static auto& fault = *new DiskFault();
  return fault;
}

bool DiskFault::IsOf(const std::string& link) const {
  std::error_code error;
  const std::string path = std::filesystem::read_symlink(link, error).string();
  return absl::StrContains(path, file);
}

namespace {

// The bytes that may be transferred, or -1.
int64_t Suffer(int fd, size_t bytes, bool write) {
  DiskFault& fault = TheDiskFault();
  const auto all = static_cast<int64_t>(bytes);
  const bool is_well = fault.error == 0 && fault.bytes == 0 && fault.ns_per_byte == 0;
  if (is_well || !fault.IsOf(absl::StrCat("/proc/self/fd/", fd))) return all;
  std::this_thread::sleep_for(std::chrono::nanoseconds(fault.ns_per_byte * all));
  if (fault.bytes != 0) return std::min<int64_t>(all, fault.bytes);
  if (fault.error == 0 || write != fault.of_writes || fault.after-- > 0) return all;
  errno = fault.error;
  return -1;
}

template <typename Call>
Call* Next(const char* name) {
  return reinterpret_cast<Call*>(dlsym(RTLD_NEXT, name));
}

}  // namespace
}  // namespace brigade::device

// In place of the system's.
extern "C" ssize_t pread(int fd, void* data, size_t bytes, off_t offset) {
  static auto* const next = brigade::device::Next<ssize_t(int, void*, size_t, off_t)>("pread");
  const int64_t allowed = brigade::device::Suffer(fd, bytes, false);
  return allowed < 0 ? -1 : next(fd, data, static_cast<size_t>(allowed), offset);
}

extern "C" ssize_t pwrite(int fd, const void* data, size_t bytes, off_t offset) {
  static auto* const next =
      brigade::device::Next<ssize_t(int, const void*, size_t, off_t)>("pwrite");
  const int64_t allowed = brigade::device::Suffer(fd, bytes, true);
  return allowed < 0 ? -1 : next(fd, data, static_cast<size_t>(allowed), offset);
}
