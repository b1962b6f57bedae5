#ifndef BRIGADE_TESTS_ZERO_COMPRESSED_CASES_H_
#define BRIGADE_TESTS_ZERO_COMPRESSED_CASES_H_

// Options by which a step sends less than its numbers, for suites that hold for all of them; with
// ToyMatrices, and two steps before the one that counts.

#include <ostream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "brigade/kernels/block_quant/block_quant_math.h"
#include "brigade/zero/options.h"

namespace brigade::zero {

struct CompressedCase {
  std::string name;
  ZeroOptions options;
  int ranks = 3;

  friend void PrintTo(const CompressedCase& c, std::ostream* out) { *out << c.name; }
};

// Signs, factors and greatest elements of gradients, and signs of moments, in stages 0 to 2; codes
// of gradients and weights, with error feedback and without, in all; two hops; groups with a whole
// state each, in stage 3 too.
inline std::vector<CompressedCase> CompressedCases() {
  std::vector<CompressedCase> cases;
  const auto add = [&](const std::string& name, int stage, auto change, int ranks = 3) {
    ZeroOptions options;
    options.stage = stage;
    options.bucket_elements = 1000;
    change(options);
    cases.push_back({absl::StrCat(name, "Stage", stage), options, ranks});
  };
  const auto by = [](optim::OptimizerKind kind) {
    return [kind](ZeroOptions& options) {
      options.optimizer.kind = kind;
      options.optimizer.freeze_step = 1;
      options.optimizer.zero_one = {.var_freeze_step = 1, .local_step_clipper = 1};
    };
  };
  const auto with = [](GradientCompression method) {
    return [method](ZeroOptions& options) {
      options.gradient_compression = {.method = method, .rank = 2, .density = 0.03};
    };
  };
  using optim::OptimizerKind;
  for (const int stage : {0, 1, 2}) {
    add("OneBit", stage, with(GradientCompression::kOneBit));
    add("PowerSgd", stage, with(GradientCompression::kPowerSgd));
    add("TopK", stage, with(GradientCompression::kTopK));
    add("OneBitAdam", stage, by(OptimizerKind::kOneBitAdam));
    add("OneBitLamb", stage, by(OptimizerKind::kOneBitLamb));
    add("ZeroOneAdam", stage, by(OptimizerKind::kZeroOneAdam));
  }
  const auto in_nodes = [](ZeroOptions& options) { options.node_ranks = 2; };
  add(
      "OneBitAdamInNodes", 1,
      [&](ZeroOptions& options) {
        by(OptimizerKind::kOneBitAdam)(options);
        in_nodes(options);
      },
      4);
  const auto in_groups = [&](const std::string& name, int stage, auto change) {
    add(
        name + "InGroups", stage,
        [&](ZeroOptions& options) {
          change(options);
          options.shard_ranks = 2;
        },
        4);
  };
  in_groups("OneBit", 1, with(GradientCompression::kOneBit));
  in_groups("PowerSgd", 2, with(GradientCompression::kPowerSgd));
  in_groups("TopK", 0, with(GradientCompression::kTopK));
  in_groups("OneBitAdam", 3, by(OptimizerKind::kOneBitAdam));
  in_groups("OneBitLamb", 3, by(OptimizerKind::kOneBitLamb));
  in_groups("ZeroOneAdam", 1, by(OptimizerKind::kZeroOneAdam));
  // The third step freezes second moments.
  for (const auto kind : {OptimizerKind::kOneBitAdam, OptimizerKind::kOneBitLamb}) {
    add(absl::StrCat(optim::ExchangingName(kind), "Freezes"), 1, [&](ZeroOptions& options) {
      by(kind)(options);
      options.optimizer.freeze_step = 2;
    });
  }
  // The third step is one of signs; or one that each rank makes alone.
  add("ZeroOneAdamSigns", 1, [&](ZeroOptions& options) {
    by(OptimizerKind::kZeroOneAdam)(options);
    options.optimizer.zero_one = {
        .var_freeze_step = 100, .var_update_scaler = 1, .local_step_clipper = 1};
  });
  add("ZeroOneAdamAlone", 0, [&](ZeroOptions& options) {
    by(OptimizerKind::kZeroOneAdam)(options);
    options.optimizer.zero_one = {
        .var_freeze_step = 1, .local_step_scaler = 1, .local_step_clipper = 2};
  });
  const auto codes = [](ZeroOptions& options) {
    options.quantized_gradients = kernels::QuantFormat::kInt4;
    if (options.stage > 0) options.quantized_weights = kernels::QuantFormat::kInt8;
  };
  const auto loco = [&](ZeroOptions& options) {
    options.quantized_gradients = kernels::QuantFormat::kInt4;
    options.loco.emplace();
  };
  for (const int stage : {0, 1, 2, 3}) {
    add("Codes", stage, codes);
    add("Loco", stage, loco);
  }
  add(
      "LocoInNodes", 2,
      [&](ZeroOptions& options) {
        loco(options);
        in_nodes(options);
      },
      4);
  return cases;
}

}  // namespace brigade::zero

#endif  // BRIGADE_TESTS_ZERO_COMPRESSED_CASES_H_
