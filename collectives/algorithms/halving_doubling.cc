// Recursive halving and doubling over the largest power of two in the group, in 2 log2 p stages: in each, a rank
// exchanges with the one whose number differs in one bit the half of its blocks that the other goes on with. The most
// data go to the nearest ranks. Ranks beyond the power of two hand their array to a partner before, and get the result
// from it.
// Source: Thakur, Rabenseifner and Gropp, Optimization of collective communication operations in MPICH, 2005.

#include "brigade/collectives/algorithms/algorithms.h"

namespace brigade::collectives {
namespace {

// The number of ranks that halve and double.
int Core(int size) {
  int core = 1;
  while (2 * core <= size) core *= 2;
  return core;
}
int Rounds(int size) {
  int rounds = 0;
  while (Core(size) >> (rounds + 1) > 0) ++rounds;
  return rounds;
}
bool Folds(int size) { return Core(size) != size; }

// Block b of an all-reduce is a range; of the other calls it is the part of rank b and that of the rank which hands
// its own to b.
class HalvingDoubling {
 public:
  HalvingDoubling(const CallShape& shape, Writer& writer)
      : shape_(shape),
        writer_(writer),
        rank_(writer.rank()),
        core_(Core(writer.size())),
        rounds_(Rounds(writer.size())) {}

  void Write() {
    const bool reduces = shape_.kind != CallKind::kAllGather;
    const bool gathers = shape_.kind != CallKind::kReduceScatter;
    if (shape_.kind == CallKind::kAllGather) Copy(rank_, rank_);
    if (Folds(writer_.size())) {
      if (Helps(rank_)) reduces ? AddAll() : Copy(rank_ + core_, rank_ + core_);
      ++stage_;
    }
    for (int round = 0; reduces && round < rounds_; ++round, ++stage_) {
      if (InCore()) Halve(round);
    }
    for (int round = rounds_ - 1; gathers && round >= 0; --round, ++stage_) {
      if (InCore()) CopyBlocks(rank_ ^ 1 << round, core_ >> (round + 1));
    }
    if (InCore()) return;
    gathers ? CopyBlocks(rank_ - core_, core_) : Copy(rank_ - core_, rank_);
  }

 private:
  struct Place {
    Side side;
    int64_t begin;
  };

  bool InCore() const { return rank_ < core_; }
  bool Helps(int rank) const { return rank + core_ < writer_.size(); }

  // Calls visit(piece) for what `blocks` blocks of a rank of the core consist of: ranges of an all-reduce, ranks' parts
  // of the others. A rank has block rank ^ d for every d of which the first bits in the order of its exchanges are
  // 0 (halving) or the last ones (doubling): with reversed bits these are 0 to blocks - 1, those of the stage
  // before behind the older ones.
  template <typename Visit>
  void ForEachPiece(int rank, int blocks, const Visit& visit) const {
    for (int i = 0; i < blocks; ++i) {
      int distance = 0;
      for (int bit = 0; bit < rounds_; ++bit) distance |= (i >> bit & 1) << (rounds_ - 1 - bit);
      visit(rank ^ distance);
      if (shape_.kind != CallKind::kAllReduce && Helps(rank ^ distance)) {
        visit((rank ^ distance) + core_);
      }
    }
  }
  int64_t Begin(int piece) const {
    return shape_.kind == CallKind::kAllReduce ? BlockBegin(shape_.count, core_, piece)
                                               : piece * shape_.count;
  }
  int64_t Count(int piece) const {
    return shape_.kind == CallKind::kAllReduce ? Begin(piece + 1) - Begin(piece) : shape_.count;
  }
  // Where a rank of the core keeps its sum of a piece after so many rounds of halving; before the first it is its
  // input, unless it has added another's to it.
  Place Sum(int rank, int piece, int rounds) const {
    if (rounds == 0 && !Helps(rank)) return {Side::kInput, Begin(piece)};
    if (shape_.kind == CallKind::kAllReduce) return {Side::kOutput, Begin(piece)};
    if (rounds == rounds_ && piece == rank) return {Side::kOutput, 0};
    return {Side::kScratch, Begin(piece)};
  }
  // Where a rank has a piece that is complete.
  Place Complete(int rank, int piece) const {
    if (shape_.kind == CallKind::kReduceScatter) return Sum(rank, piece, rounds_);
    if (shape_.kind == CallKind::kAllGather && piece == rank) return {Side::kInput, 0};
    return {Side::kOutput, Begin(piece)};
  }

  void Add(int from, Place theirs, Place mine, int piece, Place to) {
    writer_.At(stage_)
        .From(from, theirs.side, theirs.begin)
        .From(rank_, mine.side, mine.begin)
        .To(rank_, to.side, to.begin)
        .Move(Count(piece));
  }
  void AddAll() {
    ForEachPiece(rank_, core_, [&](int piece) {
      const Place input = {Side::kInput, Begin(piece)};
      Add(rank_ + core_, input, input, piece, Sum(rank_, piece, 0));
    });
  }
  void Halve(int round) {
    const int other = rank_ ^ 1 << round;
    ForEachPiece(rank_, core_ >> (round + 1), [&](int piece) {
      Add(other, Sum(other, piece, round), Sum(rank_, piece, round), piece,
          Sum(rank_, piece, round + 1));
    });
  }
  void Copy(int from, int piece) {
    const Place source = Complete(from, piece);
    const int64_t to = shape_.kind == CallKind::kReduceScatter ? 0 : Begin(piece);
    writer_.At(stage_)
        .From(from, source.side, source.begin)
        .To(rank_, Side::kOutput, to)
        .Move(Count(piece));
  }
  void CopyBlocks(int from, int blocks) {
    ForEachPiece(from, blocks, [&](int piece) {
      if (piece != rank_ || shape_.kind == CallKind::kAllReduce) Copy(from, piece);
    });
  }

  const CallShape& shape_;
  Writer& writer_;
  const int rank_, core_, rounds_;
  int stage_ = 0;
};

int Stages(CallKind kind, int size) {
  const int halves = kind == CallKind::kAllReduce ? 2 : 1;
  return halves * Rounds(size) + (Folds(size) ? 2 : 0);
}

int64_t ScratchParts(CallKind kind, int size) {
  return kind == CallKind::kReduceScatter ? size : 0;
}

void Write(const CallShape& shape, Writer& writer) { HalvingDoubling(shape, writer).Write(); }

}  // namespace

const AlgorithmFunctions kHalvingDoublingFunctions = {Stages, ScratchParts, Write};

}  // namespace brigade::collectives
