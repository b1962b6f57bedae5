#ifndef BRIGADE_TESTS_ZERO_SAVED_ELEMENTS_H_
#define BRIGADE_TESTS_ZERO_SAVED_ELEMENTS_H_

// States of all ranks by element, for a training on another number of ranks.

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "brigade/tests/zero/captured_state.h"
#include "brigade/zero/zero_optimizer.h"

namespace brigade::zero {

// The elements of a parameter in one of the arrays of all ranks' captured states.
inline std::vector<float> Elements(const Plan& plan, const std::vector<CapturedState>& states,
                                   int parameter, size_t array) {
  const Parameter& p = plan.parameter(parameter);
  const int64_t slice = plan.slice(plan.bucket(p.bucket));
  std::vector<float> values;
  for (int64_t i = p.begin; i < p.begin + p.spec.size; ++i) {
    const std::string& bytes =
        states[static_cast<size_t>(i / slice)].arrays[static_cast<size_t>(p.bucket)][array];
    float value;
    std::memcpy(&value, bytes.data() + i % slice * sizeof(float), sizeof(float));
    values.push_back(value);
  }
  return values;
}

// Loads the state that was saved by ranks of another plan for the same model.
inline absl::Status LoadElements(const Plan& old, const std::vector<CapturedState>& saved,
                                 ZeroOptimizer& zero) {
  const Plan& plan = zero.plan();
  const auto read = [&](int bucket, int array, ElementRange range, void* values) {
    const Bucket& of = plan.bucket(bucket);
    std::vector<float> whole(static_cast<size_t>(of.size));
    std::memset(values, 0, static_cast<size_t>(range.size * StateWidth(of)));
    if (!of.trainable) return absl::OkStatus();
    for (const BucketEntry& entry : of.entries) {
      const auto elements = Elements(old, saved, entry.parameter, static_cast<size_t>(array));
      std::copy(elements.begin(), elements.end(), whole.begin() + entry.range.begin);
    }
    std::memcpy(values, whole.data() + zero.rank() * plan.slice(of) + range.begin,
                static_cast<size_t>(range.size) * sizeof(float));
    return absl::OkStatus();
  };
  return zero.LoadState(saved[0].step, read);
}

}  // namespace brigade::zero

#endif  // BRIGADE_TESTS_ZERO_SAVED_ELEMENTS_H_
