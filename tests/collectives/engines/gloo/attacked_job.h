#ifndef BRIGADE_TESTS_COLLECTIVES_ENGINES_GLOO_ATTACKED_JOB_H_
#define BRIGADE_TESTS_COLLECTIVES_ENGINES_GLOO_ATTACKED_JOB_H_

// A job of four processes with strangers at each of its open ports: it starts up, trains with ZeRO,
// trains in a group that Split makes, loses rank 0, and trains in the group that Shrink makes. One
// rank is slow: it waits at the places of a phase until the strangers have done their worst.

#include <optional>
#include <string>
#include <vector>

#include "brigade/tests/collectives/bootstrap/attackers.h"
#include "brigade/tests/collectives/engines/gloo/processes.h"

namespace brigade::collectives::testing {

inline constexpr int kRanks = 4, kSlowRank = 1, kLostRank = 0;

enum class Phase { kStartUp, kTraining, kSplit, kShrink };
inline constexpr Phase kPhases[] = {Phase::kStartUp, Phase::kTraining, Phase::kSplit,
                                    Phase::kShrink};
const char* Name(Phase phase);

struct AttackedJob {
  // Of the ranks, and of the strangers behind them.
  std::vector<Report> reports;
  // By rank: a digest of the parameters after each training, and what was said first on the
  // connections between ranks.
  std::vector<std::vector<std::string>> digests;
  std::vector<std::string> recorded;
  // What the strangers met.
  int places = 0;
  int ports = 0;
  int64_t connections = 0;
};

// Without strangers if there is no attack. `recorded` is of earlier jobs.
struct AttackOnJob {
  Phase phase;
  Attack attack;
  std::vector<std::string> recorded;
};
AttackedJob RunJob(const std::optional<AttackOnJob>& attack);

}  // namespace brigade::collectives::testing

#endif  // BRIGADE_TESTS_COLLECTIVES_ENGINES_GLOO_ATTACKED_JOB_H_
