#ifndef BRIGADE_CHECKPOINT_STRICT_JSON_H_
#define BRIGADE_CHECKPOINT_STRICT_JSON_H_

#include <cstddef>

#include "absl/status/statusor.h"
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
// Errors       InvalidArgument with line and column, or the path of the key that comes twice; for
//              more than the limits as well.
absl::StatusOr<nlohmann::json> ParseJson(absl::string_view text, const JsonLimits& limits = {});

}  // namespace brigade::checkpoint

#endif  // BRIGADE_CHECKPOINT_STRICT_JSON_H_
