#ifndef BRIGADE_PROFILE_STEP_PROFILE_H_
#define BRIGADE_PROFILE_STEP_PROFILE_H_

// One step of a training, of one rank and of all.

#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "brigade/profile/collective_calls.h"
#include "brigade/profile/roofline.h"
#include "brigade/profile/trace_rows.h"

namespace brigade::profile {

// Operations of a pass, of the whole step on one rank (flops.h); of attention those of a causal
// model, which kernels make.
struct Flops {
  double products = 0;
  // Of attention, its own, and the scores that its backward pass makes again.
  double attention = 0;
  double scores = 0;
  double norms = 0;
  double pointwise = 0;

  double model() const { return products + attention + norms + pointwise; }
  double all() const { return model() + scores; }
  Flops& operator+=(const Flops& other);
};

struct UnitSize {
  std::string name = {};
  // Of the whole unit, of which this rank may have a part; 0: of none.
  int64_t parameters = 0;
  // [Pass]: forward, backward, and what the backward pass makes again.
  std::array<Flops, kPasses> flops = {};
};

// Bytes that a rank has sent in the step.
struct Sent {
  std::string to = {};
  double bytes = 0;
};

// What all ranks know beforehand.
struct Training {
  int64_t step = 0;
  int ranks = 1;
  std::string device = {};
  // Of weights and products.
  std::string dtype = {};
  int64_t parameters = 0;
  double tokens_of_step = 0;
  // Of products and attention, forward and backward, without what is made again.
  double flops_per_token = 0;
  double causal_flops_per_token = 0;
  // Of attention, all pairs of positions over those of a causal model: 2 s / (s + 1).
  double pairs_over_causal = 1;
};

// What one rank has seen.
struct RankStep {
  double seconds = 0;
  std::vector<UnitSize> units = {};
  // Their places are indices of `units`.
  std::vector<Row> rows = {};
  // The stream of the passes.
  std::string main = {};
  std::vector<Sent> sent = {};
  std::vector<CollectiveCalls> calls = {};
  Ceilings ceilings = {};
  // Operations that the trace had no room for.
  int64_t dropped = 0;
};

// As bytes and back, for ranks that tell each other. InvalidArgument for other bytes, and for
// numbers that are not finite.
std::string ToBytes(RankStep step);
absl::StatusOr<RankStep> RankStepFromBytes(absl::string_view bytes);

// A row's share of its unit's operations: products' of products, attention's of attention, by their
// time. Others have none: they are limited by memory.
struct Kernel {
  Row row;
  double flops = 0;
};

struct Module {
  std::string name = {};
  int64_t parameters = 0;
  std::array<Flops, kPasses> flops = {};
  // [Pass]: in which operations ran, without waits, collectives and idle time; of all ranks.
  std::array<double, kPasses> seconds = {};
  std::array<double, kPasses> bytes = {};
  // What limited, waits, collectives and idle time included.
  LimitSeconds limits = {};
  // Of the operations alone: what the roofline needs for them.
  double least_seconds = 0;
  // Depth 2: products, attention, norms, others.
  std::vector<Module> parts = {};

  double work_seconds() const { return seconds[0] + seconds[1] + seconds[2]; }
  double wall_seconds() const { return limits[0] + limits[1] + limits[2] + limits[3]; }
  double all_flops() const { return flops[0].all() + flops[1].all() + flops[2].all(); }
};

// Of all ranks together: seconds, operations and bytes are sums over them.
struct StepProfile {
  Training training;
  // Means over the ranks.
  Ceilings ceilings = {};
  double seconds = 0;
  // In the order of the model; last what is between the passes.
  std::vector<Module> units;
  // By stream, pass and name, the longest first; without idle time.
  std::vector<Kernel> kernels;
  // By stream and name.
  std::vector<CollectiveCalls> calls;
  std::vector<Sent> sent;
  // In collectives, of all streams; and of the stream of the passes, which waited for them.
  double collective_seconds = 0;
  double exposed_seconds = 0;
  int64_t dropped = 0;
  // Made again, of all ranks: of attention, scores included, and other; and the factor of the
  // options, which counts instead where it is not 0.
  double again_attention_flops = 0;
  double again_other_flops = 0;
  double again_factor = 0;

  // The operations of the model, without what is made again, by `training`.
  double model_flops(bool causal) const;
  // The same and what was made again.
  double hardware_flops(bool causal) const;
  double mfu(bool causal) const;
  double hfu(bool causal) const;
  // Of all units.
  double pass_seconds(Pass pass) const;
};

// `factor`: Options::recompute_fwd_factor.
StepProfile Merge(const Training& training, absl::Span<const RankStep> ranks, double factor = 0);

// Names and numbers for a monitor: "Train/Profile/mfu".
std::vector<std::pair<std::string, double>> ValuesOf(const StepProfile& profile);

// The same that each step has, from its rate: mfu, hfu and Tflop/s, by the profile's model and
// ceilings.
std::vector<std::pair<std::string, double>> ValuesOfRate(const StepProfile& profile,
                                                         double tokens_per_second);

}  // namespace brigade::profile

#endif  // BRIGADE_PROFILE_STEP_PROFILE_H_
