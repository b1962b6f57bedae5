#ifndef BRIGADE_DATA_BAD_DATA_H_
#define BRIGADE_DATA_BAD_DATA_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace brigade::data {

// What becomes of a line or a file of data that is wrong.
enum class OnError : uint8_t {
  // An error, which names it.
  kRefuse,
  // It is left out, and counted.
  kSkip,
};

// "refuse" or "skip"; InvalidArgument with the choices.
absl::StatusOr<OnError> ParseOnError(absl::string_view text);

// What was left out, and why.
struct Skipped {
  // The messages of the first ones.
  static constexpr size_t kMostMessages = 10;

  int64_t lines = 0;
  int64_t files = 0;
  std::vector<std::string> messages = {};

  // "2 lines and 1 file were left out", and the messages in lines of their own; empty of none.
  std::string Text() const;
};

// Where errors of a reading go.
class BadData {
 public:
  explicit BadData(OnError on_error) : on_error_(on_error) {}

  // InvalidArgument with `message`, which says where and what; OK where it is left out.
  absl::Status Line(std::string message);
  // The error itself, or OK.
  absl::Status File(const absl::Status& error);

  const Skipped& skipped() const { return skipped_; }

 private:
  void Keep(std::string message);

  const OnError on_error_;
  Skipped skipped_;
};

// The name of a file in a message.
std::string ShownPath(absl::string_view path);
// "FILE:LINE", and "FILE:LINE:COLUMN" if the column, from 1 on, is not 0.
std::string Place(absl::string_view path, int64_t line, int64_t column = 0);

}  // namespace brigade::data

#endif  // BRIGADE_DATA_BAD_DATA_H_
