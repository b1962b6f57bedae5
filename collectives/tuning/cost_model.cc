#include "brigade/collectives/tuning/cost_model.h"

#include <algorithm>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "brigade/device/status_macros.h"

namespace brigade::collectives {
namespace {

int CeilDivide(int a, int b) { return (a + b - 1) / b; }
int CeilLog2(int value) { return value < 2 ? 0 : 1 + CeilLog2(CeilDivide(value, 2)); }

// What all routes need to know, under the names that the formulas use.
class Model {
 public:
  Model(const Topology& topology, CollectiveKind operation, int64_t bytes)
      : topology_(topology),
        sizes_(topology.ranks_of_node),
        p_(topology.ranks()),
        m_(topology.nodes()),
        g_(*std::max_element(sizes_.begin(), sizes_.end())),
        n_(static_cast<double>(bytes)),
        block_(n_ / p_),
        rounds_(operation == CollectiveKind::kAllReduce ? 2 : 1),
        reduces_(operation != CollectiveKind::kAllGather),
        gathers_(operation != CollectiveKind::kReduceScatter) {}

  std::vector<Phase> Direct() const { return ThereAndBack({AllToAll(block_)}); }

  std::vector<Phase> DirectOneShot() const {
    Phase phase = AllToAll(n_);
    phase.reduced_bytes = (p_ - 1) * n_;
    return {phase};
  }

  // A rank sends all but one block in each round to its neighbour, and every ring has its share, and workers of its own:
  // no message waits.
  std::vector<Phase> Ring(int rings) const {
    const int steps = rounds_ * (p_ - 1);
    const double sent = steps * block_ / rings;
    // The ranks of the largest node are exits least often.
    const int inside = m_ == 1 ? rings : rings - rings / g_;
    Phase phase = RingPhase(steps);
    phase.inside.bytes = inside * sent;
    if (m_ > 1) phase.between.bytes = sent;
    return {phase};
  }

  std::vector<Phase> InterleavedRing() const {
    if (m_ == 1) return Ring(1);
    const int64_t steps = rounds_ * (p_ - 1);
    Phase phase;
    phase.reduced_bytes = Reduced();
    phase.between = {steps, static_cast<double>(RanksOfPort(g_) * steps) * block_};
    return {phase};
  }

  std::vector<Phase> OpposedRings() const {
    const int steps = rounds_ * (p_ - 1);
    Phase phase = RingPhase(steps);
    BothWays(steps * block_ / 2, steps * block_ / 2, steps, phase);
    return {phase};
  }

  std::vector<Phase> BidirectionalRing() const {
    const int far = p_ / 2, near = (p_ - 1) / 2;  // ranks on either side of an owner
    Phase phase = RingPhase(far);
    BothWays(far * block_, near * block_, near, phase);
    return ThereAndBack({phase});
  }

  // Near first, so that what leaves the node is small. The blocks that two ranks exchange are not neighbours: each is
  // a message.
  std::vector<Phase> HalvingDoubling() const {
    std::vector<Phase> phases;
    double sent = n_ / 2;
    for (int distance = 1; distance < p_; distance *= 2, sent /= 2) {
      Phase phase;
      phase.reduced_bytes = sent;
      phase.queued = p_ / (2 * distance) - 1;
      if (distance < g_) {
        phase.inside = {1, sent};
      } else {
        phase.between = {1, RanksOfPort(g_) * sent};
      }
      phases.push_back(phase);
    }
    return ThereAndBack(phases);
  }

