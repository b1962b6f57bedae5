// Two levels, for nodes whose ranks reach each other faster than those of other nodes: each rank
// first adds up a share inside its node, and exchanges only that with its counterparts, the ranks
// that have its place in the other nodes. Both levels are direct. The stages, with g ranks on each
// of m nodes:
//
//   all_reduce       0   inside: the sums of a share
//                    1   between: the sum of a part of the share
//                    2   between: the other parts of the share
//                    3   inside: the other shares
//   reduce_scatter   0   inside: sums for m ranks
//                    1   between: the own sum
//   all_gather       0   between: the parts of m ranks
//                    1   inside: what the node has
//
// Sums are added in the order of ranks inside nodes, and then in the order of nodes. From a node 2
// (m-1)/m n leave of an all-reduce of n.
//
// Source: Cho et al., BlueConnect, 2019; two levels of it.

#include "brigade/collectives/algorithms/algorithms.h"

namespace brigade::collectives {
namespace {

// Rank = node * inside + place.
class Hierarchical {
 public:
  Hierarchical(const CollectiveSignature& signature, ProgramBuilder& builder)
      : count_(signature.count),
        builder_(builder),
        rank_(builder.rank()),
        inside_(signature.ranks_per_node),
        nodes_(builder.size() / inside_),
        node_(rank_ / inside_),
        place_(rank_ % inside_) {}

  // Place i has share i, which consists of blocks i * nodes to i * nodes + nodes - 1; the last of
  // them is node n's.
  void AllReduce() {
    const int64_t share = Block(place_, 0), own = Block(place_, node_);
    AddInside(0, Side::kInput, share, Side::kOutput, share, Block(place_ + 1, 0) - share);
    AddBetween(1, Side::kOutput, own, own, Block(place_, node_ + 1) - own);
    for (int node = 0; node < nodes_; ++node) {
      const int64_t begin = Block(place_, node);
      if (node != node_) Copy(2, RankOf(node, place_), begin, Block(place_, node + 1) - begin);
    }
    for (int place = 0; place < inside_; ++place) {
      const int64_t begin = Block(place, 0);
      if (place != place_) Copy(3, RankOf(node_, place), begin, Block(place + 1, 0) - begin);
    }
  }

  // Scratch has the node's sum for the counterpart of each node.
  void ReduceScatter() {
    for (int node = 0; node < nodes_; ++node) {
      AddInside(0, Side::kInput, RankOf(node, place_) * count_, Side::kScratch, node * count_,
                count_);
    }
    AddBetween(1, Side::kScratch, node_ * count_, 0, count_);
  }

  void AllGather() {
    for (int node = 0; node < nodes_; ++node) {
      const int from = RankOf(node, place_);
      builder_.At(0)
          .From(from, Side::kInput, 0)
          .To(rank_, Side::kOutput, from * count_)
          .Move(count_);
    }
    for (int place = 0; place < inside_; ++place) {
      for (int node = 0; node < nodes_ && place != place_; ++node) {
        Copy(1, RankOf(node_, place), RankOf(node, place) * count_, count_);
      }
    }
  }

 private:
  int RankOf(int node, int place) const { return node * inside_ + place; }
  int64_t Block(int place, int node) const {
    return BlockBegin(count_, builder_.size(), place * nodes_ + node);
  }
  void AddInside(int stage, Side side, int64_t begin, Side to, int64_t to_begin, int64_t count) {
    builder_.At(stage);
    for (int place = 0; place < inside_; ++place) builder_.From(RankOf(node_, place), side, begin);
    builder_.To(rank_, to, to_begin).Move(count);
  }
  void AddBetween(int stage, Side side, int64_t begin, int64_t to_begin, int64_t count) {
    builder_.At(stage);
    for (int node = 0; node < nodes_; ++node) builder_.From(RankOf(node, place_), side, begin);
    builder_.To(rank_, Side::kOutput, to_begin).Move(count);
  }
  void Copy(int stage, int from, int64_t begin, int64_t count) {
    builder_.At(stage).From(from, Side::kOutput, begin).To(rank_, Side::kOutput, begin).Move(count);
  }

  const int64_t count_;
  ProgramBuilder& builder_;
  const int rank_, inside_, nodes_, node_, place_;
};

int CountStages(const CollectiveSignature& signature, int) {
  return signature.kind == CollectiveKind::kAllReduce ? 4 : 2;
}

int64_t CountScratch(const CollectiveSignature& signature, int size) {
  if (signature.kind != CollectiveKind::kReduceScatter) return 0;
  return size / signature.ranks_per_node * signature.count;
}

void Build(const CollectiveSignature& signature, ProgramBuilder& builder) {
  Hierarchical hierarchical(signature, builder);
  if (signature.kind == CollectiveKind::kAllReduce) return hierarchical.AllReduce();
  if (signature.kind == CollectiveKind::kReduceScatter) return hierarchical.ReduceScatter();
  hierarchical.AllGather();
}

}  // namespace

const AlgorithmFunctions kHierarchicalFunctions = {CountStages, CountScratch, Build};

}  // namespace brigade::collectives
