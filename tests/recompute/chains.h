#ifndef BRIGADE_TESTS_RECOMPUTE_CHAINS_H_
#define BRIGADE_TESTS_RECOMPUTE_CHAINS_H_

#include <cstdint>
#include <vector>

#include "brigade/recompute/chain.h"

namespace brigade::recompute {

// Chains with sizes in units of kAlignmentBytes (256), for known answers in small numbers.
inline constexpr int64_t kUnit = 256;

// A stage without transient bytes, whose options are pairs of saved units and backward time.
struct UnitOption {
  int64_t saved = 0;
  double backward_time = 0;
};
inline Stage UnitStage(double forward_time, int64_t output, int64_t gradient,
                       const std::vector<UnitOption>& options) {
  Stage stage = {.forward_time = forward_time,
                 .output_bytes = output * kUnit,
                 .gradient_bytes = gradient * kUnit};
  for (const UnitOption& option : options) {
    stage.options.push_back(
        {.saved_bytes = option.saved * kUnit, .backward_time = option.backward_time});
  }
  return stage;
}

// Of equal stages.
inline Chain EqualChain(int stages, const Stage& stage) {
  return {.stages = std::vector<Stage>(static_cast<size_t>(stages), stage)};
}

}  // namespace brigade::recompute

#endif  // BRIGADE_TESTS_RECOMPUTE_CHAINS_H_
