#ifndef BRIGADE_TRAIN_OBSERVERS_LOSS_CURVE_H_
#define BRIGADE_TRAIN_OBSERVERS_LOSS_CURVE_H_

#include <string>

#include "absl/types/span.h"
#include "brigade/train/observers/observer.h"

namespace brigade::train {

// The loss over the steps in characters: '*' the mean of the steps under a column, 'o' held out.
// What is not finite is left out. Empty without a step.
std::string LossCurve(absl::Span<const StepMetrics> steps,
                      absl::Span<const Evaluation> evaluations);

}  // namespace brigade::train

#endif  // BRIGADE_TRAIN_OBSERVERS_LOSS_CURVE_H_
