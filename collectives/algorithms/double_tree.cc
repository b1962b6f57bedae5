// An all-reduce over two binary trees, each with half of the data: sums go up to a root and results
// come down. The ranks inside one tree are leaves of the other, so that all send and receive alike:
// at most 2 n of an array of n, in as many steps as the trees are deep. A half goes in chunks that
// follow each other: a rank works on chunk c + 1 one stage after chunk c. On nodes of several ranks
// each rank does this with its counterparts, the ranks that have its place in the other nodes, for
// a share of the data; its node adds up the shares before (stage 0) and exchanges them afterwards.
//
// Stage and chunk of 4 ranks, by which the first tree adds (+) and copies (<) two chunks: 3 is the
// root, 1 its child, and 0 and 2 are the children of 1. The second tree is its mirror image.
//
//   stage    0     1     2     3     4
//   rank 0                     <0    <1
//   rank 1   +0    +1    <0    <1
//   rank 2                     <0    <1
//   rank 3         +0    +1
//
// A rank at depth d of a tree with depth D adds chunk c in stage D - d - 1 + c, and copies it in
// stage D + d - 1 + c.
//
// Source: Sanders, Speck and Traeff, Two-tree algorithms for full bandwidth broadcast, reduction
// and scan, 2009.

#include <algorithm>

#include "brigade/collectives/algorithms/algorithms.h"

namespace brigade::collectives {
namespace {

// Of a half, so that what a chunk costs beside its bytes is little. Untuned.
constexpr int64_t kChunkBytes = 256 << 10;
constexpr int64_t kMostChunks = 32;

// Ranks of a node that take shares. One node is no hierarchy: its ranks are the trees' members.
int Inside(const CollectiveSignature& signature, int size) {
  return signature.ranks_per_node == size ? 1 : signature.ranks_per_node;
}
int Nodes(const CollectiveSignature& signature, int size) { return size / Inside(signature, size); }
int Depth(int members) {
  int depth = 0;
  while (members >> (depth + 1) > 0) ++depth;
  return depth;
}
// Of each half of a share.
int Chunks(const CollectiveSignature& signature, int size) {
  const int64_t share = signature.count / Inside(signature, size);
  const int64_t bytes = share * precision::SizeOf(PartialType(signature)) / 2;
  return static_cast<int>(std::clamp<int64_t>(bytes / kChunkBytes, 1, kMostChunks));
}

// One of the two trees over members 0 to m - 1. Members have positions 1 to m, in order from left
// to right. The odd ones are leaves. Below position p, whose lowest bit is b, are the positions
// from p - b + 1 to p + b - 1.
class Tree {
 public:
  Tree(int members, bool second) : members_(members), second_(second) {}

  int Position(int member) const {
    if (!second_) return member + 1;
    return members_ % 2 == 0 ? members_ - member : (member + 1) % members_ + 1;
  }
  int Member(int position) const {
    if (!second_) return position - 1;
    return members_ % 2 == 0 ? members_ - position : (position + members_ - 2) % members_;
  }

  // 0 for the root, or where there is no such child.
  int Parent(int position) const {
    for (int at = position, bit = LowestBit(at); bit <= members_; bit *= 2) {
      at = (at & ~bit) | (2 * bit);
      if (at <= members_) return at;
    }
    return 0;
  }
  static int LeftChild(int position) {
    return IsLeaf(position) ? 0 : position - LowestBit(position) / 2;
  }
  int RightChild(int position) const {
    for (int bit = LowestBit(position) / 2; bit > 0; bit /= 2) {
      if (position + bit <= members_) return position + bit;
    }
    return 0;
  }
  static bool IsLeaf(int position) { return position % 2 == 1; }
  int DepthOf(int position) const {
    const int parent = Parent(position);
    return parent == 0 ? 0 : 1 + DepthOf(parent);
  }

 private:
  static int LowestBit(int value) { return value & -value; }

  const int members_;
  const bool second_;
};

class DoubleTree {
 public:
  DoubleTree(const CollectiveSignature& signature, ProgramBuilder& builder)
      : count_(signature.count),
        builder_(builder),
        rank_(builder.rank()),
        inside_(Inside(signature, builder.size())),
        nodes_(Nodes(signature, builder.size())),
        depth_(Depth(nodes_)),
        chunks_(Chunks(signature, builder.size())),
        place_(rank_ % inside_),
        trees_{Tree(nodes_, false), Tree(nodes_, true)} {}

