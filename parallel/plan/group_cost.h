#ifndef BRIGADE_PARALLEL_PLAN_GROUP_COST_H_
#define BRIGADE_PARALLEL_PLAN_GROUP_COST_H_

// What communication takes in the groups of a grid, by the cost model of collectives/tuning.

#include <map>
#include <tuple>
#include <vector>

#include "brigade/collectives/collective.h"
#include "brigade/collectives/tuning/topology.h"
#include "brigade/parallel/plan/machine.h"

namespace brigade::parallel {

// Ranks 0, stride, 2 stride, ... of the machine. Every group of a grid is such a one, with the
// ranks' order of grid.h: tensor (1, t), context (t, c), replica (t, c d), pipeline (t c d, p); the
// machine has as many of them as ranks allow, and all talk at the same time.
struct RankGroup {
  int stride = 1;
  int size = 1;

  friend bool operator==(const RankGroup&, const RankGroup&) = default;
};

// What such a group sees: how its ranks lie on nodes, and of the ports of a node its share, which
// is that of its ranks there among all ranks of the node. Less than one port is one with that share
// of the bandwidth. The group of rank 0 stands for all; where strides and nodes do not divide,
// others may be cut by one node more.
collectives::Topology TopologyOf(const Machine& machine, const RankGroup& group);

// Times in groups, for any number of bytes. It remembers what it has been asked for: a group costs
// once.
//
// Threads      One at a time.
class GroupCosts {
 public:
  // The machine is valid, and outlives the object.
  explicit GroupCosts(const Machine& machine) : machine_(machine) {}

  // Of all_reduce, reduce_scatter or all_gather of an array of `bytes` in all, by the algorithm
  // that is best, as kAuto takes it.
  double Collective(const RankGroup& group, collectives::CollectiveKind kind, double bytes);

  // Of a message of `bytes` from every rank to the next one of the group, round the ring: as fast
  // as the slowest of them.
  double Shift(const RankGroup& group, double bytes);

  // Of an all-to-all of `bytes` that every rank has, 1/size of it for each.
  double AllToAll(const RankGroup& group, double bytes);

 private:
  // Seconds and seconds per byte of an algorithm: the model's times are lines.
  struct Line {
    double seconds = 0;
    double seconds_per_byte = 0;
  };
  const std::vector<Line>& LinesOf(const RankGroup& group, collectives::CollectiveKind kind);

  const Machine& machine_;
  // By stride, size, kind.
  std::map<std::tuple<int, int, collectives::CollectiveKind>, std::vector<Line>> lines_;
};

}  // namespace brigade::parallel

#endif  // BRIGADE_PARALLEL_PLAN_GROUP_COST_H_
