#include "brigade/optim/parameter_group.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "brigade/device/status_macros.h"
#include "brigade/kernels/adafactor/adafactor.h"
#include "brigade/kernels/adam8/adam8_math.h"
#include "brigade/kernels/lamb/lamb_math.h"
#include "brigade/kernels/step_control/step_control_math.h"
#include "brigade/kernels/value_range.h"

namespace brigade::optim {
namespace {

constexpr char kName[] = "optimizer";
// What kernels/lamb takes.
constexpr size_t kMostLambGroups = kernels::kMaxLambGroups;

absl::Status CheckLion(int64_t index, const ParameterGroup& group) {
  using kernels::CheckInRange;
  BRIGADE_RETURN_IF_ERROR(CheckInRange(kName, "beta1", index, group.beta1, kernels::kBelowOne));
  return CheckInRange(kName, "beta2", index, group.beta2, kernels::kBelowOne);
}

absl::Status CheckAdam(int64_t index, const ParameterGroup& group) {
  BRIGADE_RETURN_IF_ERROR(CheckLion(index, group));
  return kernels::CheckInRange(kName, "eps", index, group.eps, kernels::kPositive);
}

absl::Status CheckLamb(int64_t index, const ParameterGroup& group) {
  using kernels::CheckInRange;
  BRIGADE_RETURN_IF_ERROR(CheckAdam(index, group));
  BRIGADE_RETURN_IF_ERROR(
      CheckInRange(kName, "max_trust", index, group.max_trust, kernels::kNonNegative));
  return CheckInRange(kName, "min_trust", index, group.min_trust,
                      {0.0, group.max_trust, "0 to max_trust"});
}

absl::Status CheckSgd(int64_t index, const ParameterGroup& group) {
  using kernels::CheckInRange;
  BRIGADE_RETURN_IF_ERROR(
      CheckInRange(kName, "momentum", index, group.momentum, kernels::kBelowOne));
  BRIGADE_RETURN_IF_ERROR(CheckInRange(kName, "dampening", index, group.dampening, kernels::kUnit));
  if (group.nesterov && (group.momentum == 0.0 || group.dampening != 0.0)) {
    return absl::InvalidArgumentError(absl::StrCat(
        kName, ": nesterov of group ", index, " needs momentum > 0 and dampening 0, but they are ",
        group.momentum, " and ", group.dampening));
  }
  return absl::OkStatus();
}

absl::Status CheckMuon(int64_t index, const ParameterGroup& group) {
  BRIGADE_RETURN_IF_ERROR(CheckAdam(index, group));
  return kernels::CheckInRange(kName, "momentum", index, group.momentum, kernels::kBelowOne);
}

absl::Status CheckKind(OptimizerKind kind, int64_t index, const ParameterGroup& group) {
  switch (kind) {
    case OptimizerKind::kAdamW:
    case OptimizerKind::kAdam:
    case OptimizerKind::kOneBitAdam:
    case OptimizerKind::kZeroOneAdam:
    case OptimizerKind::kAdamW8:
    case OptimizerKind::kAdam8:
      return CheckAdam(index, group);
    case OptimizerKind::kSgd:
      return CheckSgd(index, group);
    case OptimizerKind::kLion:
      return CheckLion(index, group);
    case OptimizerKind::kLamb:
    case OptimizerKind::kOneBitLamb:
      return CheckLamb(index, group);
    case OptimizerKind::kMuon:
      return CheckMuon(index, group);
    case OptimizerKind::kAdafactor:
      return kernels::CheckInRange(kName, "momentum", index, group.momentum, kernels::kBelowOne);
  }
  return absl::InvalidArgumentError(
      absl::StrCat(kName, ": kind is ", static_cast<int>(kind), ", which is no OptimizerKind"));
}

absl::Status Validate(const ZeroOneSchedule& schedule) {
  for (const auto& [name, value] : {std::pair("var_freeze_step", schedule.var_freeze_step),
                                    std::pair("var_update_scaler", schedule.var_update_scaler),
                                    std::pair("local_step_scaler", schedule.local_step_scaler),
                                    std::pair("local_step_clipper", schedule.local_step_clipper)}) {
    if (value >= 1) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(kName, ": ", name, " is ", value, ", must be 1 or more"));
  }
  return absl::OkStatus();
}

absl::Status Validate(const MuonSettings& muon) {
  if (muon.steps < 1 || muon.steps > kernels::kMaxMuonSteps) {
    return absl::InvalidArgumentError(absl::StrCat(kName, ": muon.steps is ", muon.steps,
                                                   ", must be 1 to ", kernels::kMaxMuonSteps));
  }
  BRIGADE_RETURN_IF_ERROR(
      kernels::CheckInRange(kName, "muon.eps", -1, muon.eps, kernels::kPositive));
  return kernels::CheckInRange(kName, "muon.rate", -1, muon.rate, kernels::kNonNegative);
}

}  // namespace

