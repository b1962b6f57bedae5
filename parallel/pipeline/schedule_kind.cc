#include "brigade/parallel/pipeline/schedule_kind.h"

#include <algorithm>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace brigade::parallel {
namespace {

constexpr int kMostStages = 1 << 12;
constexpr int kMostMicroBatches = 1 << 20;
constexpr int64_t kMostPasses = 1 << 24;

template <typename... What>
absl::Status Invalid(const What&... what) {
  return absl::InvalidArgumentError(absl::StrCat("pipeline: ", what...));
}

}  // namespace

absl::StatusOr<ScheduleChoice> ParseSchedule(absl::string_view text) {
  if (text == "gpipe") return ScheduleChoice{ScheduleKind::kGpipe, 1};
  if (text == "1f1b") return ScheduleChoice{ScheduleKind::kOneForwardOneBackward, 1};
  if (text == "zb-h1") return ScheduleChoice{ScheduleKind::kZeroBubbleH1, 1};
  if (text == "zb-v") return ScheduleChoice{ScheduleKind::kZeroBubbleV, 2};
  absl::string_view value = text;
  if (int chunks = 0; absl::ConsumePrefix(&value, "interleaved:") &&
                      absl::SimpleAtoi(value, &chunks) && chunks >= 2) {
    return ScheduleChoice{ScheduleKind::kInterleaved, chunks};
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "\"", text, "\" is none of gpipe, 1f1b, interleaved:V with V from 2 on, zb-h1 and zb-v"));
}

std::string ToString(const ScheduleChoice& schedule) {
  switch (schedule.kind) {
    case ScheduleKind::kGpipe:
      return "gpipe";
    case ScheduleKind::kOneForwardOneBackward:
      break;
    case ScheduleKind::kInterleaved:
      return absl::StrCat("interleaved:", schedule.chunks);
    case ScheduleKind::kZeroBubbleH1:
      return "zb-h1";
    case ScheduleKind::kZeroBubbleV:
      return "zb-v";
  }
  return "1f1b";
}

bool SplitsBackward(ScheduleKind kind) {
  return kind == ScheduleKind::kZeroBubbleH1 || kind == ScheduleKind::kZeroBubbleV;
}

absl::Status Validate(const PipelineShape& shape) {
  const auto [kind, chunks] = shape.schedule;
  if (shape.stages < 1 || shape.stages > kMostStages) {
    return Invalid(shape.stages, " stages; it must be 1 to ", kMostStages);
  }
  if (shape.micro_batches < 1 || shape.micro_batches > kMostMicroBatches) {
    return Invalid(shape.micro_batches, " micro-batches; it must be 1 to ", kMostMicroBatches);
  }
  const bool interleaved = kind == ScheduleKind::kInterleaved;
  const int expected = kind == ScheduleKind::kZeroBubbleV ? 2 : 1;
  if (interleaved ? chunks < 2 : chunks != expected) {
    return Invalid(chunks, " chunks on each stage; ", ToString({kind, chunks}), " takes ",
                   interleaved ? "2 or more" : absl::StrCat(expected));
  }
  if (const int64_t passes = int64_t{shape.micro_batches} * chunks; passes > kMostPasses) {
    return Invalid(shape.micro_batches, " micro-batches of ", chunks, " chunks are ", passes,
                   " forward passes of a stage; it must be at most ", kMostPasses);
  }
  if (const int left = shape.micro_batches % shape.stages; interleaved && left != 0) {
    return Invalid(ToString(shape.schedule), " takes micro-batches in groups of ", shape.stages,
                   ", one for each stage: of ", shape.micro_batches, " are ", left, " left");
  }
  return absl::OkStatus();
}

int PartOf(const PipelineShape& shape, int stage, int chunk) {
  const bool comes_back = shape.schedule.kind == ScheduleKind::kZeroBubbleV && chunk % 2 == 1;
  return chunk * shape.stages + (comes_back ? shape.stages - 1 - stage : stage);
}

PartPlace PlaceOf(const PipelineShape& shape, int part) {
  const int chunk = part / shape.stages, index = part % shape.stages;
  const bool comes_back = shape.schedule.kind == ScheduleKind::kZeroBubbleV && chunk % 2 == 1;
  return {comes_back ? shape.stages - 1 - index : index, chunk};
}

std::optional<double> Bubble(const PipelineShape& shape, const StageTimes& times) {
  const auto [f, b, w] = times;
  const int p = shape.stages, m = shape.micro_batches;
  switch (shape.schedule.kind) {
    case ScheduleKind::kGpipe:
    case ScheduleKind::kOneForwardOneBackward:
      break;
    case ScheduleKind::kInterleaved:
      return (p - 1) * (f + b + w) / shape.schedule.chunks;
    case ScheduleKind::kZeroBubbleH1:
      return (p - 1) * (f + b) - (std::min(m, p) - 1) * std::min({f, b, w});
    case ScheduleKind::kZeroBubbleV:
      if (f != b || b != w || m < 2 * p - 1) return std::nullopt;
      return (p - 1) * f / 2;
  }
  return (p - 1) * (f + b + w);
}

int64_t PeakActivations(const PipelineShape& shape, int stage) {
  const int64_t p = shape.stages, m = shape.micro_batches, v = shape.schedule.chunks;
  switch (shape.schedule.kind) {
    case ScheduleKind::kGpipe:
      break;
    case ScheduleKind::kOneForwardOneBackward:
      return std::min(p - stage, m);
    case ScheduleKind::kInterleaved:
      return std::min(2 * (p - 1 - stage) + (v - 1) * p + 1, m * v);
    case ScheduleKind::kZeroBubbleH1:
      return std::min(p, m);
    case ScheduleKind::kZeroBubbleV:
      return std::min({2 * p, m + stage + 1, 2 * m});
  }
  return m;
}

}  // namespace brigade::parallel
