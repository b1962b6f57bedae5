#ifndef BRIGADE_CHECKPOINT_MANIFEST_H_
#define BRIGADE_CHECKPOINT_MANIFEST_H_

// The file of a checkpoint that says what the others are, with checksums (CRC-32C) of each and of
// itself: a folder with a manifest is a checkpoint.

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "brigade/checkpoint/fields.h"

namespace brigade::checkpoint {

inline constexpr size_t kMostManifestBytes = size_t{256} << 20;

// What ranks with files of their own have written: parts of the files of the manifest, one behind
// the other.
struct PieceFile {
  struct Extent {
    // Of Manifest::files.
    int file = 0;
    // Bytes in it.
    int64_t offset = 0;
    int64_t bytes = 0;
  };

  std::string name = {};
  int64_t bytes = 0;
  uint32_t crc32c = 0;
  std::vector<Extent> extents = {};
};

struct Manifest {
  struct Tensor {
    std::string name;
    uint32_t crc32c = 0;
  };
  struct File {
    std::string name = {};
    int64_t bytes = 0;
    uint32_t crc32c = 0;
    // Of a safetensors file, in the order of their data.
    std::vector<Tensor> tensors = {};
  };

  // Of fields.h.
  Fields state = {};
  Fields rates = {};
  Fields options = {};
  Fields parameters = {};
  // What the training itself says: seed, data, batch.
  Fields training = {};
  // Of the layout.
  int64_t file_bytes = 0;
  std::vector<File> files = {};
  // Empty: the files are there as they are. Else the folder has these in their place.
  std::vector<PieceFile> pieces = {};
};

// JSON, whose last field is the checksum of all before it: the same for equal manifests.
//
// Errors       InvalidArgument for what ParseManifest refuses: text that is no UTF-8, names of
//              files that CheckFileName refuses or that are given twice, extents that are not all
//              bytes of all files, each once; more than kMostManifestBytes.
absl::StatusOr<std::string> ManifestText(const Manifest& manifest);

// Memory       Up to 16 times the text, 4 times for one of many tensors: what is wrong is not kept.
// Errors       DataLoss for text whose checksum is another. Unimplemented for another version.
//              InvalidArgument for what ManifestText does not write: keys, values, and the above.
absl::StatusOr<Manifest> ParseManifest(absl::string_view text);

// A name that leads nowhere else: of 1 to 255 bytes, no "/", no NUL, no "." at its begin.
absl::Status CheckFileName(absl::string_view name);

}  // namespace brigade::checkpoint

#endif  // BRIGADE_CHECKPOINT_MANIFEST_H_
