#ifndef BRIGADE_PARALLEL_PIPELINE_SCHEDULE_KIND_H_
#define BRIGADE_PARALLEL_PIPELINE_SCHEDULE_KIND_H_

// Which schedule a pipeline runs, and what is known of it without its lists: the bubble and the
// peak of its activations in closed form.
//
// A model is cut into stages * chunks parts, one after the other, and each stage, which is one rank
// of the pipeline, holds `chunks` of them. Part k lies on stage k mod stages; with kZeroBubbleV the
// parts go to the last stage and come back, as the two strokes of the letter.

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "brigade/device/requirements.h"

namespace brigade::parallel {

enum class ScheduleKind : uint8_t {
  // All forward passes, then all backward passes. Huang et al. 2019 (arXiv 1811.06965).
  kGpipe,
  // A backward pass as soon as there is one. Narayanan et al. 2019 (PipeDream-Flush).
  kOneForwardOneBackward,
  // The same with several chunks on each stage. Narayanan et al. 2021 (arXiv 2104.04473).
  kInterleaved,
  // The gradients of weights apart, later, where a stage would wait; activations as those of the
  // first stage of 1F1B. Qi et al. 2024 (arXiv 2401.10241).
  kZeroBubbleH1,
  // Two chunks on each stage besides. The same.
  kZeroBubbleV,
};

// A schedule as users name it.
struct ScheduleChoice {
  ScheduleKind kind = ScheduleKind::kOneForwardOneBackward;
  // On each stage: 2 with kZeroBubbleV, from 2 on with kInterleaved, else 1.
  int chunks = 1;

  friend bool operator==(const ScheduleChoice&, const ScheduleChoice&) = default;
};

// "gpipe", "1f1b", "interleaved:V" with V chunks, "zb-h1", "zb-v". InvalidArgument naming the text
// and what it may be.
absl::StatusOr<ScheduleChoice> ParseSchedule(absl::string_view text);
std::string ToString(const ScheduleChoice& schedule);

// Whether the gradients of inputs and of weights are computed apart.
bool SplitsBackward(ScheduleKind kind);

// All that a schedule's lists depend on.
struct PipelineShape {
  ScheduleChoice schedule = {};
  int stages = 1;
  // Of a step.
  int micro_batches = 1;

  int parts() const { return stages * schedule.chunks; }

  friend bool operator==(const PipelineShape&, const PipelineShape&) = default;
};

// InvalidArgument naming the numbers that do not fit: from 1 on, at most 4096 stages, 2^20 micro-
// batches and 2^24 passes of one kind on a stage; the chunks of the schedule; with kInterleaved as
// many micro-batches as fill groups of one for each stage.
absl::Status Validate(const PipelineShape& shape);

// The part of the model that is this chunk of this stage, from 0 on in the order of forward passes.
int PartOf(const PipelineShape& shape, int stage, int chunk);

// Where a part lies.
struct PartPlace {
  int stage = 0;
  int chunk = 0;

  friend bool operator==(const PartPlace&, const PartPlace&) = default;
};
PartPlace PlaceOf(const PipelineShape& shape, int part);

// Times of all chunks of a stage for one micro-batch, in any unit.
struct StageTimes {
  double forward = 1;
  // Of the gradients of the inputs, and of the weights. A backward pass that is not split takes the
  // sum.
  double backward_input = 1;
  double backward_weight = 1;
};

// How much longer a step takes than the work of a stage, where all stages and chunks take equally
// long and transfers no time. p stages, m micro-batches, v chunks; f, b, w the times:
//   kGpipe, kOneForwardOneBackward  (p-1) (f + b + w)
//   kInterleaved                    (p-1) (f + b + w) / v
//   kZeroBubbleH1                   (p-1) (f + b) - (min(m, p) - 1) min(f, b, w)
//   kZeroBubbleV                    (p-1) f / 2 if f = b = w and m >= 2p - 1, else none
// ZB-V has a bubble of 0 by the measure of its authors, who count from the first to the last
// computation of each stage: the last stage begins p - 1 chunks later than the first one, and ends
// as much later. A step ends when all stages have. Where there is no closed form, simulate.h knows.
std::optional<double> Bubble(const PipelineShape& shape, const StageTimes& times);

// The most chunks' activations that a stage keeps at once: from a forward pass to the backward
// pass, or to the gradient of the weights.
//   kGpipe                  m
//   kOneForwardOneBackward  min(p - s, m) on stage s
//   kInterleaved            min(2 (p-1-s) + (v-1) p + 1, m v)
//   kZeroBubbleH1           min(p, m)
//   kZeroBubbleV            min(2p, m + s + 1, 2m)
int64_t PeakActivations(const PipelineShape& shape, int stage);

}  // namespace brigade::parallel

#endif  // BRIGADE_PARALLEL_PIPELINE_SCHEDULE_KIND_H_
