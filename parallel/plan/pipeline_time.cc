#include "brigade/parallel/plan/pipeline_time.h"

#include <algorithm>

namespace brigade::parallel {

double BubbleSeconds(const PipelineShape& shape, const StageTimes& times) {
  if (const auto bubble = Bubble(shape, times)) return *bubble;
  const double b = times.backward_input, w = times.backward_weight;
  const bool fills = shape.micro_batches >= 2 * shape.stages - 1;
  return (shape.stages - 1) * (fills ? std::max(b / 2, b - w) : b);
}

double TransferSeconds(const PipelineShape& shape, double hop) {
  const double there_and_back = 2 * (shape.parts() - 1) * hop;
  const double waits = (shape.micro_batches - 1) * 2.0 * (shape.stages - 1) / shape.stages * hop;
  switch (shape.schedule.kind) {
    case ScheduleKind::kOneForwardOneBackward:
      return there_and_back + waits;
    case ScheduleKind::kZeroBubbleH1:
      return there_and_back + std::min(waits, there_and_back);
    case ScheduleKind::kGpipe:
    case ScheduleKind::kInterleaved:
    case ScheduleKind::kZeroBubbleV:
      break;
  }
  return there_and_back;
}

}  // namespace brigade::parallel
