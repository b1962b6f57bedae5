#ifndef BRIGADE_CHECKPOINT_SAFETENSORS_H_
#define BRIGADE_CHECKPOINT_SAFETENSORS_H_

// The format of safetensors files: 8 bytes of length (little-endian), as many of JSON, which say of
// each tensor its type, its shape and where its bytes are, and those bytes, without gaps.
//
// Source       github.com/huggingface/safetensors, 0.8.0.

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "brigade/precision/dtype.h"

namespace brigade::checkpoint {

inline constexpr absl::string_view kSafetensorsEnding = ".safetensors";

// Of the JSON, in bytes: the format's own limit.
inline constexpr uint64_t kMostHeaderBytes = 100'000'000;

// Of a shape. No framework has more; the format sets no limit.
inline constexpr size_t kMostDimensions = 64;

struct TensorInfo {
  std::string name = {};
  // As the format has it: "F32".
  std::string type = {};
  // Row-major; {} is a scalar.
  std::vector<uint64_t> shape = {};
  // Bytes [begin, end) of the data.
  uint64_t begin = 0;
  uint64_t end = 0;
};

struct SafetensorsHeader {
  // In the order of their data.
  std::vector<TensorInfo> tensors;
  std::map<std::string, std::string> metadata;
  // Where the data begins in the file.
  uint64_t data_begin = 0;
};

// The format's name of a type.
absl::string_view TypeName(precision::DType dtype);
// Nothing for a type of the format that is none of Brigade's, as "F8_E4M3".
std::optional<precision::DType> DTypeOf(absl::string_view type);

// The header of a file of `file_bytes` that begins with `length`, its first 8 bytes, and goes on
// with `json`.
//
// Errors       InvalidArgument naming the tensor and what is wrong. Refused is all that the
//              reference refuses: a header longer than the file or kMostHeaderBytes, no UTF-8, text
//              behind the object, an unknown type, numbers that are not whole or do not fit, bytes
//              unlike type and shape, a gap, an overlap, bytes behind the last tensor. And what it
//              takes in silence: a name, of a tensor or of the metadata, given twice or with a NUL;
//              a tensor's name that is empty; a field that the format does not know; more than
//              kMostDimensions dimensions.
absl::StatusOr<SafetensorsHeader> ParseHeader(absl::string_view json, uint64_t file_bytes);
// Of `first`, the first 8 bytes of such a file.
absl::StatusOr<uint64_t> ParseHeaderBytes(absl::string_view first, uint64_t file_bytes);

// The header of a file of which `read` gives bytes [offset, offset + bytes). Errors are those of
// `read`, and those above.
absl::StatusOr<SafetensorsHeader> ReadHeader(
    uint64_t file_bytes,
    absl::FunctionRef<absl::Status(int64_t offset, int64_t bytes, void* to)> read);

// The first bytes of a file, up to the data of the tensors, whose bytes follow each other in this
// order: what the reference writes for them, but for blanks at the end, by which the data begins at
// a multiple of `alignment`, a power of two of at least 8. `begin` and `end` are not read.
//
// Errors       InvalidArgument for what ParseHeader refuses, and for another alignment.
absl::StatusOr<std::string> MakeHeader(const std::vector<TensorInfo>& tensors,
                                       const std::map<std::string, std::string>& metadata = {},
                                       uint64_t alignment = 8);

}  // namespace brigade::checkpoint

#endif  // BRIGADE_CHECKPOINT_SAFETENSORS_H_
