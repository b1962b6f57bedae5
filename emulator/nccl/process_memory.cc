#include "brigade/emulator/nccl/process_memory.h"

#include <errno.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cstring>

#include "absl/strings/str_cat.h"

namespace brigade::emulator {
namespace {

absl::Status Copied(ssize_t done, size_t bytes, absl::string_view function) {
  if (done == static_cast<ssize_t>(bytes)) return absl::OkStatus();
  if (done < 0) {
    return absl::UnavailableError(
        absl::StrCat(function, " of another rank's array: ", std::strerror(errno)));
  }
  return absl::UnavailableError(
      absl::StrCat(function, ": ", done, " of ", bytes, " bytes of another rank's array"));
}

}  // namespace

absl::Status Fetch(void* to, pid_t process, const void* from, size_t bytes) {
  if (bytes == 0) return absl::OkStatus();
  if (process == getpid()) {
    if (to != from) std::memcpy(to, from, bytes);
    return absl::OkStatus();
  }
  const iovec here = {to, bytes}, there = {const_cast<void*>(from), bytes};
  return Copied(process_vm_readv(process, &here, 1, &there, 1, 0), bytes, "process_vm_readv");
}

absl::Status Store(pid_t process, void* to, const void* from, size_t bytes) {
  if (bytes == 0) return absl::OkStatus();
  if (process == getpid()) {
    std::memcpy(to, from, bytes);
    return absl::OkStatus();
  }
  const iovec here = {const_cast<void*>(from), bytes}, there = {to, bytes};
  return Copied(process_vm_writev(process, &here, 1, &there, 1, 0), bytes, "process_vm_writev");
}

}  // namespace brigade::emulator
