#ifndef BRIGADE_TESTS_DATA_WRITTEN_H_
#define BRIGADE_TESTS_DATA_WRITTEN_H_

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "brigade/data/dataset.h"

namespace brigade::data::testing {

// A folder of the test's own, empty.
inline std::string Folder(const std::string& name) {
  const char* const base = std::getenv("TEST_TMPDIR");
  const std::string folder = std::string(base == nullptr ? "/tmp" : base) + "/" + name;
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  return folder;
}

// Returns the path. A file that is there is removed first: some file systems write what is made
// shorter and closed to the disk at once.
inline std::string Write(const std::string& path, absl::string_view bytes) {
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  std::filesystem::remove(path);
  std::ofstream(path, std::ios::binary)
      .write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  return path;
}

// A row with memory of its own, of values that nobody writes.
struct OwnRow {
  explicit OwnRow(int64_t context)
      : ids(static_cast<size_t>(context) + 1, -7),
        labels(static_cast<size_t>(context), -7),
        positions(labels),
        segments(labels) {}

  Row row() {
    return {absl::MakeSpan(ids), absl::MakeSpan(labels), absl::MakeSpan(positions),
            absl::MakeSpan(segments)};
  }

  std::vector<int32_t> ids, labels, positions, segments;
};

}  // namespace brigade::data::testing

#endif  // BRIGADE_TESTS_DATA_WRITTEN_H_
