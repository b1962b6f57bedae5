// The index of weights in several files: an input is its text.

#include <string>

#include "absl/strings/match.h"
#include "brigade/checkpoint/weight_index.h"
#include "brigade/tests/fuzzing/checks.h"
#include "nlohmann/json.hpp"

namespace brigade::checkpoint {

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto index = ParseWeightIndex(absl::string_view(reinterpret_cast<const char*>(data), size));
  if (!index.ok()) {
    testing::CheckError(index.status());
    return 0;
  }
  nlohmann::json again = {{"weight_map", index->file_of}};
  if (index->total_size.has_value()) again["metadata"]["total_size"] = *index->total_size;
  for (const auto& [name, file] : index->file_of) {
    FUZZ_CHECK(!name.empty() && name.find('\0') == std::string::npos);
    // No path out of the folder.
    FUZZ_CHECK(!file.empty() && file[0] != '.' && !absl::StrContains(file, '/') &&
               file.find('\0') == std::string::npos);
  }
  const auto same = ParseWeightIndex(again.dump());
  FUZZ_CHECK(same.ok() && same->file_of == index->file_of && same->total_size == index->total_size);
  return 0;
}

}  // namespace brigade::checkpoint
