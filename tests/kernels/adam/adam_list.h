#ifndef BRIGADE_TESTS_KERNELS_ADAM_ADAM_LIST_H_
#define BRIGADE_TESTS_KERNELS_ADAM_ADAM_LIST_H_

#include <deque>
#include <random>
#include <vector>

#include "brigade/kernels/adam/adam.h"
#include "brigade/kernels/update_types.h"
#include "brigade/tests/kernels/testing.h"
#include "brigade/tests/spec/optimizers.h"

namespace brigade::kernels {

// A list of segments with its state, and what the specification says becomes of it.
template <typename Grad, typename Copy>
class AdamList {
 public:
  static constexpr bool kHasCopy = !std::is_same_v<Copy, NoCopy>;
  using CopyArray = std::conditional_t<kHasCopy, Copy, float>;

  struct Arrays {
    GuardedArray<float> param, m, v;
    GuardedArray<Grad> grad;
    GuardedArray<CopyArray> copy;
    std::vector<float> wanted_param, wanted_m, wanted_v, wanted_copy;
  };

  // offset(array, segment) is the distance of an array from a 64-byte boundary, in elements.
  template <typename Offset>
  AdamList(const std::vector<int64_t>& sizes, uint32_t seed, const Offset& offset) {
    std::mt19937 random(seed);
    for (size_t i = 0; i < sizes.size(); ++i) {
      const int64_t n = sizes[i];
      arrays.push_back({GuardedArray<float>(n, offset(0, i)),
                        GuardedArray<float>(n, offset(1, i)),
                        GuardedArray<float>(n, offset(2, i)),
                        GuardedArray<Grad>(n, offset(3, i)),
                        GuardedArray<CopyArray>(kHasCopy ? n : 0, offset(4, i)),
                        {},
                        {},
                        {},
                        {}});
      Arrays& a = arrays.back();
      FillTypical(a.param, random);
      FillTypical(a.m, random);
      FillTypical(a.v, random);
      for (int64_t j = 0; j < n; ++j) a.v[j] = std::fabs(a.v[j]);
      FillTypical(a.grad, random, 100.0f);
      a.wanted_param = Values(a.param);
      a.wanted_m = Values(a.m);
      a.wanted_v = Values(a.v);
      a.wanted_copy = Values(a.copy);
      segments.push_back({a.param.data(), a.m.data(), a.v.data(), a.grad.data(),
                          kHasCopy ? static_cast<void*>(a.copy.data()) : nullptr, n,
                          static_cast<int32_t>(i % 2)});
    }
  }

  // One step of the specification; groups by index.
  void Specify(const std::vector<spec::AdamRule>& rules, const std::vector<GroupStep>& steps,
               float multiplier) {
    for (size_t i = 0; i < arrays.size(); ++i) {
      Arrays& a = arrays[i];
      const int32_t group = segments[i].group;
      const GroupStep& s = steps[group];
      for (int64_t j = 0; j < a.param.size(); ++j) {
        const spec::AdamElement x = spec::AdamUpdate(
            {a.wanted_param[j], a.wanted_m[j], a.wanted_v[j]}, static_cast<float>(a.grad[j]),
            multiplier, rules[group], {s.lr, s.step_size, s.inv_sqrt_correction});
        a.wanted_param[j] = x.param;
        a.wanted_m[j] = x.m;
        a.wanted_v[j] = x.v;
        if (kHasCopy) a.wanted_copy[j] = spec::Round(kFormat<CopyArray>, x.param);
      }
    }
  }

  void ExpectMatch(const std::string& how) const {
    for (size_t i = 0; i < arrays.size(); ++i) {
      const Arrays& a = arrays[i];
      EXPECT_TRUE(Matches(a.param, a.wanted_param)) << how << ", param of segment " << i;
      EXPECT_TRUE(Matches(a.m, a.wanted_m)) << how << ", m of segment " << i;
      EXPECT_TRUE(Matches(a.v, a.wanted_v)) << how << ", v of segment " << i;
      EXPECT_TRUE(Matches(a.copy, a.wanted_copy)) << how << ", copy of segment " << i;
    }
  }

  std::deque<Arrays> arrays;  // do not move
  std::vector<AdamSegment> segments;
};

// Two groups with different hyper-parameters, and device-resident values as after some steps.
struct AdamSetting {
  explicit AdamSetting(bool decoupled) {
    rules = {
        {.beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .weight_decay = 0.01, .decoupled = decoupled},
        {.beta1 = 0.8, .beta2 = 0.95, .eps = 1e-6, .weight_decay = 0.0, .decoupled = decoupled}};
    for (const spec::AdamRule& rule : rules) {
      groups.push_back({rule.beta1, rule.beta2, rule.eps, rule.weight_decay});
    }
    options.weight_decay_mode = decoupled ? WeightDecayMode::kDecoupled : WeightDecayMode::kCoupled;
    options.groups = groups;
    options.state = &state;
    options.group_steps = steps.data();
    state.grad_multiplier = 0.0123f;
    state.step = 3;
  }
  AdamSetting(const AdamSetting&) = delete;

  std::vector<spec::AdamRule> rules;
  std::vector<AdamGroup> groups;
  std::vector<GroupStep> steps = {{1e-3f, 3.7e-3f, 18.3f}, {2e-2f, 4.1e-2f, 2.6f}};
  StepState state = {};
  AdamOptions options;
};

}  // namespace brigade::kernels

#endif  // BRIGADE_TESTS_KERNELS_ADAM_ADAM_LIST_H_
