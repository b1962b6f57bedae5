#include "brigade/train/summary.h"

#include <algorithm>
#include <cstddef>

namespace brigade::train {

std::array<ChunkSummary, kMaxChunks> ChunkSummaries(absl::Span<const PassSeconds> stages,
                                                    absl::Span<const parallel::StageRange> chunks,
                                                    int64_t micro_batches) {
  const auto passes = static_cast<double>(std::max<int64_t>(micro_batches, 1));
  std::array<ChunkSummary, kMaxChunks> summaries = {};
  for (size_t c = 0; c < chunks.size(); ++c) {
    ChunkSummary& summary = summaries[c];
    summary.stages = chunks[c];
    // Stages behind the last one that was marked have no times.
    const int end = std::min(chunks[c].end, static_cast<int>(stages.size()));
    for (int stage = chunks[c].first; stage < end; ++stage) {
      const PassSeconds& of_stage = stages[static_cast<size_t>(stage)];
      summary.forward += of_stage[PassPart::kForward] / passes;
      summary.backward_input += (of_stage[PassPart::kBackward] +
                                 of_stage[PassPart::kBackwardInput] + of_stage.recompute()) /
                                passes;
      summary.backward_weight += of_stage[PassPart::kBackwardWeight] / passes;
    }
  }
  return summaries;
}

}  // namespace brigade::train
