#ifndef BRIGADE_DATA_LINE_READER_H_
#define BRIGADE_DATA_LINE_READER_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "brigade/device/files.h"

namespace brigade::data {

struct Line {
  // Without its end; valid until the next one is read. Empty if it is too long.
  absl::string_view text;
  // From 1 on.
  int64_t number = 0;
  bool is_too_long = false;
};

// The lines of a file, which end with a newline, before which a carriage return may stand; the last
// one may end with the file. Of the file it keeps one block and one line.
class LineReader {
 public:
  static constexpr int64_t kBlockBytes = 1 << 20;

  // Lines of more than `most_line_bytes` are passed over. Errors of device::InputFile.
  static absl::StatusOr<LineReader> Open(const std::string& path, int64_t most_line_bytes);

  // The size of the file, and how much of it was read, in bytes.
  int64_t size() const { return file_.size(); }

  // False behind the last line. DataLoss if the file has become shorter, or what the system says,
  // naming the file.
  absl::StatusOr<bool> Next(Line& line);

 private:
  LineReader(device::InputFile file, int64_t most_line_bytes)
      : file_(std::move(file)), most_(static_cast<size_t>(most_line_bytes)), left_(file_.size()) {}

  absl::Status ReadBlock();

  device::InputFile file_;
  size_t most_;
  // Of the file, behind the block.
  int64_t left_;
  int64_t number_ = 0;
  std::string block_;
  size_t at_ = 0;
  // A line that begins in a block before.
  std::string begun_;
};

}  // namespace brigade::data

#endif  // BRIGADE_DATA_LINE_READER_H_
