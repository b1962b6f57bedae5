// The manifest of a checkpoint: an input is the text before the checksum, which is added.

#include <cstdint>
#include <string>

#include "absl/strings/str_format.h"
#include "brigade/checkpoint/manifest.h"
#include "brigade/device/file/crc32c.h"
#include "brigade/tests/fuzzing/checks.h"

namespace brigade::checkpoint {

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string input(reinterpret_cast<const char*>(data), size);
  const absl::Status unsummed = ParseManifest(input).status();
  if (!unsummed.ok()) testing::CheckError(unsummed);

  const auto manifest =
      ParseManifest(input + absl::StrFormat(",\n\"crc32c\": \"%08x\"\n}\n", device::Crc32c(input)));
  if (!manifest.ok()) {
    FUZZ_CHECK(manifest.status().code() == absl::StatusCode::kInvalidArgument ||
               absl::IsUnimplemented(manifest.status()));
    testing::CheckError(manifest.status());
    return 0;
  }
  // Modulo 2^64.
  uint64_t in_files = 0, in_pieces = 0;
  for (const Manifest::File& file : manifest->files) {
    FUZZ_CHECK(file.bytes >= 0 && CheckFileName(file.name).ok());
    in_files += static_cast<uint64_t>(file.bytes);
  }
  for (const PieceFile& piece : manifest->pieces) {
    int64_t bytes = 0;
    for (const PieceFile::Extent& extent : piece.extents) {
      FUZZ_CHECK(extent.file >= 0 && static_cast<size_t>(extent.file) < manifest->files.size());
      const Manifest::File& file = manifest->files[static_cast<size_t>(extent.file)];
      FUZZ_CHECK(extent.offset >= 0 && extent.bytes > 0);
      FUZZ_CHECK(extent.offset <= file.bytes && extent.bytes <= file.bytes - extent.offset);
      bytes += extent.bytes;
    }
    FUZZ_CHECK(bytes == piece.bytes && CheckFileName(piece.name).ok());
    in_pieces += static_cast<uint64_t>(bytes);
  }
  FUZZ_CHECK(manifest->pieces.empty() || in_files == in_pieces);
  // What it means has one text, and that means the same.
  const std::string text = ManifestText(*manifest).value();
  FUZZ_CHECK(ManifestText(ParseManifest(text).value()).value() == text);
  return 0;
}

}  // namespace brigade::checkpoint
