#include "brigade/parallel/plan/group_cost.h"

#include <algorithm>
#include <cstdint>
#include <limits>

#include "brigade/collectives/tuning/cost_model.h"

namespace brigade::parallel {

using collectives::CollectiveKind;
using collectives::Topology;

Topology TopologyOf(const Machine& machine, const RankGroup& group) {
  Topology topology = machine.topology;
  topology.ranks_of_node.clear();
  int64_t last = -1;
  for (int64_t index = 0; index < group.size; ++index) {
    const int64_t node = index * group.stride / machine.ranks_per_node;
    if (node != last) topology.ranks_of_node.push_back(0);
    ++topology.ranks_of_node.back();
    last = node;
  }
  const int most = *std::max_element(topology.ranks_of_node.begin(), topology.ranks_of_node.end());
  const double ports = static_cast<double>(topology.between.ports) * most / machine.ranks_per_node;
  topology.between.ports = std::max(1, static_cast<int>(ports));
  topology.between.bytes_per_s *= ports / topology.between.ports;
  return topology;
}

const std::vector<GroupCosts::Line>& GroupCosts::LinesOf(const RankGroup& group,
                                                         CollectiveKind kind) {
  std::vector<Line>& lines = lines_[{group.stride, group.size, kind}];
  if (!lines.empty()) return lines;
  const Topology topology = TopologyOf(machine_, group);
  constexpr int64_t kBytes = int64_t{1} << 40;
  for (const collectives::Algorithm algorithm : collectives::kModelledAlgorithms) {
    const auto none = collectives::PhasesOf(topology, algorithm, kind, 0);
    const auto many = collectives::PhasesOf(topology, algorithm, kind, kBytes);
    // An algorithm that does not exist here.
    if (!none.ok() || !many.ok()) continue;
    const double seconds = collectives::SecondsOf(topology, *none);
    lines.push_back({seconds, (collectives::SecondsOf(topology, *many) - seconds) /
                                  static_cast<double>(kBytes)});
  }
  return lines;
}

double GroupCosts::Collective(const RankGroup& group, CollectiveKind kind, double bytes) {
  if (group.size == 1 || bytes <= 0) return 0;
  double least = std::numeric_limits<double>::infinity();
  for (const Line& line : LinesOf(group, kind)) {
    least = std::min(least, line.seconds + line.seconds_per_byte * bytes);
  }
  return least;
}

double GroupCosts::Shift(const RankGroup& group, double bytes) {
  if (group.size == 1 || bytes <= 0) return 0;
  const Topology topology = TopologyOf(machine_, group);
  if (topology.nodes() == 1) {
    return topology.inside.latency_s + bytes / topology.inside.bytes_per_s;
  }
  // One message leaves each node, but all groups of the node send theirs: the group's share of the
  // ports is for the one message.
  const double bytes_per_s = topology.between.bytes_per_s * topology.between.ports;
  return topology.between.latency_s +
         bytes / std::min(bytes_per_s, machine_.topology.between.bytes_per_s);
}

double GroupCosts::AllToAll(const RankGroup& group, double bytes) {
  if (group.size == 1 || bytes <= 0) return 0;
  const Topology topology = TopologyOf(machine_, group);
  // Everybody sends a part to everybody else: what kDirect does with the parts of a reduce-scatter,
  // which adds them up besides.
  Topology without_sums = topology;
  without_sums.reduced_bytes_per_s = std::numeric_limits<double>::infinity();
  const auto phases =
      collectives::PhasesOf(without_sums, collectives::Algorithm::kDirect,
                            CollectiveKind::kReduceScatter, static_cast<int64_t>(bytes));
  return phases.ok() ? collectives::SecondsOf(without_sums, *phases) : 0;
}

}  // namespace brigade::parallel
