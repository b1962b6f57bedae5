#include "brigade/collectives/tuning/select.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace brigade::collectives {
namespace {

std::string Describe(const Topology& topology) {
  const int nodes = topology.nodes(), ranks = topology.ranks();
  if (nodes == 1) return absl::StrCat(ranks, " ranks of one node");
  if (!topology.Even()) return absl::StrCat(ranks, " ranks of ", nodes, " nodes");
  return absl::StrCat(nodes, " nodes of ", ranks / nodes, ranks == nodes ? " rank" : " ranks");
}

}  // namespace

absl::StatusOr<Choice> Select(const Topology& topology, CollectiveKind operation, int64_t bytes,
                              absl::Span<const Algorithm> algorithms) {
  std::vector<Choice> choices;
  std::vector<std::string> refused;
  for (const Algorithm algorithm : algorithms) {
    const auto phases = PhasesOf(topology, algorithm, operation, bytes);
    if (absl::IsFailedPrecondition(phases.status())) {
      refused.emplace_back(phases.status().message());
      continue;
    }
    if (!phases.ok()) return phases.status();
    choices.push_back({algorithm, SecondsOf(topology, *phases), ""});
  }
  const std::string what =
      absl::StrCat(Name(operation), " of ", ShowBytes(bytes), " on ", Describe(topology));
  if (choices.empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat("no algorithm for ", what, ": ",
                     refused.empty() ? "none was given" : absl::StrJoin(refused, "; ")));
  }
  const auto faster = [](const Choice& a, const Choice& b) { return a.seconds < b.seconds; };
  std::stable_sort(choices.begin(), choices.end(), faster);
  Choice& best = choices.front();
  best.reason =
      absl::StrCat(Name(best.algorithm), " for ", what, ": ", ShowSeconds(best.seconds),
                   choices.size() == 1 ? std::string(", and no other algorithm")
                                       : absl::StrCat(", before ", Name(choices[1].algorithm),
                                                      " with ", ShowSeconds(choices[1].seconds)));
  return best;
}

std::string ShowSeconds(double seconds) {
  if (seconds < 1e-3) return absl::StrFormat("%.3g us", seconds * 1e6);
  if (seconds < 1) return absl::StrFormat("%.3g ms", seconds * 1e3);
  return absl::StrFormat("%.4g s", seconds);
}

std::string ShowBytes(int64_t bytes) {
  constexpr const char* kUnits[] = {" B", " KiB", " MiB", " GiB", " TiB"};
  size_t unit = 0;
  for (; unit + 1 < std::size(kUnits) && bytes >= 1024 && bytes % 1024 == 0; ++unit) bytes /= 1024;
  return absl::StrCat(bytes, kUnits[unit]);
}

}  // namespace brigade::collectives
