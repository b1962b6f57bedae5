#ifndef BRIGADE_TESTS_SPEC_REPLICAS_H_
#define BRIGADE_TESTS_SPEC_REPLICAS_H_

// The executable specification of rounds between replicas: whole copies of a training that update
// locally, and whose weights come together every `period` steps.
//
// Sources: Stich 2018 (local SGD), Lin et al. 2018 (post-local SGD), Douillard et al. 2023 (DiLoCo)
// and 2025 (its streaming form). Every line is one rounding to float, std::fma included.

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "brigade/tests/spec/formats.h"
#include "brigade/tests/spec/wire.h"

namespace brigade::spec {

struct RoundRule {
  int64_t period = 1;
  double lr = 0.7;
  double momentum = 0.9;
  bool nesterov = true;
  int fragments = 1;
  int64_t delay = 0;
  double mix = 0.0;
  Format wire = Format::kFloat32;
  int64_t start_step = 0;
};

// All replicas' weights, and what they have in common.
class Replicas {
 public:
  // `fragment_of`: of each element.
  Replicas(const RoundRule& rule, std::vector<int> fragment_of, const std::vector<float>& initial,
           size_t replicas)
      : own(replicas, initial),
        outer(initial),
        momentum(initial.size()),
        rule_(rule),
        fragment_of_(std::move(fragment_of)),
        sent_(initial.size()) {}

  // [replica][element]: the caller updates them, each by itself, and then calls Step.
  std::vector<std::vector<float>> own;
  // w0 and v.
  std::vector<float> outer, momentum;
  int64_t steps = 0;

  void Step() {
    ++steps;
    if (steps <= rule_.start_step) {
      for (int k = 0; k < rule_.fragments; ++k) {
        Send(k);
        Use(k, 1.0, 0.0, 0.0);
      }
      return;
    }
    for (int k = 0; k < rule_.fragments; ++k) {
      const int64_t sent_at = steps - rule_.delay;
      if (rule_.delay > 0 && IsDue(k, sent_at)) Use(k, rule_.lr, rule_.momentum, rule_.mix);
    }
    for (int k = 0; k < rule_.fragments; ++k) {
      if (!IsDue(k, steps)) continue;
      Send(k);
      if (rule_.delay == 0) Use(k, rule_.lr, rule_.momentum, rule_.mix);
    }
  }

 private:
  bool IsDue(int fragment, int64_t step) const {
    const int64_t end = (fragment + 1) * rule_.period / rule_.fragments;
    return step > rule_.start_step && step % rule_.period == end % rule_.period;
  }

  // The sum of the deltas, in ascending order of replicas.
  void Send(int fragment) {
    for (size_t i = 0; i < outer.size(); ++i) {
      if (fragment_of_[i] != fragment) continue;
      std::vector<std::vector<float>> deltas;
      for (const std::vector<float>& each : own) deltas.push_back({outer[i] - each[i]});
      sent_[i] = SumOverWire(deltas, rule_.wire, 1.0f, 0, 1)[0];
    }
  }

  void Use(int fragment, double lr, double mu, double mix) {
    const auto share = static_cast<float>(1.0 / static_cast<double>(own.size()));
    for (size_t i = 0; i < outer.size(); ++i) {
      if (fragment_of_[i] != fragment) continue;
      float move = sent_[i] * share;
      if (mu > 0) {
        const auto rate = static_cast<float>(mu);
        momentum[i] = std::fma(rate, momentum[i], move);
        move = rule_.nesterov ? std::fma(rate, momentum[i], move) : momentum[i];
      }
      outer[i] = std::fma(-static_cast<float>(lr), move, outer[i]);
      for (std::vector<float>& each : own) each[i] = Mixed(outer[i], each[i], mix);
    }
  }

  static float Mixed(float common, float own, double mix) {
    if (mix == 0.0) return common;
    const auto of_common = static_cast<float>(1.0 - mix);
    const float of_own = 1.0f - of_common;
    return std::fma(of_common, common, own * of_own);
  }

  const RoundRule rule_;
  const std::vector<int> fragment_of_;
  std::vector<float> sent_;
};

}  // namespace brigade::spec

#endif  // BRIGADE_TESTS_SPEC_REPLICAS_H_
