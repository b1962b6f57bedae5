#ifndef BRIGADE_DATA_SOURCE_FILES_H_
#define BRIGADE_DATA_SOURCE_FILES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "brigade/data/bad_data.h"

namespace brigade::data {

// The files of a data set, in an order that is the same on every machine. `path` is a file,
// whatever its name, or a folder: then all regular files in it and its folders whose names end with
// `ending` (empty: all), by their paths' bytes. What begins with a dot is left out. A link to a
// file is that file; a link to a folder is left out, so that nothing goes in circles.
//
// Errors       NotFound, or what the system says, naming the path; InvalidArgument for what is
//              neither a file nor a folder, and for a folder without such files. A folder inside
//              that cannot be read goes to `bad`.
absl::StatusOr<std::vector<std::string>> SourceFiles(const std::string& path,
                                                     absl::string_view ending, BadData& bad);

// What the files of a data set have at most together, in bytes: an eighth of the machine's memory.
// Tokens take about as much as their text, and twice that while they become more.
int64_t MostDataBytes();
// ResourceExhausted naming the path if `bytes` are more than that.
absl::Status CheckDataBytes(const std::string& path, int64_t bytes);

}  // namespace brigade::data

#endif  // BRIGADE_DATA_SOURCE_FILES_H_
