#ifndef BRIGADE_CHECKPOINT_CHECKPOINT_READER_H_
#define BRIGADE_CHECKPOINT_CHECKPOINT_READER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "brigade/checkpoint/durable_file.h"
#include "brigade/checkpoint/manifest.h"
#include "brigade/checkpoint/safetensors.h"
#include "brigade/checkpoint/weight_index.h"
#include "brigade/device/file/system_calls.h"

namespace brigade::checkpoint {

// A file of a folder that must have `bytes` bytes. DataLoss if it is not there, or has others.
absl::StatusOr<RandomAccessFile> OpenFileOfSize(device::SystemCalls& system,
                                                const std::string& folder, const std::string& name,
                                                int64_t bytes);

// "WHAT has the checksum IS, and should have SHOULD_BE".
std::string SumError(absl::string_view what, uint32_t is, uint32_t should_be);

// Reads the files of a checkpoint, also where they lie in pieces. Checks no sums but those of the
// manifest and of headers.
//
// Errors       NotFound without a manifest, Unimplemented for one of another version; DataLoss for
//              one that is damaged, and for a file that is not there, or has another size than the
//              manifest says; what the system says. All name the path.
// Threads      One at a time.
class CheckpointReader {
 public:
  static absl::StatusOr<CheckpointReader> Open(device::SystemCalls& system,
                                               const std::string& folder);

  const std::string& folder() const { return folder_; }
  const Manifest& manifest() const { return manifest_; }
  // Of its text: that of a checkpoint as a whole.
  uint32_t manifest_sum() const { return manifest_sum_; }

  // Bytes [offset, offset + bytes) of a file of the manifest, which has them.
  absl::Status Read(int file, int64_t offset, int64_t bytes, void* to);
  // Those will be read soon: the disk may begin. Read says what is wrong with them.
  void BeginToRead(int file, int64_t offset, int64_t bytes);

  // The header of a safetensors file of the manifest. DataLoss, with the path, for one that is
  // damaged: its checksum follows from those of the file and its tensors.
  absl::StatusOr<SafetensorsHeader> ReadHeaderOf(int file);
  // The same of all of them, in the order of the manifest; a header without tensors for a file that
  // is none.
  absl::StatusOr<std::vector<SafetensorsHeader>> ReadHeaders();
  // That of the weights. DataLoss, with the path, for one that is not in the manifest, or damaged.
  absl::StatusOr<WeightIndex> ReadIndex();

 private:
  // A part of a file of the manifest in a piece file.
  struct Extent {
    int64_t offset = 0;
    int64_t bytes = 0;
    int piece = 0;
    // Bytes in the piece file.
    int64_t at = 0;
  };

  CheckpointReader(device::SystemCalls& system, const std::string& folder)
      : system_(&system), folder_(folder) {}

  // Bytes of a file of the folder.
  struct Part {
    const std::string& name;
    // Of the file.
    int64_t size = 0;
    int64_t offset = 0;
    int64_t bytes = 0;
  };

  // The parts that bytes of a file of the manifest are, in their order.
  absl::Status ForEachPart(int file, int64_t offset, int64_t bytes,
                           absl::FunctionRef<absl::Status(const Part& part)> use) const;
  absl::StatusOr<const RandomAccessFile*> FileOf(const Part& part);

  device::SystemCalls* system_;
  std::string folder_;
  Manifest manifest_;
  uint32_t manifest_sum_ = 0;
  // Of each file, ascending; empty without piece files.
  std::vector<std::vector<Extent>> extents_;
  // The few files that are read by turns, by name, the one that was used last behind.
  std::vector<std::pair<std::string, std::unique_ptr<RandomAccessFile>>> open_;
};

}  // namespace brigade::checkpoint

#endif  // BRIGADE_CHECKPOINT_CHECKPOINT_READER_H_
