#include "brigade/device/file/file_options.h"

#include "absl/strings/str_cat.h"
#include "brigade/device/file/aligned_memory.h"
#include "brigade/device/file/file_transfer.h"
#include "brigade/device/file/store_table.h"

namespace brigade::device {
namespace {

// Of one request.
constexpr int64_t kMostBlockBytes = int64_t{1} << 30;
constexpr int kMostBlocks = 1024;
constexpr int kMostOperations = 64;

absl::Status Refuse(absl::string_view option, int64_t value, absl::string_view reason) {
  return absl::InvalidArgumentError(
      absl::StrCat("FileOptions::", option, " is ", value, ", ", reason));
}

absl::Status CheckRange(absl::string_view option, int64_t value, int64_t most) {
  if (value >= 1 && value <= most) return absl::OkStatus();
  return Refuse(option, value, absl::StrCat("which is not from 1 to ", most));
}

}  // namespace

absl::string_view ToString(FileEngineKind kind) {
  switch (kind) {
    case FileEngineKind::kAuto:
      return "auto";
    case FileEngineKind::kIoUring:
      return "io_uring";
    case FileEngineKind::kThreads:
      return "threads";
  }
  return "?";
}

absl::string_view ToString(CrashSafety safety) {
  switch (safety) {
    case CrashSafety::kNone:
      return "none";
    case CrashSafety::kProcess:
      return "process";
    case CrashSafety::kMachine:
      return "machine";
  }
  return "?";
}

absl::Status FileOptions::Validate() const {
  if (directory.empty()) {
    return absl::InvalidArgumentError("FileOptions::directory is empty: say where the file goes");
  }
  if (ToString(engine) == "?") {
    return Refuse("engine", static_cast<int64_t>(engine), "which is no FileEngineKind");
  }
  if (ToString(crash_safety) == "?") {
    return Refuse("crash_safety", static_cast<int64_t>(crash_safety), "which is no CrashSafety");
  }
  if (block_bytes % internal::kFileBlockBytes != 0) {
    return Refuse("block_bytes", block_bytes, "which is no multiple of 4096");
  }
  for (const absl::Status& checked : {CheckRange("block_bytes", block_bytes, kMostBlockBytes),
                                      CheckRange("queue_depth", queue_depth, kMostBlocks),
                                      CheckRange("operations", operations, kMostOperations)}) {
    if (!checked.ok()) return checked;
  }
  return absl::OkStatus();
}

int64_t FileStoreBytes(absl::Span<const int64_t> chunk_bytes) {
  return internal::LayOut(chunk_bytes, {});
}

int64_t FileStoreMemoryBytes(const FileOptions& options, absl::Span<const int64_t> chunk_bytes) {
  const bool has_table = options.crash_safety != CrashSafety::kNone;
  return (has_table ? internal::TableBytes(static_cast<int64_t>(chunk_bytes.size())) : 0) +
         int64_t{options.operations} * options.queue_depth * internal::kStagingBytes +
         internal::kFileBlockBytes;
}

}  // namespace brigade::device
