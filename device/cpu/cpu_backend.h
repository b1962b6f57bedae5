#ifndef BRIGADE_DEVICE_CPU_CPU_BACKEND_H_
#define BRIGADE_DEVICE_CPU_CPU_BACKEND_H_

#include <memory>

#include "brigade/device/context_options.h"
#include "brigade/device/internal/backend.h"
#include "brigade/device/threads/thread_pool.h"

namespace brigade::device::internal {

// The CPU as a device, with the options' delay and link. `pool` outlives the backend and its
// streams.
std::unique_ptr<Backend> CreateCpuBackend(ThreadPool& pool, const ContextOptions& options);

}  // namespace brigade::device::internal

#endif  // BRIGADE_DEVICE_CPU_CPU_BACKEND_H_
