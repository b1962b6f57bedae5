#include "brigade/collectives/tuning/cost_model.h"

#include <algorithm>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "brigade/device/status_macros.h"

namespace brigade::collectives {
namespace {

int CeilDivide(int a, int b) { return (a + b - 1) / b; }
int FloorLog2(int value) { return value < 2 ? 0 : 1 + FloorLog2(value / 2); }

// What all algorithms need to know, under the names that the formulas use.
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
        even_(topology.Even()),
        reduces_(operation != CollectiveKind::kAllGather),
        gathers_(operation != CollectiveKind::kReduceScatter) {}

  std::vector<Phase> Direct() const { return ThereAndBack({AllToAll(block_)}); }

  // A rank sends all but one block in each round to its neighbour.
  std::vector<Phase> Ring() const {
    const int steps = rounds_ * (p_ - 1);
    const double sent = steps * block_;
    Phase phase = RingPhase(steps);
    // The ranks of the largest node are exits least often.
    phase.inside.bytes = m_ > 1 && g_ == 1 ? 0 : sent;
    if (m_ > 1) phase.between.bytes = sent;
    return {phase};
  }

  std::vector<Phase> BidirectionalRing() const {
    const int far = p_ / 2, near = (p_ - 1) / 2;  // ranks on either side of an owner
    Phase phase = RingPhase(far);
    BothWays(far * block_, near * block_, near, phase);
    return ThereAndBack({phase});
  }

  // Near first, so that what leaves the node is small. The blocks that two ranks exchange are not
  // neighbours: each is a message.
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

  // Sums and copies inside nodes, each rank of its share, around those of all counterparts.
  std::vector<Phase> Hierarchical() const {
    if (m_ == 1 || g_ == 1) return Direct();
    // The share of an all-reduce is one message; of the others the part of each node is one.
    const int messages = reduces_ && gathers_ ? 1 : m_;
    return AroundShares(ThereAndBack({AcrossDirectly()}), messages);
  }

  // All arrays to one rank of the first node, and as many back.
  std::vector<Phase> ParameterServer() const {
    const int near = sizes_.front() - 1, far = p_ - sizes_.front();
    Phase phase;
    phase.inside = {far > 0 ? 0 : 1, CeilDivide(near, topology_.inside.ports) * n_};
    phase.between = {far > 0 ? 1 : 0, far * n_};
    phase.reduced_bytes = (p_ - 1) * n_;
    phase.queued = p_ - 2;
    return ThereAndBack({phase});
  }

  // Up and down the trees, each with half the data. Of four members one has two children in one
  // tree, a parent there, and a parent in the other, and so do all of many: 2 n up and down. Two
  // have one child in all, three two.
  std::vector<Phase> DoubleTree() const {
    const bool has_levels = m_ > 1 && g_ > 1 && even_;
    const int members = has_levels ? m_ : p_;
    const double share = has_levels ? n_ / g_ : n_;
    Phase trees;
    trees.reduced_bytes = share;
    const Load load = {2 * FloorLog2(members), std::min(members, 4) * share / 2};
    if (m_ == 1) {
      trees.inside = load;
    } else {
      trees.between = load;
      trees.between.bytes *= RanksOfPort(g_);
    }
    return has_levels ? AroundShares({trees}, 1) : std::vector<Phase>{trees};
  }

 private:
  // Ranks whose messages leave a node of this size by its busiest port.
  int RanksOfPort(int size) const { return CeilDivide(size, topology_.between.ports); }

  double Reduced() const { return reduces_ ? (p_ - 1) * block_ : 0; }

  // Counterparts add up the blocks of their share; to exchange them is the same backwards.
  Phase AcrossDirectly() const {
    return {{},
            {1, static_cast<double>(RanksOfPort(g_)) * (m_ - 1) * block_},
            (m_ - 1) * block_,
            m_ - 2};
  }

  // `between` with what nodes do before and after it: each rank sends `messages` messages to each
  // other rank of its node.
  std::vector<Phase> AroundShares(std::vector<Phase> between, int64_t messages) const {
    const int64_t sent = CeilDivide(g_ - 1, topology_.inside.ports);
    Phase scatter;
    scatter.inside = {1, static_cast<double>(sent) * n_ / g_};
    scatter.queued = messages * (g_ - 1) - 1;
    Phase gather = scatter;
    scatter.reduced_bytes = (g_ - 1) * n_ / g_;
    if (reduces_) between.insert(between.begin(), scatter);
    if (gathers_) between.push_back(gather);
    return between;
  }

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

  // The most nodes that a path can enter: it begins with a hop into one, and has to walk through
  // those between.
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
  // Ranks, nodes, ranks of the largest node.
  const int p_, m_, g_;
  const double n_, block_;
  const int rounds_;
  const bool even_, reduces_, gathers_;
};

std::vector<Phase> PhasesOf(const Model& model, Algorithm algorithm) {
  switch (algorithm) {
    case Algorithm::kDirect:
      return model.Direct();
    case Algorithm::kRing:
      return model.Ring();
    case Algorithm::kBidirectionalRing:
      return model.BidirectionalRing();
    case Algorithm::kHalvingDoubling:
      return model.HalvingDoubling();
    case Algorithm::kHierarchical:
      return model.Hierarchical();
    case Algorithm::kDoubleTree:
      return model.DoubleTree();
    case Algorithm::kParameterServer:
      return model.ParameterServer();
    case Algorithm::kAuto:
    case Algorithm::kNative:
      break;
  }
  return {};
}

absl::Status CheckExists(const Topology& topology, Algorithm algorithm, CollectiveKind operation) {
  const auto refuse = [&](const auto&... why) {
    return absl::FailedPreconditionError(absl::StrCat(Name(algorithm), " ", why...));
  };
  if (HasAllReducesAlone(algorithm) && operation != CollectiveKind::kAllReduce) {
    return refuse("is for all_reduce, not for ", Name(operation));
  }
  const int p = topology.ranks();
  if (algorithm == Algorithm::kHalvingDoubling && (p & (p - 1)) != 0) {
    return refuse("needs a power of two, there are ", p, " ranks");
  }
  const bool needs_even =
      algorithm == Algorithm::kHalvingDoubling || algorithm == Algorithm::kHierarchical;
  if (needs_even && !topology.Even()) {
    const auto [least, most] =
        std::minmax_element(topology.ranks_of_node.begin(), topology.ranks_of_node.end());
    return refuse("needs nodes of one size, they have ", *least, " to ", *most, " ranks");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<Phase>> PhasesOf(const Topology& topology, Algorithm algorithm,
                                            CollectiveKind operation, int64_t bytes) {
  BRIGADE_RETURN_IF_ERROR(Validate(topology));
  if (bytes < 0) return absl::InvalidArgumentError(absl::StrCat("bytes is ", bytes));
  if (!HasAlgorithms(operation)) {
    return absl::InvalidArgumentError(absl::StrCat("there is no cost model of ", Name(operation)));
  }
  BRIGADE_RETURN_IF_ERROR(CheckExists(topology, algorithm, operation));
  if (topology.ranks() == 1) return std::vector<Phase>();
  std::vector<Phase> phases = PhasesOf(Model(topology, operation, bytes), algorithm);
  if (phases.empty()) {
    return absl::InvalidArgumentError(absl::StrCat("there is no cost model of ", Name(algorithm)));
  }
  phases.front().call_s = topology.call_s;
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
