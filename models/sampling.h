#ifndef BRIGADE_MODELS_SAMPLING_H_
#define BRIGADE_MODELS_SAMPLING_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace brigade::models {

struct SamplingOptions {
  // By which logits are divided; 0: the greatest logit is taken, the first of those.
  double temperature = 1;
  // The k greatest logits take part, and those equal to the last of them; 0: all do.
  int64_t top_k = 0;
  // The most probable ones whose probabilities come to top_p take part, the one that reaches it
  // included; at 1 all do. After top_k.
  double top_p = 1;
  uint64_t seed = 0;
};

// InvalidArgument naming the option.
absl::Status Validate(const SamplingOptions& options);

// The token that comes at `position` of sample `sample`: a function of its arguments alone, by
// Philox of the seed (nn/philox.h). Sums are in double, in the order of the logits, greatest first.
//
// Errors       InvalidArgument for no logits, and for one that is no number or infinite, but for
//              -infinity: such a token does not come.
absl::StatusOr<int64_t> SampleToken(absl::Span<const float> logits, const SamplingOptions& options,
                                    int64_t sample, int64_t position);

}  // namespace brigade::models

#endif  // BRIGADE_MODELS_SAMPLING_H_
