#ifndef BRIGADE_DEVICE_CPU_CPU_MEMORY_H_
#define BRIGADE_DEVICE_CPU_CPU_MEMORY_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "brigade/device/threads/thread_pool.h"

namespace brigade::device::internal {

// Memory of the CPU device: aligned to 2 MiB with huge pages advised, from that size up; below to a
// page or 256 bytes. `bytes` > 0. ResourceExhausted with the reason only.
absl::StatusOr<void*> AllocateMemory(int64_t bytes);
void FreeMemory(void* data);

// Large ones are spread over the pool.
void CopyMemory(void* destination, const void* source, int64_t bytes, ThreadPool& pool);
void FillMemory(void* destination, uint8_t value, int64_t bytes, ThreadPool& pool);

}  // namespace brigade::device::internal

#endif  // BRIGADE_DEVICE_CPU_CPU_MEMORY_H_
