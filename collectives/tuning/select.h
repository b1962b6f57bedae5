#ifndef BRIGADE_COLLECTIVES_TUNING_SELECT_H_
#define BRIGADE_COLLECTIVES_TUNING_SELECT_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "brigade/collectives/tuning/cost_model.h"

namespace brigade::collectives {

struct Choice {
  Algorithm algorithm = Algorithm::kDirect;
  // The predicted time.
  double seconds = 0;
  // One sentence, with the best two times.
  std::string reason;
};

// The cheapest of `algorithms` by the cost model; of equals the first. Bytes are those of PhasesOf.
// All ranks must choose alike: with one topology they do.
//
// Errors       Those of PhasesOf; FailedPrecondition, with every algorithm's reason, if none of
//              them exists here.
absl::StatusOr<Choice> Select(const Topology& topology, CollectiveKind operation, int64_t bytes,
                              absl::Span<const Algorithm> algorithms = kModelledAlgorithms);

// "3.42 us", "12.5 ms"; "64 MiB".
std::string ShowSeconds(double seconds);
std::string ShowBytes(int64_t bytes);

}  // namespace brigade::collectives

#endif  // BRIGADE_COLLECTIVES_TUNING_SELECT_H_
