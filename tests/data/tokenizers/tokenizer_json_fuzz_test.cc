// A tokenizer.json: an input is its text, and what the tokenizer is then given.

#include <cstdint>
#include <string>
#include <vector>

#include "brigade/data/tokenizers/tokenizer_json.h"
#include "brigade/tests/fuzzing/checks.h"

namespace brigade::data {

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const absl::string_view text(reinterpret_cast<const char*>(data), size);
  const auto tokenizer = ParseTokenizerJson(text);
  if (!tokenizer.ok()) {
    testing::CheckError(tokenizer.status(), 67);
    return 0;
  }
  std::vector<int32_t> ids;
  const absl::Status encoded = (*tokenizer)->Encode(text, SpecialText::kIsToken, ids);
  if (encoded.ok()) {
    for (const int32_t id : ids) FUZZ_CHECK(id >= 0 && id < (*tokenizer)->vocabulary());
  } else {
    testing::CheckError(encoded);
  }
  // What is written is read as the same.
  const std::string written = TokenizerJson(**tokenizer);
  const auto again = ParseTokenizerJson(written);
  FUZZ_CHECK(again.ok() && TokenizerJson(**again) == written);
  return 0;
}

}  // namespace brigade::data
