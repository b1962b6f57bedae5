#include "brigade/recompute/chain.h"

#include <cmath>
#include <cstddef>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "brigade/device/status_macros.h"

namespace brigade::recompute {
namespace {

// Adds sizes up, and names the first that cannot be one.
class SizeCheck {
 public:
  absl::Status Add(absl::string_view owner, absl::string_view field, int64_t bytes) {
    if (bytes < 0) {
      return absl::InvalidArgumentError(absl::StrCat(owner, ": ", field, " is negative: ", bytes));
    }
    if (bytes > kMaxChainBytes - sum_) {
      return absl::InvalidArgumentError(absl::StrCat(owner, ": with ", field, " of ", bytes,
                                                     " the sizes of the chain add up to more than ",
                                                     kMaxChainBytes, " bytes"));
    }
    sum_ += bytes;
    return absl::OkStatus();
  }

 private:
  int64_t sum_ = 0;
};

absl::Status CheckTime(absl::string_view owner, absl::string_view field, double time) {
  if (std::isfinite(time) && time >= 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(owner, ": ", field, " has to be finite and not negative, not ", time));
}

// Of a stage that is elsewhere.
absl::Status CheckElsewhere(const Chain& chain, size_t s) {
  const Stage& stage = chain.stages[s];
  const SaveOption& option = stage.options[0];
  const int64_t bytes = stage.output_bytes + stage.transient_bytes + option.saved_bytes +
                        option.forward_transient_bytes + option.backward_transient_bytes +
                        option.deferred_bytes + stage.gradient_bytes;
  if (s > 0 && s + 1 == chain.stages.size() && stage.options.size() == 1 && bytes == 0 &&
      stage.forward_time + option.backward_time == 0) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "stage ", s, " (\"", stage.name,
      "\") is elsewhere: it has to be the last one, behind others, with one option, no "
      "bytes and no time"));
}

}  // namespace

absl::Status Validate(const Chain& chain) {
  if (chain.stages.empty()) return absl::InvalidArgumentError("a chain has no stages");
  if (chain.stages.size() > kMaxStages) {
    return absl::InvalidArgumentError(absl::StrCat("a chain has ", chain.stages.size(),
                                                   " stages, more than ", kMaxStages,
                                                   ": make one of several"));
  }
  SizeCheck sizes;
  for (size_t s = 0; s < chain.stages.size(); ++s) {
    const Stage& stage = chain.stages[s];
    const std::string name = absl::StrCat("stage ", s, " (\"", stage.name, "\")");
    BRIGADE_RETURN_IF_ERROR(CheckTime(name, "forward_time", stage.forward_time));
    BRIGADE_RETURN_IF_ERROR(sizes.Add(name, "output_bytes", stage.output_bytes));
    BRIGADE_RETURN_IF_ERROR(sizes.Add(name, "gradient_bytes", stage.gradient_bytes));
    BRIGADE_RETURN_IF_ERROR(sizes.Add(name, "transient_bytes", stage.transient_bytes));
    if (stage.options.empty()) {
      return absl::InvalidArgumentError(absl::StrCat(name, ": it has no options"));
    }
    const int64_t input_gradient_bytes = s == 0 ? 0 : chain.stages[s - 1].gradient_bytes;
    for (size_t o = 0; o < stage.options.size(); ++o) {
      const SaveOption& option = stage.options[o];
      const std::string owner = absl::StrCat(name, " option ", o, " (\"", option.name, "\")");
      BRIGADE_RETURN_IF_ERROR(CheckTime(owner, "backward_time", option.backward_time));
      BRIGADE_RETURN_IF_ERROR(sizes.Add(owner, "saved_bytes", option.saved_bytes));
      BRIGADE_RETURN_IF_ERROR(
          sizes.Add(owner, "forward_transient_bytes", option.forward_transient_bytes));
      BRIGADE_RETURN_IF_ERROR(
          sizes.Add(owner, "backward_transient_bytes", option.backward_transient_bytes));
      BRIGADE_RETURN_IF_ERROR(sizes.Add(owner, "deferred_bytes", option.deferred_bytes));
      if (option.saved_bytes < stage.output_bytes) {
        return absl::InvalidArgumentError(
            absl::StrCat(owner, ": saved_bytes of ", option.saved_bytes,
                         " cannot hold the output, output_bytes of ", stage.output_bytes));
      }
      if (option.weight_input_bytes < 0 || option.weight_input_bytes > option.saved_bytes) {
        return absl::InvalidArgumentError(
            absl::StrCat(owner, ": weight_input_bytes of ", option.weight_input_bytes,
                         " are no part of saved_bytes of ", option.saved_bytes));
      }
      const int64_t room =
          option.saved_bytes + stage.gradient_bytes + option.backward_transient_bytes;
      if (input_gradient_bytes > room) {
        return absl::InvalidArgumentError(
            absl::StrCat(owner, ": its backward pass has ", room,
                         " bytes, and no room for the gradient of the stage's input, ",
                         input_gradient_bytes, " bytes: add it to backward_transient_bytes"));
      }
    }
    if (stage.is_elsewhere) BRIGADE_RETURN_IF_ERROR(CheckElsewhere(chain, s));
  }
  return absl::OkStatus();
}

}  // namespace brigade::recompute
