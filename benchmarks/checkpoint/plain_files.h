#ifndef BRIGADE_BENCHMARKS_CHECKPOINT_PLAIN_FILES_H_
#define BRIGADE_BENCHMARKS_CHECKPOINT_PLAIN_FILES_H_

// What the disk allows: plain loops over files.

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"

namespace brigade::benchmarks {

// Bytes of memory, one behind the other in a file.
using Memory = std::vector<absl::Span<const char>>;

// A new file that room is taken for: pwrite of `chunk_bytes` each, fdatasync at the end.
absl::Status WritePlain(const std::string& path, const Memory& memory, int64_t chunk_bytes);

// Share `rank` of `ranks` of each file: pread of `chunk_bytes` each, one behind the other into
// `to`, which has room for them. With `sum` each is added to it (CRC-32C) once it is read.
absl::Status ReadPlain(const std::vector<std::string>& paths, int rank, int ranks,
                       int64_t chunk_bytes, absl::Span<char> to, uint32_t* sum = nullptr);

// The regular files of a folder, sorted.
std::vector<std::string> FilesOf(const std::string& folder);
int64_t BytesOf(const std::vector<std::string>& paths);

// The page cache has nothing of them any more; they must be on the disk.
absl::Status DropFromCache(const std::vector<std::string>& paths);
// Removes files, or folders with what is in them, and waits until the disk has nothing to write.
absl::Status RemoveAndSync(const std::string& folder, const std::vector<std::string>& names);

}  // namespace brigade::benchmarks

#endif  // BRIGADE_BENCHMARKS_CHECKPOINT_PLAIN_FILES_H_
