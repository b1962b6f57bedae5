#ifndef BRIGADE_CHECKPOINT_STRICT_JSON_H_
#define BRIGADE_CHECKPOINT_STRICT_JSON_H_

#include <cstddef>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "nlohmann/json.hpp"

namespace brigade::checkpoint {

struct JsonLimits {
  // Of the text.
  size_t bytes = size_t{1} << 20;
  // Objects and arrays within each other.
  int depth = 32;
};

// Strict JSON: no comments, no key twice in an object, no number that a double cannot hold.
//
// Memory       Up to 48 times the text: objects without members take most.
// Errors       InvalidArgument with line and column, of text that is too long without: the first
//              thing that is wrong, or the paths of all keys that come twice. Of what has several
//              bytes the place is that of the last.
absl::StatusOr<nlohmann::json> ParseJson(absl::string_view text, const JsonLimits& limits = {});

// The text as a string of JSON, between quotes. InvalidArgument if it is no UTF-8.
absl::StatusOr<std::string> JsonString(absl::string_view text);

// Takes JSON as it is read, and refuses the first thing that is wrong, so that nothing of it takes
// memory: for text of others that may be long.
class JsonHandler : public nlohmann::json_sax<nlohmann::json> {
 public:
  // The first error.
  const absl::Status& status() const { return status_; }

  // JSON has none.
  bool binary(binary_t&) final { return Fail("bytes"); }
  bool parse_error(std::size_t position, const std::string& token,
                   const nlohmann::json::exception& error) final;

 protected:
  // "line 3, column 9": of the last byte that was read; of a number, which ends before it, its last
  // one.
  std::string Line() const;
  std::string LineOfNumber() const;

  // Each ends the reading.
  bool Fail(const absl::Status& status) {
    status_ = status;
    return false;
  }
  template <typename... What>
  bool Fail(const What&... what) {
    return Fail(absl::InvalidArgumentError(absl::StrCat(what...)));
  }

 private:
  friend absl::Status ReadJson(absl::string_view text, JsonHandler& handler);

  std::string LineOfByte(size_t end) const;

  absl::Status status_;
  absl::string_view text_;
  // How many bytes of it.
  size_t read_ = 0;
};

// Gives `handler` what `text` has; its status, or InvalidArgument for what is no JSON.
absl::Status ReadJson(absl::string_view text, JsonHandler& handler);

}  // namespace brigade::checkpoint

#endif  // BRIGADE_CHECKPOINT_STRICT_JSON_H_