  void Build() {
    if (inside_ > 1) AddShare();
    for (int step = 0; step < 2 * depth_ + chunks_ - 1; ++step, ++stage_) {
      for (const int tree : {0, 1}) Add(tree, step);
      for (const int tree : {0, 1}) Copy(tree, step);
    }
    if (inside_ > 1) CopyShares();
  }

 private:
  int64_t Share(int place) const { return BlockBegin(count_, inside_, place); }
  int FirstOfNode() const { return rank_ - place_; }

  void AddShare() {
    const int64_t begin = Share(place_);
    builder_.At(stage_++);
    for (int place = 0; place < inside_; ++place) {
      builder_.From(FirstOfNode() + place, Side::kInput, begin);
    }
    builder_.To(rank_, Side::kOutput, begin).Move(Share(place_ + 1) - begin);
  }

  void CopyShares() {
    for (int place = 0; place < inside_; ++place) {
      if (place == place_) continue;
      const int64_t begin = Share(place);
      builder_.At(stage_)
          .From(FirstOfNode() + place, Side::kOutput, begin)
          .To(rank_, Side::kOutput, begin)
          .Move(Share(place + 1) - begin);
    }
  }

  int64_t ChunkBegin(int tree, int chunk) const {
    const int64_t share = Share(place_);
    return share + BlockBegin(Share(place_ + 1) - share, 2 * chunks_, tree * chunks_ + chunk);
  }
  int64_t ChunkCount(int tree, int chunk) const {
    return ChunkBegin(tree, chunk + 1) - ChunkBegin(tree, chunk);
  }
  int RankAt(int tree, int position) const {
    return trees_[tree].Member(position) * inside_ + place_;
  }
  // What a member gives by itself.
  Part Own(int rank, int64_t begin) const {
    return {rank, inside_ > 1 ? Side::kOutput : Side::kInput, begin};
  }
  // The sum of all below a position.
  Part Sum(int tree, int position, int64_t begin) const {
    const int rank = RankAt(tree, position);
    return Tree::IsLeaf(position) ? Own(rank, begin) : Part{rank, Side::kOutput, begin};
  }

  void Add(int tree, int step) {
    const int position = trees_[tree].Position(rank_ / inside_);
    const int chunk = step - (depth_ - trees_[tree].DepthOf(position) - 1);
    if (Tree::IsLeaf(position) || chunk < 0 || chunk >= chunks_) return;
    const int64_t begin = ChunkBegin(tree, chunk);
    const int right = trees_[tree].RightChild(position);
    builder_.At(stage_).From(Sum(tree, Tree::LeftChild(position), begin)).From(Own(rank_, begin));
    if (right != 0) builder_.From(Sum(tree, right, begin));
    builder_.To(rank_, Side::kOutput, begin).Move(ChunkCount(tree, chunk));
  }

  void Copy(int tree, int step) {
    const int position = trees_[tree].Position(rank_ / inside_);
    const int parent = trees_[tree].Parent(position);
    const int chunk = step - (depth_ + trees_[tree].DepthOf(position) - 1);
    if (parent == 0 || chunk < 0 || chunk >= chunks_) return;
    const int64_t begin = ChunkBegin(tree, chunk);
    builder_.At(stage_)
        .From(RankAt(tree, parent), Side::kOutput, begin)
        .To(rank_, Side::kOutput, begin)
        .Move(ChunkCount(tree, chunk));
  }

  const int64_t count_;
  ProgramBuilder& builder_;
  const int rank_, inside_, nodes_, depth_, chunks_, place_;
  const Tree trees_[2];
  int stage_ = 0;
};

int CountStages(const CollectiveSignature& signature, int size) {
  const int levels = Inside(signature, size) > 1 ? 2 : 0;
  return levels + 2 * Depth(Nodes(signature, size)) + Chunks(signature, size) - 1;
}

int64_t CountScratch(const CollectiveSignature&, int) { return 0; }

void Build(const CollectiveSignature& signature, ProgramBuilder& builder) {
  DoubleTree(signature, builder).Build();
}

}  // namespace

const AlgorithmFunctions kDoubleTreeFunctions = {CountStages, CountScratch, Build};

}  // namespace brigade::collectives
