#include "brigade/collectives/cost_model.h"

#include <algorithm>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "brigade/device/status_macros.h"

namespace brigade::collectives {
namespace {

int CeilDivide(int a, int b) { return (a + b - 1) / b; }
int FloorLog2(int value) { return value < 2 ? 0 : 1 + FloorLog2(value / 2); }

// What all routes need to know, under the names that the formulas use.
class Model {
 public:
  Model(const Topology& topology, CallKind operation, int64_t bytes)
      : topology_(topology),
        sizes_(topology.ranks_of_node),
        p_(topology.ranks()),
        m_(topology.nodes()),
        g_(*std::max_element(sizes_.begin(), sizes_.end())),
        n_(static_cast<double>(bytes)),
        block_(n_ / p_),
        rounds_(operation == CallKind::kAllReduce ? 2 : 1),
        reduces_(operation != CallKind::kAllGather),
        gathers_(operation != CallKind::kReduceScatter) {}

  std::vector<Phase> Direct() const { return Repeat({AllToAll(block_)}); }

  std::vector<Phase> DirectOneShot() const {
    Phase phase = AllToAll(n_);
    phase.reduced_bytes = (p_ - 1) * n_;
    return {phase};
  }

  // A rank sends all but one block in each round, through the port to its neighbour.
  std::vector<Phase> Ring(int rings) const {
    const double sent = rounds_ * (p_ - 1) * block_;
    Phase phase = RingPhase(rounds_ * (p_ - 1));
    // The largest node's ranks are exits least often.
    phase.inside.bytes = m_ == 1 ? sent : sent * (rings - rings / g_) / rings;
    if (m_ > 1) phase.between.bytes = sent / rings;
    return {phase};
  }

  std::vector<Phase> InterleavedRing() const {
    if (m_ == 1) return Ring(1);
    const int steps = rounds_ * (p_ - 1);
    Phase phase;
    phase.reduced_bytes = Reduced();
    phase.between = {steps, RanksOfPort(g_) * steps * block_, int64_t{RanksOfPort(g_) - 1} * steps};
    return {phase};
  }

  std::vector<Phase> BidirectionalRing() const {
    const int steps = rounds_ * (p_ - 1);
    Phase phase = RingPhase(steps);
    BothWays(steps * block_ / 2, steps * block_ / 2, steps, phase);
    return {phase};
  }

  std::vector<Phase> MeetingRings() const {
    const int far = p_ / 2, near = (p_ - 1) / 2;  // ranks on either side of an owner
    Phase phase = RingPhase(far);
    BothWays(far * block_, near * block_, near, phase);
    return Repeat({phase});
  }

  // Near first, so that what leaves the node is small.
  std::vector<Phase> HalvingDoubling() const {
    std::vector<Phase> phases;
    double sent = n_ / 2;
    for (int distance = 1; distance < p_; distance *= 2, sent /= 2) {
      Phase phase;
      phase.reduced_bytes = reduces_ ? sent : 0;
      if (distance < g_) {
        phase.inside = {1, sent, 0};
      } else {
        phase.between = {1, RanksOfPort(g_) * sent, RanksOfPort(g_) - 1};
      }
      phases.push_back(phase);
    }
    return Repeat(phases);
  }

  // Up and down the trees. A node that is not a leaf in one of the two is one in the other, so none sends more than
  // 2 n; of two nodes each has one child in all. Every port of a node has a pair of trees and a chain of its own,
  // whose head is another rank.
  std::vector<Phase> DoubleTree() const {
    const auto tree = [&](int members) {
      return Load{2 * FloorLog2(members), members == 2 ? n_ : 2 * n_, 0};
    };
    Phase phase;
    phase.reduced_bytes = n_;
    if (m_ == 1) {
      phase.inside = tree(p_);
      return {phase};
    }
    const int ports = topology_.between.ports;
    phase.between = tree(m_);
    phase.between.bytes /= ports;
    phase.inside.steps = 2 * (g_ - 1);
    for (const int size : sizes_) {
      const auto dealt = [&](int rank) { return ports / size + (rank < ports % size); };
      for (int rank = 0; rank < size; ++rank) {
        const int ends = dealt(rank) + dealt((rank + 1) % size);  // of chains: sends one way only
        phase.inside.bytes = std::max(phase.inside.bytes, (2 - 1.0 * ends / ports) * n_);
      }
    }
    return {phase};
  }

