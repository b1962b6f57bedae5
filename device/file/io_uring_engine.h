#ifndef BRIGADE_DEVICE_FILE_IO_URING_ENGINE_H_
#define BRIGADE_DEVICE_FILE_IO_URING_ENGINE_H_

#include <memory>

#include "absl/status/statusor.h"
#include "brigade/device/file/file_engine.h"

namespace brigade::device::internal {

// io_uring by its three system calls: a ring for each queue. Linux 5.6 or later. Unavailable, with
// what the kernel says, if it lacks or forbids io_uring: a ring is made and used to find out.
//
// Buffers and files are not registered: at blocks of 1 MiB that saves nothing measurable, and
// locked memory is limited (docs/decisions/0110-file-tier.md).
absl::StatusOr<std::unique_ptr<FileEngine>> CreateIoUringEngine();

}  // namespace brigade::device::internal

#endif  // BRIGADE_DEVICE_FILE_IO_URING_ENGINE_H_
