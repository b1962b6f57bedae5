#ifndef BRIGADE_EXAMPLES_GPT_LOSS_CURVE_H_
#define BRIGADE_EXAMPLES_GPT_LOSS_CURVE_H_

#include <string>

#include "absl/types/span.h"
#include "brigade/examples/gpt/job.h"

namespace brigade::gpt {

// The loss over the steps in characters: '*' the mean of the steps under a column, 'o' held out.
// What is not finite is left out. Empty without a step.
std::string LossCurve(absl::Span<const StepMetrics> steps,
                      absl::Span<const Evaluation> evaluations);

}  // namespace brigade::gpt

#endif  // BRIGADE_EXAMPLES_GPT_LOSS_CURVE_H_
