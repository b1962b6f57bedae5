#include "brigade/replicas/options.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "brigade/precision/dtype_names.h"

namespace brigade::replicas {
namespace {

template <typename... What>
absl::Status Invalid(const What&... what) {
  return absl::InvalidArgumentError(absl::StrCat("replicas: ", what...));
}

}  // namespace

absl::Status Validate(const OuterOptions& options) {
  if (options.period < 1) return Invalid("period is ", options.period, "; it must be at least 1");
  if (!(options.lr > 0) || !std::isfinite(options.lr)) {
    return Invalid("lr is ", options.lr, "; it must be positive");
  }
  if (!(options.momentum >= 0 && options.momentum < 1)) {
    return Invalid("momentum is ", options.momentum, "; it must be at least 0 and below 1");
  }
  if (options.fragments < 1 || options.fragments > options.period) {
    return Invalid("fragments is ", options.fragments, "; it must be 1 to period, ",
                   options.period);
  }
  if (options.delay < 0 || options.delay >= options.period / options.fragments) {
    return Invalid("delay is ", options.delay, "; it must be at least 0 and below ",
                   options.period / options.fragments, ", period / fragments");
  }
  if (!(options.mix >= 0 && options.mix < 1)) {
    return Invalid("mix is ", options.mix, "; it must be at least 0 and below 1");
  }
  if (!precision::IsTrainingFormat(options.wire)) {
    return Invalid("wire is ", precision::ShortName(options.wire),
                   "; it must be fp32, fp16 or bf16");
  }
  if (options.start_step < 0) return Invalid("start_step is ", options.start_step);
  return absl::OkStatus();
}

std::string Describe(const OuterOptions& options) {
  return absl::StrCat("period ", options.period, ", lr ", options.lr, ", momentum ",
                      options.momentum, options.nesterov ? " (Nesterov)" : "", ", ",
                      options.fragments, " fragments, delay ", options.delay, ", mix ", options.mix,
                      ", wire ", precision::ShortName(options.wire), ", start_step ",
                      options.start_step);
}

int DueFragment(const OuterOptions& options, int64_t step) {
  if (step <= options.start_step) return -1;
  for (int k = 0; k < options.fragments; ++k) {
    const int64_t end = (k + 1) * options.period / options.fragments;
    if (step % options.period == end % options.period) return k;
  }
  return -1;
}

}  // namespace brigade::replicas
