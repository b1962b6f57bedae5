#ifndef BRIGADE_DEVICE_FILE_THREAD_ENGINE_H_
#define BRIGADE_DEVICE_FILE_THREAD_ENGINE_H_

#include <memory>
#include <string>

#include "brigade/device/file/file_engine.h"
#include "brigade/device/file/system_calls.h"

namespace brigade::device::internal {

// Threads that call pread and pwrite: one for each request that a queue has in flight. `reason`
// says why it is threads, for the description; empty: it was asked for. `system` outlives it.
std::unique_ptr<FileEngine> CreateThreadEngine(SystemCalls& system, std::string reason = "");

}  // namespace brigade::device::internal

#endif  // BRIGADE_DEVICE_FILE_THREAD_ENGINE_H_
