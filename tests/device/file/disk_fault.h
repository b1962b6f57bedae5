#ifndef BRIGADE_TESTS_DEVICE_FILE_DISK_FAULT_H_
#define BRIGADE_TESTS_DEVICE_FILE_DISK_FAULT_H_

#include <atomic>
#include <cstdint>
#include <string>

namespace brigade::device {

// What happens to the requests of one file, by the engine of threads: who links this library has
// pread and pwrite of its own.
struct DiskFault {
  // Which file: a part of its path.
  std::string file = {};
  // Requests that go well before.
  std::atomic<int> after = 0;
  std::atomic<bool> of_writes = false;
  // Not 0: that error.
  std::atomic<int> error = 0;
  // Of each request, at most.
  std::atomic<int64_t> bytes = 0;
  std::atomic<int64_t> ns_per_byte = 0;

  void Clear() { after = 0, error = 0, bytes = 0, ns_per_byte = 0; }

  // "/proc/self/fd/7" leads to the file, which may have no name any more.
  bool IsOf(const std::string& link) const;
};

// The process's.
DiskFault& TheDiskFault();

}  // namespace brigade::device

#endif  // BRIGADE_TESTS_DEVICE_FILE_DISK_FAULT_H_
