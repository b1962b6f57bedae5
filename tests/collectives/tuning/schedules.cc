#include "brigade/tests/collectives/tuning/schedules.h"

#include <algorithm>
#include <iterator>
#include <tuple>
#include <utility>

namespace brigade::collectives {
namespace {

using Messages = std::vector<Message>;

void Append(Messages& all, const Messages& more) {
  all.insert(all.end(), more.begin(), more.end());
}

std::vector<int> Reversed(std::vector<int> order) {
  std::reverse(order.begin(), order.end());
  return order;
}

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
        rounds_(operation == CollectiveKind::kAllReduce ? 2 : 1),
        reduces_(operation != CollectiveKind::kAllGather),
        gathers_(operation != CollectiveKind::kReduceScatter) {
    for (int rank = 0; rank < p_; ++rank) order_.push_back(rank);
    for (int rank = 0, first = 0; rank < p_; ++rank) {
      if (node_[rank] != node_[first]) first = rank;
      local_.push_back(rank - first);
    }
  }

  Schedule Direct(double bytes, int rounds) const {
    Messages messages;
    for (const int from : order_) {
      for (const int to : order_) {
        if (from == to) continue;
        const int lane = node_[from] == node_[to] ? (to + p_ - from) % p_ : -1;
        messages.push_back({0, from, to, bytes, 0, lane});
      }
    }
    return Schedule(rounds, messages);
  }

  Schedule Ring(const std::vector<int>& order, int lane) const {
    return {RoundAndRound(order, rounds_ * (p_ - 1), n_ / p_, 0, lane)};
  }

  Schedule Interleaved() const {
    std::vector<int> order = order_;
    std::sort(order.begin(), order.end(), [&](int a, int b) {
      return std::tie(local_[a], node_[a]) < std::tie(local_[b], node_[b]);
    });
    return Ring(order, -1);
  }

  // Ring i leaves each node by the rank that has port i.
  Schedule RingPerPort() const {
    const int rings = m_ == 1 ? 1 : topology_.between.ports;
    Messages all;
    for (int ring = 0; ring < rings; ++ring) {
      std::vector<int> order;
      for (int node = 0; node < m_; ++node) {
        const std::vector<int> chain = Reversed(ChainOf(node, ring));
        order.insert(order.end(), chain.begin(), chain.end());
      }
      // Rings share a rank's port inside, and have one each between nodes.
      for (Message message :
           RoundAndRound(order, rounds_ * (p_ - 1), n_ / p_ / rings, ring, ring)) {
        if (node_[message.from] == node_[message.to]) message.lane = 0;
        all.push_back(message);
      }
    }
    return {all};
  }

  Schedule Bidirectional() const {
    const int steps = rounds_ * (p_ - 1);
    Messages all = RoundAndRound(order_, steps, n_ / p_ / 2, 0, 0);
    Append(all, RoundAndRound(Reversed(order_), steps, n_ / p_ / 2, 1, 1));
    return {all};
  }

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

  Schedule Hierarchical() const {
    const int g = p_ / m_;
    Messages inside, across;
    for (int node = 0; node < m_; ++node) {
      Append(inside, RoundAndRound(Reversed(ChainOf(node, 0)), g - 1, n_ / g, 0, -1));
    }
    for (int local = 0; local < g; ++local) {
      std::vector<int> order;
      for (int node = 0; node < m_; ++node) order.push_back(node * g + local);
      Append(across, RoundAndRound(order, rounds_ * (m_ - 1), n_ / p_, 0, -1));
    }
    if (!reduces_) return {across, inside};
    if (!gathers_) return {inside, across};
    return {inside, across, inside};
  }

