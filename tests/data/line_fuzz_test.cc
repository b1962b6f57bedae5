// A line of JSON lines: an input is its text.

#include <cstdint>

#include "brigade/data/line_sample.h"
#include "brigade/tests/fuzzing/checks.h"

namespace brigade::data {

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  LineSample sample;
  const auto error =
      ParseLine(absl::string_view(reinterpret_cast<const char*>(data), size), {}, sample);
  if (error.has_value()) {
    testing::CheckError(absl::InvalidArgumentError(error->message));
    FUZZ_CHECK(error->column >= 0 && static_cast<size_t>(error->column) <= size + 1);
    return 0;
  }
  // A text, or turns with an answer among them.
  bool has_answer = sample.text.has_value();
  for (const Turn& turn : sample.turns) has_answer |= turn.role == ChatRole::kAssistant;
  FUZZ_CHECK(has_answer && sample.text.has_value() == sample.turns.empty());
  return 0;
}

}  // namespace brigade::data
