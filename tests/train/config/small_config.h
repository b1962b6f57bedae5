#ifndef BRIGADE_TESTS_TRAIN_CONFIG_SMALL_CONFIG_H_
#define BRIGADE_TESTS_TRAIN_CONFIG_SMALL_CONFIG_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "brigade/train/config/config.h"

namespace brigade::train {

// A config of Adam and a batch of 8 on 4 ranks with `more` keys, with commas before them.
inline absl::StatusOr<TrainConfig> With(const std::string& more) {
  return ParseConfig(
      absl::StrCat(R"({"train_batch_size": 8, "optimizer": {"type": "Adam"})", more, "}"), 4);
}

// What is wrong with it with these keys.
inline absl::Status Error(const std::string& keys) {
  return With(absl::StrCat(", ", keys)).status();
}

}  // namespace brigade::train

#endif  // BRIGADE_TESTS_TRAIN_CONFIG_SMALL_CONFIG_H_
