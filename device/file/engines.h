#ifndef BRIGADE_DEVICE_FILE_ENGINES_H_
#define BRIGADE_DEVICE_FILE_ENGINES_H_

#include <memory>

#include "absl/status/statusor.h"
#include "brigade/device/file/file_engine.h"
#include "brigade/device/file/file_options.h"

namespace brigade::device::internal {

struct ChosenEngine {
  // Not kAuto.
  FileEngineKind kind;
  std::unique_ptr<FileEngine> engine;
};

// The engine of that kind. kAuto takes io_uring if it works here, and threads else. Unavailable,
// with what the kernel says, for kIoUring where it does not work.
absl::StatusOr<ChosenEngine> ChooseEngine(FileEngineKind kind);

}  // namespace brigade::device::internal

#endif  // BRIGADE_DEVICE_FILE_ENGINES_H_
