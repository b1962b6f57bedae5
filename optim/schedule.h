#ifndef BRIGADE_OPTIM_SCHEDULE_H_
#define BRIGADE_OPTIM_SCHEDULE_H_

#include <cstdint>
#include <variant>
#include <vector>

#include "absl/status/status.h"

namespace brigade::optim {

// ... (DeepSpeed's names and defaults)
struct ConstantLR {};
struct WarmupLR {};
struct WarmupDecayLR {};
struct WarmupCosineLR {};
struct OneCycle {};

using Schedule = std::variant<ConstantLR, WarmupLR, WarmupDecayLR, WarmupCosineLR, OneCycle>;

// The learning rate of each update from the first on; the last entry stays.
std::vector<float> LearningRates(const Schedule& schedule, double lr);

}  // namespace brigade::optim

#endif  // BRIGADE_OPTIM_SCHEDULE_H_
