// The header of a file of safetensors: an input is the file.

#include <string>

#include "brigade/checkpoint/safetensors.h"
#include "brigade/tests/fuzzing/checks.h"

namespace brigade::checkpoint {

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const absl::string_view file(reinterpret_cast<const char*>(data), size);
  const absl::StatusOr<uint64_t> json_bytes = ParseHeaderBytes(file.substr(0, 8), size);
  if (!json_bytes.ok()) {
    testing::CheckError(json_bytes.status());
    return 0;
  }
  FUZZ_CHECK(8 + *json_bytes <= size);
  const auto header = ParseHeader(file.substr(8, *json_bytes), size);
  if (!header.ok()) {
    testing::CheckError(header.status());
    return 0;
  }
  // All of the file, once.
  uint64_t at = 0;
  for (const TensorInfo& tensor : header->tensors) {
    FUZZ_CHECK(tensor.begin == at && tensor.end >= at);
    at = tensor.end;
  }
  FUZZ_CHECK(header->data_begin + at == size);

  const std::string made = MakeHeader(header->tensors, header->metadata).value();
  const auto again = ParseHeader(absl::string_view(made).substr(8), made.size() + at);
  FUZZ_CHECK(again.ok() && again->tensors.size() == header->tensors.size());
  FUZZ_CHECK(again->metadata == header->metadata);
  for (size_t i = 0; i < header->tensors.size(); ++i) {
    const TensorInfo &before = header->tensors[i], &after = again->tensors[i];
    FUZZ_CHECK(before.name == after.name && before.type == after.type &&
               before.shape == after.shape && before.begin == after.begin &&
               before.end == after.end);
  }
  return 0;
}

}  // namespace brigade::checkpoint
