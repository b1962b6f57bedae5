#ifndef BRIGADE_TESTS_PARALLEL_PIPELINE_PEAKS_H_
#define BRIGADE_TESTS_PARALLEL_PIPELINE_PEAKS_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "brigade/parallel/pipeline/schedule.h"

namespace brigade::parallel {

// The most bytes of activations that each stage keeps at once: each part's bytes from its forward
// pass to its backward pass or to the gradient of the weights. For lists that check.h accepts.
inline std::vector<int64_t> PeakActivationBytes(const PipelineSchedule& schedule,
                                                absl::Span<const int64_t> bytes_of_part) {
  std::vector<int64_t> peaks;
  for (size_t s = 0; s < schedule.lists.size(); ++s) {
    int64_t kept = 0, peak = 0;
    for (const PipelineItem& item : schedule.lists[s]) {
      const auto bytes = [&] {
        return bytes_of_part[static_cast<size_t>(
            PartOf(schedule.shape, static_cast<int>(s), item.chunk))];
      };
      if (item.kind == ItemKind::kForward) kept += bytes();
      peak = std::max(peak, kept);
      if (item.kind == ItemKind::kBackward || item.kind == ItemKind::kBackwardWeight) {
        kept -= bytes();
      }
    }
    peaks.push_back(peak);
  }
  return peaks;
}

}  // namespace brigade::parallel

#endif  // BRIGADE_TESTS_PARALLEL_PIPELINE_PEAKS_H_
