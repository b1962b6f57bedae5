#ifndef BRIGADE_DATA_LINE_SAMPLE_H_
#define BRIGADE_DATA_LINE_SAMPLE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "brigade/data/chat_template.h"

namespace brigade::data {

// The keys of a line's object that are read; others are passed over. A line has one of `messages`,
// `text`, or `prompt` with `answer`.
struct LineKeys {
  std::string prompt = "prompt";
  std::string answer = "answer";
  // Before the prompt, if it is there.
  std::string system = "system";
  // An array of {"role": ..., "content": ...}.
  std::string messages = "messages";
  // A text without turns, all of which counts.
  std::string text = "text";
};

// InvalidArgument for a key that is empty or named twice.
absl::Status CheckKeys(const LineKeys& keys);

// What a line of JSON says.
struct LineSample {
  // Without turns it is a text.
  std::vector<Turn> turns = {};
  std::optional<std::string> text = {};
};

// What is wrong with a line.
struct LineError {
  std::string message = {};
  // In bytes, from 1 on; 0 of the whole line.
  int64_t column = 0;
};

// Reads a line of strict JSON: valid UTF-8, one object, no key that is read twice. There is at
// least one answer. Nothing is kept of values that are not read, however deep they are.
std::optional<LineError> ParseLine(absl::string_view line, const LineKeys& keys,
                                   LineSample& sample);

}  // namespace brigade::data

#endif  // BRIGADE_DATA_LINE_SAMPLE_H_
