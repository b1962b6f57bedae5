#ifndef BRIGADE_CHECKPOINT_VERIFY_H_
#define BRIGADE_CHECKPOINT_VERIFY_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "brigade/checkpoint/read_ahead.h"
#include "brigade/device/file/system_calls.h"

namespace brigade::checkpoint {

struct VerifyOptions {
  // A multiple of 8 above 0.
  int64_t chunk_bytes = kReadChunkBytes;
  // Called after each chunk, with the bytes that were read and those of all files.
  std::function<void(int64_t done, int64_t total)> progress = nullptr;
};

struct VerifyReport {
  // Without the manifest.
  int files = 0;
  int tensors = 0;
  int64_t bytes = 0;
  double seconds = 0;
  // A line each, naming file and tensor; empty: the checkpoint is whole.
  std::vector<std::string> damages = {};
};

// Reads all of a checkpoint, each byte once: whether every file is there, has its size and its
// checksum, every tensor its own, every header is one, the index is true, and nothing else is in
// the folder. Goes on after each damage.
//
// Memory       Two chunks, the manifest and the headers.
// Errors       Those of CheckpointReader::Open: without a manifest nothing can be verified.
//              Those of ReadAhead.
absl::StatusOr<VerifyReport> Verify(const std::string& folder, const VerifyOptions& options = {},
                                    device::SystemCalls& system = device::SystemCalls::Real());

}  // namespace brigade::checkpoint

#endif  // BRIGADE_CHECKPOINT_VERIFY_H_