  // Up and down the trees, each with half the data. Of four members one has two children in one tree, a parent
  // there, and a parent in the other, and so do all of many: 2 n up and down. Two have one child in all, three two.
  // Every port of a node has a pair of trees and a chain of its own, whose head is another rank.
  std::vector<Phase> DoubleTree() const {
    const auto tree = [&](int members) {
      return Load{2 * CeilLog2(members), std::min(members, 4) * n_ / 2};
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
    const int64_t steps = rounds_ * (m_ - 1);
    Phase scatter, across, gather;
    gather.inside = scatter.inside = {g_ - 1, (g_ - 1) * n_ / g_};
    scatter.reduced_bytes = (g_ - 1) * n_ / g_;
    across.between = {steps, static_cast<double>(share * steps) * block_};
    across.reduced_bytes = reduces_ ? (m_ - 1) * block_ : 0;
    // Three calls of as many communicators; one of a single rank does nothing.
    if (g_ > 1) scatter.call_s = gather.call_s = topology_.inside.call_s;
    if (m_ > 1) across.call_s = topology_.between.call_s;
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
    return {{m_ == 1 ? 1 : 0, inside * message},
            {m_ > 1 ? 1 : 0, static_cast<double>(between) * message},
            Reduced(),
            p_ - 2};
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

  // A rank sends `more` bytes one way and `less` the other, and `queued` messages wait.
  void BothWays(double more, double less, int queued, Phase& phase) const {
    const auto load = [&](Load& level, int ports, bool both) {
      level.bytes = both && ports == 1 ? more + less : more;
    };
    phase.queued = queued;
    // At a node's border a rank's other neighbour is outside.
    if (m_ == 1 || g_ > 1) load(phase.inside, topology_.inside.ports, m_ == 1 || g_ > 2);
    if (m_ > 1) load(phase.between, topology_.between.ports, true);
  }

  // There for a reduction, back for a gathering, both for an all-reduce.
  std::vector<Phase> ThereAndBack(const std::vector<Phase>& there) const {
    std::vector<Phase> phases;
    if (reduces_) phases = there;
    if (gathers_) {
      for (auto phase = there.rbegin(); phase != there.rend(); ++phase) {
        phases.push_back({phase->inside, phase->between, 0, phase->queued});
      }
    }
    return phases;
  }

  const Topology& topology_;
  const std::vector<int>& sizes_;
  const int p_, m_, g_;  // ranks, nodes, ranks of the largest node
  const double n_, block_;
  const int rounds_;
  const bool reduces_, gathers_;
};

std::vector<Phase> PhasesOf(const Model& model, const Topology& topology, Route route) {
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
      return model.Ring(topology.nodes() == 1 ? 1 : topology.between.ports);
    case Route::kOpposedRings:
      return model.OpposedRings();
    case Route::kBidirectionalRing:
      return model.BidirectionalRing();
    case Route::kHalvingDoubling:
      return model.HalvingDoubling();
    case Route::kDoubleTree:
      return model.DoubleTree();
    case Route::kHierarchical:
      return model.Hierarchical();
  }
  return {};
}

}  // namespace

absl::StatusOr<std::vector<Phase>> PhasesOf(const Topology& topology, Route route,
                                            CollectiveKind operation, int64_t bytes) {
  BRIGADE_RETURN_IF_ERROR(Validate(topology));
  if (bytes < 0) return absl::InvalidArgumentError(absl::StrCat("bytes is ", bytes));
  if (operation != CollectiveKind::kAllReduce && operation != CollectiveKind::kReduceScatter &&
      operation != CollectiveKind::kAllGather) {
    return absl::InvalidArgumentError(absl::StrCat("there is no cost model of ", Name(operation)));
  }
  BRIGADE_RETURN_IF_ERROR(CheckExists(topology, route, operation));
  if (topology.ranks() == 1) return std::vector<Phase>();
  const Model model(topology, operation, bytes);
  std::vector<Phase> phases = PhasesOf(model, topology, route);
  if (phases.empty()) return absl::InvalidArgumentError("there is no such route");
  // The others are one call of all ranks.
  if (route != Route::kHierarchical) phases.front().call_s = topology.call_s;
  return phases;
}

double SecondsOf(const Topology& topology, const std::vector<Phase>& phases) {
  double seconds = 0;
  for (const Phase& phase : phases) {
    seconds += phase.call_s + static_cast<double>(phase.inside.steps) * topology.inside.latency_s +
               static_cast<double>(phase.between.steps) * topology.between.latency_s +
               std::max(phase.inside.bytes / topology.inside.bytes_per_s,
                        phase.between.bytes / topology.between.bytes_per_s) +
               static_cast<double>(phase.queued) * topology.message_s +
               phase.reduced_bytes / topology.reduced_bytes_per_s;
  }
  return seconds;
}

double BusBandwidth(CollectiveKind operation, int ranks, int64_t bytes, double seconds) {
  const double rounds = operation == CollectiveKind::kAllReduce ? 2 : 1;
  return seconds > 0 ? rounds * (ranks - 1) / ranks * static_cast<double>(bytes) / seconds : 0;
}

}  // namespace brigade::collectives
