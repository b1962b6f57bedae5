#ifndef BRIGADE_OPTIM_PARAMETER_GROUP_H_
#define BRIGADE_OPTIM_PARAMETER_GROUP_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "brigade/kernels/one_bit_lamb/one_bit_lamb.h"
#include "brigade/optim/schedule.h"
#include "brigade/optim/zero_one_schedule.h"

namespace brigade::optim {

enum class OptimizerKind : uint8_t {
  // Decoupled weight decay; Loshchilov and Hutter 2019.
  kAdamW,
  // Weight decay is part of the gradient; Kingma and Ba 2015.
  kAdam,
  // With momentum; Sutskever et al. 2013.
  kSgd,
  // The sign of a momentum, decoupled weight decay; Chen et al. 2023.
  kLion,
  // AdamW until a step, from which on the second moment stays, and ranks exchange their first
  // moments as signs, in a ZeroOptimizer alone; Tang et al. 2021 (arXiv 2102.02888), with bias
  // correction.
  kOneBitAdam,
  // Adam with a rate of each tensor's own, by norms; You et al. 2020.
  kLamb,
  // LAMB without bias correction until a step, from which on the second moment stays, ranks
  // exchange their first moments as signs, in a ZeroOptimizer alone, and rates go on from the mean
  // of those before; Li et al. 2021 (arXiv 2104.06069).
  kOneBitLamb,
  // AdamW without bias correction, in a ZeroOptimizer alone, that updates its second moment in ever
  // fewer steps, and whose ranks exchange gradients as signs in the others; from a step on the
  // second moment stays, and ranks exchange first moments as signs in ever fewer steps; Lu et al.
  // 2022 (arXiv 2202.06009).
  kZeroOneAdam,
};

// Whether it is Adam, with either decay.
constexpr bool IsAdam(OptimizerKind kind) {
  return kind == OptimizerKind::kAdamW || kind == OptimizerKind::kAdam ||
         kind == OptimizerKind::kOneBitAdam || kind == OptimizerKind::kZeroOneAdam;
}
// Whether it is LAMB, with or without exchanges of moments.
constexpr bool IsLamb(OptimizerKind kind) {
  return kind == OptimizerKind::kLamb || kind == OptimizerKind::kOneBitLamb;
}
// Whether its ranks exchange first moments from OptimizerOptions::freeze_step on, or
// ZeroOneSchedule::var_freeze_step.
constexpr bool AveragesMoments(OptimizerKind kind) {
  return kind == OptimizerKind::kOneBitAdam || kind == OptimizerKind::kOneBitLamb ||
         kind == OptimizerKind::kZeroOneAdam;
}
// The name of such a kind.
constexpr const char* ExchangingName(OptimizerKind kind) {
  return kind == OptimizerKind::kOneBitLamb    ? "OneBitLamb"
         : kind == OptimizerKind::kZeroOneAdam ? "ZeroOneAdam"
                                               : "OneBitAdam";
}
// Whether its moments' bias is corrected.
constexpr bool CorrectsBias(OptimizerKind kind) {
  return kind == OptimizerKind::kAdamW || kind == OptimizerKind::kAdam ||
         kind == OptimizerKind::kLamb || kind == OptimizerKind::kOneBitAdam;
}

// The settings of a group of parameters. Ranges: kernels/adam/adam.h, kernels/sgd/sgd.h,
// kernels/lion/lion.h and kernels/lamb/lamb_parameters.h.
struct ParameterGroup {
  // >= 0: the rate that `schedule` refers to.
  double lr = 1e-3;
  // Of the learning rate; constant by default.
  Schedule schedule = {};
  double weight_decay = 0.0;
  // Of Adam, AdamW and LAMB, and of Lion, whose paper has 0.9 and 0.99:
  double beta1 = 0.9;
  double beta2 = 0.999;
  // Of Adam, AdamW and LAMB:
  double eps = 1e-8;
  // Of LAMB: bounds of a tensor's norm over that of its update.
  double min_trust = 0.01;
  double max_trust = 10.0;
  // Of SGD:
  double momentum = 0.0;
  double dampening = 0.0;
  bool nesterov = false;
};

// Which optimizer, for which groups; parameters name their group by its index.
struct OptimizerOptions {
  OptimizerKind kind = OptimizerKind::kAdamW;
  std::vector<ParameterGroup> groups = {ParameterGroup()};
  // Of kOneBitAdam and kOneBitLamb: the steps tried, skipped ones too, before the second moment
  // stays. 15 to 25 % of a training; of kOneBitLamb 1 or more.
  int64_t freeze_step = 100000;
  // Of kOneBitLamb, of all groups.
  kernels::OneBitLambCoefficients one_bit_lamb = {};
  // Of kZeroOneAdam.
  ZeroOneSchedule zero_one = {};
};

// InvalidArgument naming group, field and value.
absl::Status Validate(const OptimizerOptions& options);

// Where the update of an element depends on its whole tensor (LAMB): the elements that tensors are
// summed by, so that parts of a tensor must begin at a multiple of them. Else 1.
int64_t TensorTile(OptimizerKind kind);

// The same for what may change in group `index` during a run.
absl::Status ValidateRate(int64_t index, double lr, const Schedule& schedule);

// How many fp32 arrays of state each element has beside its parameter: 2 (Adam and LAMB: m and v),
// 4 (1-bit LAMB: m, v, the fresh v, and an array that has a tensor's OneBitLambNumbers in its first
// elements), 1 (SGD: momentum; Lion: m), or 0 (SGD if no group has momentum).
int Moments(const OptimizerOptions& options);

}  // namespace brigade::optim

#endif  // BRIGADE_OPTIM_PARAMETER_GROUP_H_