  // Up to the roots of all trees, and down again. Steps are set so that a message follows those it waits for.
  Schedule DoubleTree() const {
    const int ports = m_ == 1 ? 1 : topology_.between.ports;
    Messages up;
    for (int lane = 0; lane < ports; ++lane) {
      for (int half = 0; half < 2; ++half) {
        const auto send = [&](int step, int from, int to) {
          up.push_back({step, from, to, n_ / ports / 2, 2 * lane + half,
                        node_[from] == node_[to] ? 0 : lane});
        };
        if (m_ == 1) {
          for (const int rank : order_) {
            if (Parent(p_, rank, half) >= 0) {
              send(Height(p_, rank, half), rank, Parent(p_, rank, half));
            }
          }
          continue;
        }
        for (int node = 0; node < m_; ++node) {
          const std::vector<int> chain = ChainOf(node, lane);
          for (size_t i = 1; i < chain.size(); ++i) {
            send(static_cast<int>(chain.size() - i), chain[i], chain[i - 1]);
          }
          const int parent = Parent(m_, node, half);
          if (parent >= 0) send(p_ + Height(m_, node, half), chain[0], ChainOf(parent, lane)[0]);
        }
      }
    }
    // One phase: what goes down waits for what came up.
    Messages all = up;
    for (Message message : Backwards(up)) {
      message.step += 2 * p_;
      all.push_back(message);
    }
    return {all};
  }

 private:
  // The ranks of a node, beginning with the one that has this port.
  std::vector<int> ChainOf(int node, int port) const {
    std::vector<int> ranks;
    for (const int rank : order_) {
      if (node_[rank] == node) ranks.push_back(rank);
    }
    std::rotate(ranks.begin(), ranks.begin() + port % static_cast<int>(ranks.size()), ranks.end());
    return ranks;
  }

  // Member i > 0 hangs below the member whose lowest set bit is the next higher, or else has that bit alone removed;
  // odd ones are leaves. The second tree is the first one mirrored, or turned by one, so that even ones are.
  static int Parent(int members, int member, int tree) {
    const auto turn = [&](int i) {
      if (tree == 0) return i;
      return members % 2 == 0 ? members - 1 - i : (i + members - 1) % members;
    };
    const auto back = [&](int i) {
      return tree == 1 && members % 2 == 1 ? (i + 1) % members : turn(i);
    };
    const int i = turn(member), bit = i & -i;
    if (i == 0) return -1;
    const int parent = (i - bit) | (2 * bit);
    return back(parent < members ? parent : i - bit);
  }

  // Hops from the farthest leaf below.
  static int Height(int members, int member, int tree) {
    int height = 0;
    for (int other = 0; other < members; ++other) {
      int hops = 0, at = other;
      for (; at >= 0 && at != member; ++hops) at = Parent(members, at, tree);
      if (at == member) height = std::max(height, hops);
    }
    return height;
  }

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
  const int rounds_;
  const bool reduces_, gathers_;
  std::vector<int> order_, local_;

  friend Schedule brigade::collectives::ScheduleOf(const Topology&, Route, CollectiveKind, double);
};

}  // namespace

std::vector<int> NodesOf(const Topology& topology) {
  std::vector<int> nodes;
  for (int node = 0; node < topology.nodes(); ++node) {
    nodes.insert(nodes.end(), topology.ranks_of_node[node], node);
  }
  return nodes;
}

Schedule ScheduleOf(const Topology& topology, Route route, CollectiveKind operation, double bytes) {
  const Planner planner(topology, operation, bytes);
  switch (route) {
    case Route::kDirect:
      return planner.Direct(bytes / planner.p_, planner.rounds_);
    case Route::kDirectOneShot:
      return planner.Direct(bytes, 1);
    case Route::kRing:
      return planner.Ring(planner.order_, 0);
    case Route::kInterleavedRing:
      return planner.Interleaved();
    case Route::kRingPerPort:
      return planner.RingPerPort();
    case Route::kOpposedRings:
      return planner.Bidirectional();
    case Route::kBidirectionalRing:
      return planner.Rendezvous();
    case Route::kHalvingDoubling:
      return planner.HalvingDoubling();
    case Route::kDoubleTree:
      return planner.DoubleTree();
    case Route::kHierarchical:
      return planner.Hierarchical();
  }
  return {};
}

}  // namespace brigade::collectives
