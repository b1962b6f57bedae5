#include "brigade/collectives/options.h"

namespace brigade::collectives {

absl::string_view Name(Reduction reduction) {
  switch (reduction) {
    case Reduction::kRoundedOnce:
      return "rounded_once";
    case Reduction::kRoundedPerHop:
      return "rounded_per_hop";
    case Reduction::kFp32Partials:
      return "fp32_partials";
  }
  return "invalid";
}

absl::string_view Name(Algorithm algorithm) {
  switch (algorithm) {
    case Algorithm::kAuto:
      return "auto";
    case Algorithm::kDirect:
      return "direct";
    case Algorithm::kRing:
      return "ring";
    case Algorithm::kBidirectionalRing:
      return "bidirectional_ring";
    case Algorithm::kHalvingDoubling:
      return "halving_doubling";
    case Algorithm::kHierarchical:
      return "hierarchical";
    case Algorithm::kDoubleTree:
      return "double_tree";
    case Algorithm::kParameterServer:
      return "parameter_server";
    case Algorithm::kNative:
      return "native";
  }
  return "invalid";
}

absl::string_view Name(kernels::ReduceOp op) {
  switch (op) {
    case kernels::ReduceOp::kSum:
      return "sum";
    case kernels::ReduceOp::kMin:
      return "min";
    case kernels::ReduceOp::kMax:
      return "max";
  }
  return "invalid";
}

bool Exists(Reduction reduction, Algorithm algorithm) {
  if (algorithm == Algorithm::kAuto || AddsAtOnce(algorithm)) return true;
  if (algorithm == Algorithm::kNative) return reduction == Reduction::kRoundedPerHop;
  return reduction != Reduction::kRoundedOnce;
}

}  // namespace brigade::collectives