  std::vector<Phase> Hierarchical() const {
    const int share = RanksOfPort(g_);
    const int steps = rounds_ * (m_ - 1);
    Phase scatter, across, gather;
    gather.inside = scatter.inside = {g_ - 1, (g_ - 1) * n_ / g_, 0};
    scatter.reduced_bytes = (g_ - 1) * n_ / g_;
    across.between = {steps, share * steps * block_, int64_t{share - 1} * steps};
    across.reduced_bytes = reduces_ ? (m_ - 1) * block_ : 0;
    std::vector<Phase> phases = {across};
    if (reduces_) phases.insert(phases.begin(), scatter);
    if (gathers_) phases.push_back(gather);
    return phases;
  }

 private:
  // Ranks whose messages leave a node of this size by its busiest port.
  int RanksOfPort(int size) const { return CeilDivide(size, topology_.between.ports); }

  double Reduced() const { return reduces_ ? (p_ - 1) * block_ : 0; }

  // Everybody sends `message` bytes to everybody else.
  Phase AllToAll(double message) const {
    const int64_t inside = CeilDivide(g_ - 1, topology_.inside.ports);
    int64_t between = 0;
    for (const int size : sizes_) {
      between = std::max(between, int64_t{RanksOfPort(size)} * (p_ - size));
    }
    const auto load = [&](bool last, int64_t messages) {
      return Load{last ? 1 : 0, messages * message, std::max<int64_t>(0, messages - 1)};
    };
    return {load(m_ == 1, inside), load(m_ > 1, between), Reduced()};
  }

  // Steps of a path of so many hops round the ring, and what its ranks add.
  Phase RingPhase(int hops) const {
    const int crossings = m_ == 1 ? 0 : MostCrossings(hops);
    Phase phase;
    phase.inside.steps = hops - crossings;
    phase.between.steps = crossings;
    phase.reduced_bytes = Reduced();
    return phase;
  }

  // The most nodes that a path can enter: it begins with a hop into one, and has to walk through those between.
  int MostCrossings(int hops) const {
    int most = 0, entered = 0, walked = 0;  // in nodes first, first + 1, ... of the ring
    for (int first = 0; first < m_; ++first) {
      for (; walked < hops; ++entered) walked += sizes_[(first + entered) % m_];
      most = std::max(most, entered);
      walked -= sizes_[first];
      --entered;
    }
    return most;
  }

  // A rank sends `more` bytes one way and `less` the other; over one port `queued` messages wait.
  void BothWays(double more, double less, int queued, Phase& phase) const {
    const auto load = [&](Load& level, int ports, bool both) {
      level.bytes = more + (ports == 1 && both ? less : 0);
      level.queued = ports == 1 && both ? queued : 0;
    };
    // At a node's border a rank's other neighbour is outside.
    if (m_ == 1 || g_ > 1) load(phase.inside, topology_.inside.ports, m_ == 1 || g_ > 2);
    if (m_ > 1) load(phase.between, topology_.between.ports, true);
  }

  // Forth for a reduction, back for a gathering, both for an all-reduce.
  std::vector<Phase> Repeat(std::vector<Phase> phases) const {
    if (rounds_ == 1) return phases;
    std::vector<Phase> back(phases.rbegin(), phases.rend());
    for (Phase& phase : back) phase.reduced_bytes = 0;
    phases.insert(phases.end(), back.begin(), back.end());
    return phases;
  }

