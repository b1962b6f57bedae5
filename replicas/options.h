#ifndef BRIGADE_REPLICAS_OPTIONS_H_
#define BRIGADE_REPLICAS_OPTIONS_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "brigade/precision/dtype.h"

namespace brigade::replicas {

// How whole copies of a training, which update locally, come together. With w0 the weights that
// they have in common, w a replica's own, and m their number, a round is
//
//   d  = mean over replicas of (w0 - w)
//   v  = momentum v + d
//   w0 = w0 - lr (d + momentum v)            without `nesterov`: w0 - lr v
//   w  = (1 - mix) w0 + mix w
//
// DiLoCo       The defaults, of every `period` steps.
// Local SGD    lr 1, momentum 0: w0 is the mean of the weights.
// Post-local   The same with start_step.
// Streaming    Fragments, with a delay and mix 0.5.
//
// Source       Local SGD: Stich, 2018 (arXiv 1805.09767); post-local: Lin et al., 2018
//              (1808.07217); DiLoCo: Douillard et al., 2023 (2311.08105); streaming: 2025
//              (2501.18512).
struct OuterOptions {
  // Steps between two rounds of the same weights, skipped steps included.
  int64_t period = 500;
  double lr = 0.7;
  // In [0, 1).
  double momentum = 0.9;
  bool nesterov = true;
  // Parts of the weights, each a run of buckets, that have their rounds at different times: part k
  // after step t when t mod period = (k + 1) period / fragments mod period.
  int fragments = 1;
  // Steps between the end of a part's period, when d is sent, and the step behind which the sum is
  // used. Below period / fragments, so that one part at most is on its way.
  int64_t delay = 0;
  // The share of a replica's own weights that a round leaves, in [0, 1).
  double mix = 0.0;
  // In which d crosses the wire: float32, or float16 (with a scale for each bucket) or bfloat16.
  precision::DType wire = precision::DType::kFloat32;
  // So many steps at the beginning are followed each by a round of all weights that takes the mean
  // (lr 1, momentum 0, mix 0, no delay). With SGD inside, with or without momentum, that is data
  // parallelism over all ranks up to rounding; the second moments of Adam stay each replica's own.
  int64_t start_step = 0;
};

// InvalidArgument naming the option, its value and what it contradicts.
absl::Status Validate(const OuterOptions& options);

// All of it, which must be the same on all ranks.
std::string Describe(const OuterOptions& options);

// The fragment that is due behind step `step`, counted from 1; -1: none. Not of the first
// start_step steps.
int DueFragment(const OuterOptions& options, int64_t step);

}  // namespace brigade::replicas

#endif  // BRIGADE_REPLICAS_OPTIONS_H_
