#ifndef BRIGADE_CHECKPOINT_FIELDS_H_
#define BRIGADE_CHECKPOINT_FIELDS_H_

// What a checkpoint says of a training beside its arrays: values by name, as text. A number is
// written in the shortest way that gives the same number again ("0.001", "inf").

#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "brigade/kernels/step_control/step_state.h"
#include "brigade/optim/parameter_group.h"
#include "brigade/optim/schedule.h"
#include "brigade/zero/options.h"
#include "brigade/zero/plan/plan.h"

namespace brigade::checkpoint {

// Values by name.
using Fields = std::map<std::string, std::string>;

// InvalidArgument naming the first field, in the order of names, that differs, with both values.
// Fields of these names, and those of what bears one ("groups[0]" covers "groups[0].lr"), may
// differ.
absl::Status CheckSame(const Fields& in_checkpoint, const Fields& here,
                       absl::Span<const std::string> may_differ = {});

// The options by which values of the training are what they are: types, optimizer, loss scaling,
// clipping, how gradients are added up and rounded. Not those of stage, memory and traffic, which
// may differ from one resume to the next.
Fields OptionFields(const zero::ZeroOptions& options);

// Shape, type and group: "[4, 256] bfloat16, group 0". The spec has type and shape, as a plan's.
std::string ParameterText(const zero::ParameterSpec& spec);
// Of each parameter this text.
Fields ParameterFields(absl::Span<const zero::Parameter> parameters);

Fields StateFields(const kernels::StepState& state);
// InvalidArgument naming the field that is missing, not known, or has no such value.
absl::StatusOr<kernels::StepState> StateOf(const Fields& fields);

// What SetLearningRate and SetSchedule may change in a run.
struct Rate {
  double lr = 0;
  optim::Schedule schedule = {};
};
Fields RateFields(absl::Span<const Rate> groups);
// Errors as above, and those of optim::ValidateRate.
absl::StatusOr<std::vector<Rate>> RatesOf(const Fields& fields);

}  // namespace brigade::checkpoint

#endif  // BRIGADE_CHECKPOINT_FIELDS_H_