  const Topology& topology_;
  const std::vector<int>& sizes_;
  const int p_, m_, g_;  // ranks, nodes, ranks of the largest node
  const double n_, block_;
  const int rounds_;
  const bool reduces_, gathers_;
};

absl::Status CheckExists(const Topology& topology, Route route, CallKind operation) {
  const auto refuse = [&](const auto&... why) {
    return absl::FailedPreconditionError(absl::StrCat(Name(route), " ", why...));
  };
  const bool of_all_reduce = route == Route::kDirectOneShot || route == Route::kDoubleTree;
  if (of_all_reduce && operation != CallKind::kAllReduce) {
    return refuse("is an all_reduce, not a ", Name(operation));
  }
  const int p = topology.ranks();
  if (route == Route::kHalvingDoubling && (p & (p - 1)) != 0) {
    return refuse("needs a power of two, there are ", p, " ranks");
  }
  const bool needs_even = route == Route::kHalvingDoubling || route == Route::kHierarchical ||
                          route == Route::kInterleavedRing;
  if (needs_even && !topology.Even()) {
    const auto [least, most] =
        std::minmax_element(topology.ranks_of_node.begin(), topology.ranks_of_node.end());
    return refuse("needs nodes of one size, they have ", *least, " to ", *most, " ranks");
  }
  return absl::OkStatus();
}

}  // namespace

absl::string_view Name(Route route) {
  switch (route) {
    case Route::kDirect:
      return "direct";
    case Route::kDirectOneShot:
      return "direct_one_shot";
    case Route::kRing:
      return "ring";
    case Route::kInterleavedRing:
      return "interleaved_ring";
    case Route::kRingPerPort:
      return "ring_per_port";
    case Route::kBidirectionalRing:
      return "bidirectional_ring";
    case Route::kMeetingRings:
      return "meeting_rings";
    case Route::kHalvingDoubling:
      return "halving_doubling";
    case Route::kDoubleTree:
      return "double_tree";
    case Route::kHierarchical:
      return "hierarchical";
  }
  return "unknown";
}

std::optional<Algorithm> AlgorithmOf(Route route) {
  if (route == Route::kDirect) return Algorithm::kDirect;
  if (route == Route::kRing) return Algorithm::kRing;
  return std::nullopt;
}

absl::StatusOr<std::vector<Phase>> PhasesOf(const Topology& topology, Route route,
                                            CallKind operation, int64_t bytes) {
  BRIGADE_RETURN_IF_ERROR(Validate(topology));
  if (bytes < 0) return absl::InvalidArgumentError(absl::StrCat("bytes is ", bytes));
  if (operation != CallKind::kAllReduce && operation != CallKind::kReduceScatter &&
      operation != CallKind::kAllGather) {
    return absl::InvalidArgumentError(absl::StrCat("there is no cost model of ", Name(operation)));
  }
  BRIGADE_RETURN_IF_ERROR(CheckExists(topology, route, operation));
  if (topology.ranks() == 1) return std::vector<Phase>();
  const Model model(topology, operation, bytes);
  switch (route) {
    case Route::kDirect:
      return model.Direct();
    case Route::kDirectOneShot:
      return model.DirectOneShot();
    case Route::kRing:
      return model.Ring(1);
    case Route::kInterleavedRing:
      return model.InterleavedRing();
    case Route::kRingPerPort:
      return model.Ring(topology.between.ports);
    case Route::kBidirectionalRing:
      return model.BidirectionalRing();
    case Route::kMeetingRings:
      return model.MeetingRings();
    case Route::kHalvingDoubling:
      return model.HalvingDoubling();
    case Route::kDoubleTree:
      return model.DoubleTree();
    case Route::kHierarchical:
      return model.Hierarchical();
  }
  return absl::InvalidArgumentError("there is no such route");
}

double SecondsOf(const Topology& topology, const std::vector<Phase>& phases) {
  const auto transfer = [](const Level& level, const Load& load) {
    return load.bytes / level.bytes_per_s + static_cast<double>(load.queued) * level.message_s;
  };
  double seconds = 0;
  for (const Phase& phase : phases) {
    seconds += static_cast<double>(phase.inside.steps) * topology.inside.latency_s +
               static_cast<double>(phase.between.steps) * topology.between.latency_s +
               std::max(transfer(topology.inside, phase.inside),
                        transfer(topology.between, phase.between)) +
               phase.reduced_bytes / topology.reduced_bytes_per_s;
  }
  return seconds;
}

double BusBandwidth(CallKind operation, int ranks, int64_t bytes, double seconds) {
  const double rounds = operation == CallKind::kAllReduce ? 2 : 1;
  return seconds > 0 ? rounds * (ranks - 1) / ranks * static_cast<double>(bytes) / seconds : 0;
}

}  // namespace brigade::collectives
