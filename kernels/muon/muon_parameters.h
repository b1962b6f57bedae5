#ifndef BRIGADE_KERNELS_MUON_MUON_PARAMETERS_H_
#define BRIGADE_KERNELS_MUON_MUON_PARAMETERS_H_

// The parameters of the raw launchers (muon_cuda.h) and of the CPU's loops (muon_cpu.h) from
// hyper-parameters, in plain C++. On the host.

#include <cmath>
#include <cstdint>

#include "brigade/kernels/muon/muon_math.h"
#include "brigade/kernels/step_control/one_step.h"
#include "brigade/kernels/step_control/step_state.h"

namespace brigade::kernels {

// Hyper-parameters of one parameter group; the defaults are PyTorch's.
struct MuonGroup {
  // In [0, 1).
  double momentum = 0.95;
  // Whether an update looks ahead: the momentum counts `momentum` and the gradient the rest.
  bool nesterov = true;
  // At least 0, decoupled.
  double weight_decay = 0.1;
};

// How an update's size goes by its matrix's shape, as PyTorch's adjust_lr_fn.
enum class MuonScale : uint8_t {
  // sqrt(max(1, rows / columns)), of Jordan et al.
  kOriginal,
  // 0.2 sqrt(max(rows, columns)), of Liu et al.: as large as AdamW's updates.
  kMatchRmsAdamW,
};

// MuonParamSegment::scale, rounded once.
inline float MuonScaleOf(MuonScale scale, int64_t rows, int64_t columns) {
  const auto r = static_cast<double>(rows), c = static_cast<double>(columns);
  if (scale == MuonScale::kMatchRmsAdamW) {
    return static_cast<float>(0.2 * std::sqrt(r > c ? r : c));
  }
  return static_cast<float>(std::sqrt(r > c ? r / c : 1.0));
}

// The parameters of every step of these groups, of which there are 1 to kMaxMuonGroups with values
// in their ranges. `state` and `group_steps` [count] are device memory that StepControl writes.
inline MuonParameters MakeMuonParameters(const MuonGroup* groups, int64_t count,
                                         const StepState* state, const GroupStep* group_steps) {
  MuonParameters parameters = {};
  parameters.state = state;
  parameters.group_steps = group_steps;
  for (int64_t i = 0; i < count; ++i) {
    const double rest = 1.0 - groups[i].momentum;
    MuonGroupConstants& constants = parameters.groups[i];
    constants.momentum = static_cast<float>(groups[i].momentum);
    constants.one_minus_momentum = static_cast<float>(rest);
    constants.weight_decay = static_cast<float>(groups[i].weight_decay);
    constants.nesterov = groups[i].nesterov ? 1 : 0;
  }
  return parameters;
}

// The parameters of one step whose numbers the host knows; nothing of it is in device memory. For
// up to kMaxOneStepGroups groups: with more, without rates, or with a step below 1, launcher and
// loop refuse the parameters.
inline MuonParameters MakeMuonParameters(const MuonGroup* groups, int64_t count,
                                         const OneStep& step) {
  if (count > kMaxOneStepGroups || step.lr == nullptr) return {};
  MuonParameters parameters = MakeMuonParameters(groups, count, nullptr, nullptr);
  parameters.step = step.step;
  parameters.grad_multiplier = step.grad_multiplier;
  parameters.one_step_groups = static_cast<int32_t>(count);
  for (int64_t i = 0; i < count; ++i) parameters.lr[i] = step.lr[i];
  return parameters;
}

}  // namespace brigade::kernels

#endif  // BRIGADE_KERNELS_MUON_MUON_PARAMETERS_H_