absl::Status ValidateRate(int64_t index, double lr, const Schedule& schedule) {
  BRIGADE_RETURN_IF_ERROR(kernels::CheckInRange(kName, "lr", index, lr, kernels::kNonNegative));
  if (absl::Status valid = Validate(schedule, lr); !valid.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat(kName, ": schedule of group ", index, ": ", valid.message()));
  }
  return absl::OkStatus();
}

absl::Status Validate(const OptimizerOptions& options) {
  if (options.groups.empty() || options.groups.size() > kernels::kMaxStepGroups) {
    return absl::InvalidArgumentError(absl::StrCat(
        kName, ": ", options.groups.size(), " groups, must be 1 to ", kernels::kMaxStepGroups));
  }
  if (options.freeze_step < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(kName, ": freeze_step is ", options.freeze_step, ", must be 0 or more"));
  }
  if (options.kind == OptimizerKind::kOneBitLamb) {
    if (options.freeze_step < 1) {
      return absl::InvalidArgumentError(
          absl::StrCat(kName, ": freeze_step is ", options.freeze_step,
                       ", must be 1 or more of OneBitLamb: its rates go on from those before"));
    }
    BRIGADE_RETURN_IF_ERROR(kernels::Validate(options.one_bit_lamb, kName));
  }
  if (options.kind == OptimizerKind::kZeroOneAdam) {
    BRIGADE_RETURN_IF_ERROR(Validate(options.zero_one));
  }
  if (options.kind == OptimizerKind::kMuon) BRIGADE_RETURN_IF_ERROR(Validate(options.muon));
  if (options.kind == OptimizerKind::kAdafactor) {
    BRIGADE_RETURN_IF_ERROR(kernels::Validate(options.adafactor, kName));
  }
  if (options.coded.min_elements < 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        kName, ": coded.min_elements is ", options.coded.min_elements, ", must be 0 or more"));
  }
  if (IsLamb(options.kind) && options.groups.size() > kMostLambGroups) {
    return absl::InvalidArgumentError(absl::StrCat(
        kName, ": ", options.groups.size(), " groups of LAMB, must be 1 to ", kMostLambGroups));
  }
  for (size_t i = 0; i < options.groups.size(); ++i) {
    const int64_t index = static_cast<int64_t>(i);
    const ParameterGroup& group = options.groups[i];
    BRIGADE_RETURN_IF_ERROR(ValidateRate(index, group.lr, group.schedule));
    BRIGADE_RETURN_IF_ERROR(kernels::CheckInRange(kName, "weight_decay", index, group.weight_decay,
                                                  kernels::kNonNegative));
    BRIGADE_RETURN_IF_ERROR(CheckKind(options.kind, index, group));
  }
  return absl::OkStatus();
}

int64_t TensorTile(OptimizerKind kind) {
  if (HasCodes(kind)) return kernels::kMomentBlock;
  if (kind == OptimizerKind::kAdafactor) return kFactorBlock;
  return IsLamb(kind) ? kernels::kLambTile : 1;
}

std::optional<CodedMoments> CodesOf(const OptimizerOptions& options) {
  if (options.kind == OptimizerKind::kMuon) {
    return CodedMoments{.min_elements = 0, .tables = false, .matrices = true};
  }
  if (options.kind == OptimizerKind::kAdafactor) {
    return CodedMoments{.min_elements = 0, .tables = true, .factored = true};
  }
  if (!HasCodes(options.kind)) return std::nullopt;
  return options.coded;
}

MomentArray MomentArrayOf(OptimizerKind kind, bool coded, int moment) {
  if (kind == OptimizerKind::kMuon) {
    return {precision::DType::kFloat32, coded && moment == 1 ? 0 : 1};
  }
  if (kind == OptimizerKind::kAdafactor) {
    return {precision::DType::kFloat32, coded && moment == 0 ? kFactorBlock : 1};
  }
  if (!HasCodes(kind)) return {};
  if (moment < 2) return {coded ? precision::DType::kUint8 : precision::DType::kFloat32, 1};
  return {precision::DType::kFloat32, coded ? kernels::kMomentBlock : 0};
}

int Moments(const OptimizerOptions& options) {
  if (options.kind == OptimizerKind::kOneBitLamb || HasCodes(options.kind)) return 4;
  if (IsAdam(options.kind) || options.kind == OptimizerKind::kLamb ||
      options.kind == OptimizerKind::kMuon) {
    return 2;
  }
  if (options.kind == OptimizerKind::kLion) return 1;
  const bool has_momentum =
      std::any_of(options.groups.begin(), options.groups.end(),
                  [](const ParameterGroup& group) { return group.momentum > 0.0; });
  return (options.kind == OptimizerKind::kAdafactor ? 1 : 0) + (has_momentum ? 1 : 0);
}

}  // namespace brigade::optim
