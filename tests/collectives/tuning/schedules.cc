#include "brigade/tests/collectives/tuning/schedules.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "brigade/collectives/algorithms/program.h"

namespace brigade::collectives {
namespace {

using Messages = std::vector<Message>;

// Every member sends to the next, in each of `steps`.
Messages RoundAndRound(const std::vector<int>& order, int steps, double bytes, int stream,
                       int lane) {
  Messages messages;
  for (int step = 0; step < steps; ++step) {
    for (size_t i = 0; i < order.size(); ++i) {
      messages.push_back({step, order[i], order[(i + 1) % order.size()], bytes, stream, lane});
    }
  }
  return messages;
}

// The same messages from their receivers to their senders, the last one first.
Messages Backwards(Messages messages) {
  int last = 0;
  for (const Message& each : messages) last = std::max(last, each.step);
  for (Message& each : messages) {
    each.step = last - each.step;
    std::swap(each.from, each.to);
  }
  return messages;
}

class Planner {
 public:
  Planner(const Topology& topology, CollectiveKind operation, double bytes)
      : topology_(topology),
        node_(NodesOf(topology)),
        p_(topology.ranks()),
        m_(topology.nodes()),
        n_(bytes),
        operation_(operation),
        rounds_(operation == CollectiveKind::kAllReduce ? 2 : 1),
        reduces_(operation != CollectiveKind::kAllGather),
        gathers_(operation != CollectiveKind::kReduceScatter) {
    for (int rank = 0; rank < p_; ++rank) order_.push_back(rank);
  }

  Schedule Direct() const {
    Messages messages;
    for (const int from : order_) {
      for (const int to : order_) {
        if (from == to) continue;
        const int lane = node_[from] == node_[to] ? (to + p_ - from) % p_ : -1;
        messages.push_back({0, from, to, n_ / p_, 0, lane});
      }
    }
    return Schedule(rounds_, messages);
  }

  Schedule Ring() const { return {RoundAndRound(order_, rounds_ * (p_ - 1), n_ / p_, 0, 0)}; }

  // The block of each owner, from both sides.
  Schedule Rendezvous() const {
    const int far = p_ / 2, near = p_ - 1 - far;
    Messages there;
    for (const int owner : order_) {
      const auto at = [&](int offset) { return (owner + offset + p_) % p_; };
      for (int left = far; left > 0; --left) {
        there.push_back({far - left, at(-left), at(1 - left), n_ / p_, 0, 0});
      }
      for (int left = near; left > 0; --left) {
        there.push_back({far - left, at(left), at(left - 1), n_ / p_, 1, 1});
      }
    }
    return ThereAndBack({there});
  }

  Schedule HalvingDoubling() const {
    Schedule there;
    double bytes = n_ / 2;
    for (int distance = 1; distance < p_; distance *= 2, bytes /= 2) {
      Messages phase;
      const int blocks = p_ / (2 * distance);
      for (const int rank : order_) {
        for (int block = 0; block < blocks; ++block) {
          phase.push_back({0, rank, rank ^ distance, bytes / blocks});
        }
      }
      there.push_back(phase);
    }
    return ThereAndBack(there);
  }

  // As one that sends to all, twice: the server's port carries as much in as out.
  Schedule ParameterServer() const {
    Messages messages;
    for (const int to : order_) {
      const int lane = node_[0] == node_[to] ? to : 0;
      if (to != 0) messages.push_back({0, 0, to, n_, 0, lane});
    }
    return {messages, messages};
  }

  bool HasLevels() const { return m_ > 1 && m_ < p_ && topology_.Even(); }

  // Each stage is a phase, except the trees' stages, which are one.
  Schedule Program(Algorithm algorithm) const {
    CollectiveSignature signature = {operation_, algorithm, precision::DType::kUint8};
    signature.count =
        static_cast<int64_t>(n_) / (operation_ == CollectiveKind::kAllReduce ? 1 : p_);
    signature.ranks_per_node = HasLevels() ? p_ / m_ : 1;
    const int stages = Stages(signature, p_);
    const int64_t share = signature.count / signature.ranks_per_node;
    Schedule schedule;
    for (int stage = 0; stage < stages; ++stage) {
      const bool is_around = HasLevels() && (stage == 0 || stage + 1 == stages);
      const bool is_new =
          algorithm == Algorithm::kHierarchical || is_around || stage == (HasLevels() ? 1 : 0);
      if (is_new) schedule.emplace_back();
      for (const int to : order_) {
        ForEachInstruction(signature, to, p_, [&](const Instruction& instruction) {
          if (instruction.stage != stage) return;
          for (const Part& source : instruction.sources) {
            if (source.rank == to) continue;
            const int tree = !is_around && source.begin % share >= share / 2 ? 1 : 0;
            schedule.back().push_back({stage, source.rank, to,
                                       static_cast<double>(instruction.count),
                                       algorithm == Algorithm::kDoubleTree ? tree : 0});
          }
        });
      }
    }
    return schedule;
  }

 private:
  Schedule ThereAndBack(const Schedule& there) const {
    Schedule schedule;
    if (reduces_) schedule = there;
    if (gathers_)
      std::transform(there.rbegin(), there.rend(), std::back_inserter(schedule), Backwards);
    return schedule;
  }

  const Topology& topology_;
  const std::vector<int> node_;
  const int p_, m_;
  const double n_;
  const CollectiveKind operation_;
  const int rounds_;
  const bool reduces_, gathers_;
  std::vector<int> order_;
};

}  // namespace

std::vector<int> NodesOf(const Topology& topology) {
  std::vector<int> nodes;
  for (int node = 0; node < topology.nodes(); ++node) {
    nodes.insert(nodes.end(), topology.ranks_of_node[node], node);
  }
  return nodes;
}

Schedule ScheduleOf(const Topology& topology, Algorithm algorithm, CollectiveKind operation,
                    double bytes) {
  const Planner planner(topology, operation, bytes);
  switch (algorithm) {
    case Algorithm::kRing:
      return planner.Ring();
    case Algorithm::kBidirectionalRing:
      return planner.Rendezvous();
    case Algorithm::kHalvingDoubling:
      return planner.HalvingDoubling();
    case Algorithm::kHierarchical:
      if (planner.HasLevels()) return planner.Program(algorithm);
      break;
    case Algorithm::kDoubleTree:
      return planner.Program(algorithm);
    case Algorithm::kParameterServer:
      return planner.ParameterServer();
    default:
      break;
  }
  return planner.Direct();
}

}  // namespace brigade::collectives
