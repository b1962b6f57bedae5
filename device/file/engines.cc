#include "brigade/device/file/engines.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "brigade/device/file/io_uring_engine.h"
#include "brigade/device/file/system_calls.h"
#include "brigade/device/file/thread_engine.h"

namespace brigade::device::internal {

absl::StatusOr<ChosenEngine> ChooseEngine(FileEngineKind kind) {
  std::string reason;
  if (kind != FileEngineKind::kThreads) {
    absl::StatusOr<std::unique_ptr<FileEngine>> engine = CreateIoUringEngine();
    if (engine.ok()) return ChosenEngine{FileEngineKind::kIoUring, *std::move(engine)};
    if (kind == FileEngineKind::kIoUring) return engine.status();
    reason = absl::StrCat("no io_uring: ", engine.status().message());
  }
  return ChosenEngine{FileEngineKind::kThreads,
                      CreateThreadEngine(SystemCalls::Real(), std::move(reason))};
}

}  // namespace brigade::device::internal
