#ifndef BRIGADE_OPTIM_PARAMETER_GROUP_H_
#define BRIGADE_OPTIM_PARAMETER_GROUP_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "brigade/kernels/adafactor/adafactor_parameters.h"
#include "brigade/kernels/muon/muon_parameters.h"
#include "brigade/kernels/one_bit_lamb/one_bit_lamb.h"
#include "brigade/optim/schedule.h"
#include "brigade/optim/zero_one_schedule.h"
#include "brigade/precision/dtype.h"

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
  // AdamW and Adam whose moments are codes of 8 bits with a scale for each 256, but for those of
  // CodedMoments; Dettmers et al. 2022 (arXiv 2110.02861).
  kAdamW8,
  kAdam8,
  // Of matrices the orthogonal factor of a momentum, of all else AdamW, in a ZeroOptimizer alone;
  // Jordan et al. 2024, Liu et al. 2025 (arXiv 2502.16982).
  kMuon,
  // Of matrices the means of squares of rows and columns in place of second moments, updates whose
  // root mean square is bounded, in a ZeroOptimizer alone; Shazeer and Stern 2018 (arXiv
  // 1804.04235).
  kAdafactor,
};

// Whether moments are codes.
constexpr bool HasCodes(OptimizerKind kind) {
  return kind == OptimizerKind::kAdamW8 || kind == OptimizerKind::kAdam8;
}

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
         kind == OptimizerKind::kLamb || kind == OptimizerKind::kOneBitAdam || HasCodes(kind) ||
         kind == OptimizerKind::kMuon;
}

// Of kAdamW8 and kAdam8: which parameters have fp32 moments. A plan takes it of kMuon too, whose
// matrices have a momentum alone, and of kAdafactor, whose matrices' factors are few (CodesOf).
struct CodedMoments {
  // Those with fewer elements: their blocks would be few, and they are little memory.
  int64_t min_elements = 4096;
  // Tables whose rows are looked up have codes too: few of their rows have a gradient in a step,
  // and trainings with codes for them have become unstable.
  bool tables = false;
  // Of kMuon: of two extents, those alone.
  bool matrices = false;
  // Of kAdafactor: of two extents, those alone whose factors are no more than one for each
  // kFactorBlock elements.
  bool factored = false;
};

// Of kAdafactor: a matrix's factors are in the first elements of an array that has one for each so
// many of the parameter's; of small ones, in one that has as many.
inline constexpr int64_t kFactorBlock = 16;

// Of kMuon, of all groups.
struct MuonSettings {
  // Of Newton and Schulz.
  int steps = 5;
  kernels::MuonCoefficients coefficients = {};
  // What a matrix's norm is at least.
  double eps = 1e-7;
  kernels::MuonScale scale = kernels::MuonScale::kOriginal;
  // The learning rate of matrices, over their group's, which is AdamW's.
  double rate = 1.0;
};

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
  // Of SGD; of Muon's matrices, whose authors have 0.95 and true; and of Adafactor, whose beta1 it
  // is, with a first moment unless it is 0:
  double momentum = 0.0;
  // Of SGD:
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
  // Of kAdamW8 and kAdam8.
  CodedMoments coded = {};
  MuonSettings muon = {};
  // Of kAdafactor. With relative_step the groups' rates are not looked at.
  kernels::AdafactorSettings adafactor = {};
};

// InvalidArgument naming group, field and value.
absl::Status Validate(const OptimizerOptions& options);

// Where the update of an element depends on its whole tensor (LAMB), or on its block (codes): the
// elements that tensors are summed by, or a block's, so that parts of a tensor must begin at a
// multiple of them. Else 1.
int64_t TensorTile(OptimizerKind kind);

// The same for what may change in group `index` during a run.
absl::Status ValidateRate(int64_t index, double lr, const Schedule& schedule);

// How many arrays of state there are beside the parameter, of fp32 where MomentArrayOf says nothing
// else: 2 (Adam and LAMB: m and v; Adafactor with a momentum in any group: factors, and m), 4
// (1-bit LAMB: m, v, the fresh v, and an array that has a tensor's OneBitLambNumbers in its first
// elements; codes: m, v and their scales; of Muon's matrices the second is none), 1 (SGD: momentum;
// Lion: m; Adafactor: factors), or 0 (SGD if no group has momentum).
int Moments(const OptimizerOptions& options);

// An array of state of a parameter.
struct MomentArray {
  precision::DType dtype = precision::DType::kFloat32;
  // The parameter's elements for each of the array's; 0: there is no such array.
  int64_t block = 1;

  // Of `size` elements of a parameter from a block's begin on.
  int64_t Elements(int64_t size) const { return block == 0 ? 0 : (size + block - 1) / block; }
  int64_t Bytes(int64_t size) const { return Elements(size) * precision::SizeOf(dtype); }
};

// Which parameters have codes, are Muon's matrices, or have few factors, for a plan; none where the
// kind has none.
std::optional<CodedMoments> CodesOf(const OptimizerOptions& options);

// Moment 0 to Moments() - 1 of a parameter, whose moments are codes, those of Muon's matrices, or
// few factors, or not. With a kind that has codes those that are none have no scales.
MomentArray MomentArrayOf(OptimizerKind kind, bool coded, int moment);

}  // namespace brigade::optim

#endif  // BRIGADE_OPTIM_PARAMETER_GROUP_H_
