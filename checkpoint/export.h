#ifndef BRIGADE_CHECKPOINT_EXPORT_H_
#define BRIGADE_CHECKPOINT_EXPORT_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "brigade/checkpoint/read_ahead.h"
#include "brigade/device/file/system_calls.h"
#include "brigade/precision/dtype.h"

namespace brigade::checkpoint {

struct ExportOptions {
  // Of all parameters: float32, float16 or bfloat16, rounded to nearest even. None: float32, and
  // frozen ones in their own.
  std::optional<precision::DType> dtype = {};
  // Whether a file that is there is replaced.
  bool force = false;
  // A multiple of 8 above 0.
  int64_t chunk_bytes = kReadChunkBytes;
};

struct ExportReport {
  int files = 0;
  int tensors = 0;
  int64_t bytes = 0;
};

// Both, of a checkpoint in place or in piece files:
//
// Memory       Two chunks to read and one to convert, the manifest and the headers.
// Errors       Those of CheckpointReader and of ReadAhead. AlreadyExists if something has the name,
//              without `force`. DataLoss naming what is damaged. After an error there is nothing
//              new, and what was there stays; if the last sync has failed, it may be the new one.

// Writes one safetensors file of the parameters of the checkpoint in `folder`: of wider types
// first, else in their order. It gets its name once it is on the disk as a whole.
absl::StatusOr<ExportReport> ExportParameters(
    const std::string& folder, const std::string& out, const ExportOptions& options = {},
    device::SystemCalls& system = device::SystemCalls::Real());

// Writes the same checkpoint in place: the bytes that WriteMode::kInPlace saves.
absl::StatusOr<ExportReport> ExportFolder(
    const std::string& folder, const std::string& out, int64_t chunk_bytes = kReadChunkBytes,
    device::SystemCalls& system = device::SystemCalls::Real());

}  // namespace brigade::checkpoint

#endif  // BRIGADE_CHECKPOINT_EXPORT_H_
