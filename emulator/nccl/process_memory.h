#ifndef BRIGADE_EMULATOR_NCCL_PROCESS_MEMORY_H_
#define BRIGADE_EMULATOR_NCCL_PROCESS_MEMORY_H_

#include <sys/types.h>

#include <cstddef>

#include "absl/status/status.h"

namespace brigade::emulator {

// Copies from and to an array of a process, which may be this one. Unavailable, with the system's
// words, if it refuses that, or if the array is not there.
absl::Status Fetch(void* to, pid_t process, const void* from, size_t bytes);
absl::Status Store(pid_t process, void* to, const void* from, size_t bytes);

}  // namespace brigade::emulator

#endif  // BRIGADE_EMULATOR_NCCL_PROCESS_MEMORY_H_
