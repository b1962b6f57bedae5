#ifndef BRIGADE_TRAIN_CONFIG_FLAG_REFUSALS_H_
#define BRIGADE_TRAIN_CONFIG_FLAG_REFUSALS_H_

#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "brigade/train/config/json_reader.h"

namespace brigade::train {

// What is wrong with flags, all of it: each check adds what it finds, and none stops at the first.
class Refusals {
 public:
  // "--FLAG" and what follows: " is 0; it must be at least 1".
  template <typename... What>
  void Add(absl::string_view flag, const What&... what) {
    const std::string name = absl::StrCat("--", flag);
    refusals_.push_back({name, absl::StrCat(name, what...)});
  }
  // Whose text says what it is about.
  bool Check(const absl::Status& status) {
    if (!status.ok()) refusals_.push_back({"", std::string(status.message())});
    return status.ok();
  }

  // Of `file`, if it is not empty, and flags beside it.
  absl::Status status(absl::string_view file = "") const {
    const absl::Status status = StatusOf(refusals_);
    if (status.ok() || file.empty()) return status;
    return absl::Status(status.code(), absl::StrCat(file, ": ", status.message()));
  }

  size_t size() const { return refusals_.size(); }
  std::vector<Refusal>& all() { return refusals_; }

 private:
  std::vector<Refusal> refusals_;
};

// None of an empty text.
template <typename T>
std::optional<T> OfFlag(absl::string_view flag, const std::string& text,
                        absl::StatusOr<T> (*parse)(absl::string_view), Refusals& refusals) {
  if (text.empty()) return std::nullopt;
  absl::StatusOr<T> parsed = parse(text);
  if (parsed.ok()) return *std::move(parsed);
  refusals.Add(flag, ": ", parsed.status().message());
  return std::nullopt;
}

}  // namespace brigade::train

#endif  // BRIGADE_TRAIN_CONFIG_FLAG_REFUSALS_H_
