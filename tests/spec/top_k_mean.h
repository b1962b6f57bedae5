#ifndef BRIGADE_TESTS_SPEC_TOP_K_MEAN_H_
#define BRIGADE_TESTS_SPEC_TOP_K_MEAN_H_

// The executable specification of a mean by the greatest elements of each rank, with error
// feedback: what a rank has left out is added to its array, the k greatest of that are sent and
// become 0 in what is left out. The values sent are added to 0 in ascending order of ranks, times
// 1 / ranks, in float. Where one of these is not finite, or the step is skipped, all that was left
// out stays as it was.

#include <cmath>
#include <cstddef>
#include <vector>

#include "brigade/tests/spec/formats.h"
#include "brigade/tests/spec/top_k.h"

namespace brigade::spec {

// `left_out`: of each rank.
inline std::vector<float> TopKMean(const std::vector<std::vector<float>>& of_rank, size_t k,
                                   bool skip, Format format,
                                   std::vector<std::vector<float>>& left_out) {
  const std::vector<std::vector<float>> before = left_out;
  const auto factor = static_cast<float>(1.0 / static_cast<double>(of_rank.size()));
  std::vector<float> mean(of_rank[0].size());
  for (size_t rank = 0; rank < of_rank.size(); ++rank) {
    std::vector<float>& values = left_out[rank];
    for (size_t i = 0; i < values.size(); ++i) values[i] = values[i] + of_rank[rank][i];
    for (const int32_t index : TopK(values, k)) {
      const auto i = static_cast<size_t>(index);
      mean[i] = mean[i] + values[i];
      values[i] = 0;
    }
  }
  bool counts = !skip;
  for (float& x : mean) {
    x = x * factor;
    counts = counts && std::isfinite(x);
    x = Round(format, x);
  }
  if (!counts) left_out = before;
  return mean;
}

}  // namespace brigade::spec

#endif  // BRIGADE_TESTS_SPEC_TOP_K_MEAN_H_
