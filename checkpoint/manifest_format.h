#ifndef BRIGADE_CHECKPOINT_MANIFEST_FORMAT_H_
#define BRIGADE_CHECKPOINT_MANIFEST_FORMAT_H_

// What the writer and the reader of manifests share.

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "brigade/checkpoint/manifest.h"

namespace brigade::checkpoint::internal {

inline constexpr absl::string_view kFormat = "brigade checkpoint";
inline constexpr int kVersion = 1;

// Before and behind the checksum of what is before it.
inline constexpr absl::string_view kSumBegin = ",\n\"crc32c\": \"", kSumEnd = "\"\n}\n";
inline constexpr size_t kSumDigits = 8;

std::string SumText(uint32_t crc);

// InvalidArgument naming the file and the extent, by its place among those of the file.
absl::Status WrongExtent(const PieceFile& file, size_t extent);

// Whether names, bytes and extents may stand in a manifest.
absl::Status CheckManifest(const Manifest& manifest);

}  // namespace brigade::checkpoint::internal

#endif  // BRIGADE_CHECKPOINT_MANIFEST_FORMAT_H_
