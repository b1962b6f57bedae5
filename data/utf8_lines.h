#ifndef BRIGADE_DATA_UTF8_LINES_H_
#define BRIGADE_DATA_UTF8_LINES_H_

#include <string>

#include "absl/status/status.h"
#include "brigade/data/bad_data.h"

namespace brigade::data {

// Leaves the lines out of a file's text that are not valid UTF-8, newline and all, where `bad`
// skips; else the first one is its error, with file, line and column in bytes.
absl::Status LeaveBadLinesOut(const std::string& path, BadData& bad, std::string& text);

}  // namespace brigade::data

#endif  // BRIGADE_DATA_UTF8_LINES_H_
