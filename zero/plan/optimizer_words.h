#ifndef BRIGADE_ZERO_PLAN_OPTIMIZER_WORDS_H_
#define BRIGADE_ZERO_PLAN_OPTIMIZER_WORDS_H_

// Optimizers and exchanges by the words of a command's flags, for commands that ask the model of
// memory.

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "brigade/zero/options.h"
#include "brigade/zero/plan/plan.h"

namespace brigade::zero {

// "adafactor", "adam", "adam8", "lamb", "lion", "muon", "sgd" (with momentum), "one_bit_adam",
// "one_bit_lamb", "zero_one_adam". InvalidArgument with the choices for another word.
absl::Status SetOptimizer(absl::string_view word, ZeroOptions& options);

// "none", or a name of GradientCompression. InvalidArgument with the choices for another word.
absl::Status SetGradientCompression(absl::string_view word, ZeroOptions& options);

// Whether training in this stage with so many ranks and groups may exchange what the options say;
// without exchanges always. Local steps of zero_one_adam are those of stage 0 without groups; where
// these are not, ranks meet in each step, which this sets.
bool FitExchanges(const Plan& plan, ZeroOptions& options);

}  // namespace brigade::zero

#endif  // BRIGADE_ZERO_PLAN_OPTIMIZER_WORDS_H_
