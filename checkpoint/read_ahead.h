#ifndef BRIGADE_CHECKPOINT_READ_AHEAD_H_
#define BRIGADE_CHECKPOINT_READ_AHEAD_H_

#include <cstdint>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace brigade::checkpoint {

// Bytes [offset, offset + bytes) of a source, which means to `read` what the caller likes.
struct ReadRange {
  int source = 0;
  int64_t offset = 0;
  int64_t bytes = 0;
};

struct ReadChunk {
  // Which of the ranges, and bytes in it.
  size_t range = 0;
  int64_t offset = 0;
  // Its bytes, until `use` returns; or the error of `read`, after which the range ends.
  absl::StatusOr<absl::string_view> bytes = absl::string_view();
};

inline constexpr int64_t kReadChunkBytes = int64_t{8} << 20;

// Reads ranges, one behind the other, in chunks of at most `chunk_bytes`, a multiple of 8: `read`
// runs on a thread of its own, and reads a chunk while `use` has the one before. A range without
// bytes has no chunk.
//
// Memory       Two chunks.
// Errors       InvalidArgument for other chunks, before anything is read. The first one of `use`,
//              after which nothing more is read. ResourceExhausted without a thread.
absl::Status ReadAhead(absl::Span<const ReadRange> ranges, int64_t chunk_bytes,
                       absl::FunctionRef<absl::Status(const ReadRange& part, char* to)> read,
                       absl::FunctionRef<absl::Status(const ReadChunk& chunk)> use);

}  // namespace brigade::checkpoint

#endif  // BRIGADE_CHECKPOINT_READ_AHEAD_H_
