// Recursive halving and doubling among as many ranks as the largest power of two in the group, in
// 2 log2 p stages: in each, a rank exchanges with the one whose number differs in one bit the half
// of its blocks that the other goes on with. The most data go to the nearest ranks. The ranks
// beyond the power of two are folded: each hands its array to a partner before, and gets the result
// from it. Source: Thakur, Rabenseifner and Gropp, Optimization of collective communication
// operations in MPICH, 2005.

#include "brigade/collectives/algorithms/algorithms.h"

namespace brigade::collectives {
namespace {

// The number of ranks that halve and double, the largest power of two in the group; the others are
// folded.
int PowerOfTwo(int size) {
  int power = 1;
  while (2 * power <= size) power *= 2;
  return power;
}
int Rounds(int size) {
  int rounds = 0;
  while (PowerOfTwo(size) >> (rounds + 1) > 0) ++rounds;
  return rounds;
}
bool AnyFolded(int size) { return PowerOfTwo(size) != size; }

// Block b of an all-reduce is a range; of the other calls it is the part of rank b and that of the
// rank which hands its own to b.
class HalvingDoubling {
 public:
  HalvingDoubling(const CollectiveSignature& signature, ProgramBuilder& builder)
      : signature_(signature),
        builder_(builder),
        rank_(builder.rank()),
        power_of_two_(PowerOfTwo(builder.size())),
        rounds_(Rounds(builder.size())) {}

  void Build() {
    const bool reduces = signature_.kind != CollectiveKind::kAllGather;
    const bool gathers = signature_.kind != CollectiveKind::kReduceScatter;
    if (signature_.kind == CollectiveKind::kAllGather) Copy(rank_, rank_);
    if (AnyFolded(builder_.size())) {
      if (HasFoldedPartner(rank_))
        reduces ? AddAll() : Copy(rank_ + power_of_two_, rank_ + power_of_two_);
      ++stage_;
    }
    for (int round = 0; reduces && round < rounds_; ++round, ++stage_) {
      if (!IsFolded()) Halve(round);
    }
    for (int round = rounds_ - 1; gathers && round >= 0; --round, ++stage_) {
      if (!IsFolded()) CopyBlocks(rank_ ^ 1 << round, power_of_two_ >> (round + 1));
    }
    if (!IsFolded()) return;
    gathers ? CopyBlocks(rank_ - power_of_two_, power_of_two_) : Copy(rank_ - power_of_two_, rank_);
  }

 private:
  struct Location {
    Side side;
    int64_t begin;
  };

  bool IsFolded() const { return rank_ >= power_of_two_; }
  // Whether another rank is folded into this one.
  bool HasFoldedPartner(int rank) const { return rank + power_of_two_ < builder_.size(); }

  // Calls visit(piece) for what `blocks` blocks of a rank that is not folded consist of: ranges of
  // an all-reduce, ranks' parts of the others. A rank has block rank ^ d for every d of which the
  // first bits in the order of its exchanges are 0 (halving) or the last ones (doubling): with
  // reversed bits these are 0 to blocks - 1, those of the stage before behind the older ones.
  template <typename Visit>
  void ForEachPiece(int rank, int blocks, const Visit& visit) const {
    for (int i = 0; i < blocks; ++i) {
      int distance = 0;
      for (int bit = 0; bit < rounds_; ++bit) distance |= (i >> bit & 1) << (rounds_ - 1 - bit);
      visit(rank ^ distance);
      if (signature_.kind != CollectiveKind::kAllReduce && HasFoldedPartner(rank ^ distance)) {
        visit((rank ^ distance) + power_of_two_);
      }
    }
  }
  int64_t Begin(int piece) const {
    return signature_.kind == CollectiveKind::kAllReduce
               ? BlockBegin(signature_.count, power_of_two_, piece)
               : piece * signature_.count;
  }
  int64_t Count(int piece) const {
    return signature_.kind == CollectiveKind::kAllReduce ? Begin(piece + 1) - Begin(piece)
                                                         : signature_.count;
  }
  // Where a rank that is not folded keeps its sum of a piece after so many rounds of halving;
  // before the first it is its input, unless it has added its partner's to it.
  Location Sum(int rank, int piece, int rounds) const {
    if (rounds == 0 && !HasFoldedPartner(rank)) return {Side::kInput, Begin(piece)};
    if (signature_.kind == CollectiveKind::kAllReduce) return {Side::kOutput, Begin(piece)};
    if (rounds == rounds_ && piece == rank) return {Side::kOutput, 0};
    return {Side::kScratch, Begin(piece)};
  }
  // Where a rank has a piece that is complete.
  Location Complete(int rank, int piece) const {
    if (signature_.kind == CollectiveKind::kReduceScatter) return Sum(rank, piece, rounds_);
    if (signature_.kind == CollectiveKind::kAllGather && piece == rank) return {Side::kInput, 0};
    return {Side::kOutput, Begin(piece)};
  }

  void Add(int from, Location theirs, Location mine, int piece, Location to) {
    builder_.At(stage_)
        .From(from, theirs.side, theirs.begin)
        .From(rank_, mine.side, mine.begin)
        .To(rank_, to.side, to.begin)
        .Move(Count(piece));
  }
  void AddAll() {
    ForEachPiece(rank_, power_of_two_, [&](int piece) {
      const Location input = {Side::kInput, Begin(piece)};
      Add(rank_ + power_of_two_, input, input, piece, Sum(rank_, piece, 0));
    });
  }
  void Halve(int round) {
    const int other = rank_ ^ 1 << round;
    ForEachPiece(rank_, power_of_two_ >> (round + 1), [&](int piece) {
      Add(other, Sum(other, piece, round), Sum(rank_, piece, round), piece,
          Sum(rank_, piece, round + 1));
    });
  }
  void Copy(int from, int piece) {
    const Location source = Complete(from, piece);
    const int64_t to = signature_.kind == CollectiveKind::kReduceScatter ? 0 : Begin(piece);
    builder_.At(stage_)
        .From(from, source.side, source.begin)
        .To(rank_, Side::kOutput, to)
        .Move(Count(piece));
  }
  void CopyBlocks(int from, int blocks) {
    ForEachPiece(from, blocks, [&](int piece) {
      if (piece != rank_ || signature_.kind == CollectiveKind::kAllReduce) Copy(from, piece);
    });
  }

  const CollectiveSignature& signature_;
  ProgramBuilder& builder_;
  const int rank_, power_of_two_, rounds_;
  int stage_ = 0;
};

int CountStages(const CollectiveSignature& signature, int size) {
  const int halves = signature.kind == CollectiveKind::kAllReduce ? 2 : 1;
  return halves * Rounds(size) + (AnyFolded(size) ? 2 : 0);
}

int64_t CountScratch(const CollectiveSignature& signature, int size) {
  if (signature.kind != CollectiveKind::kReduceScatter) return 0;
  return size * signature.count;
}

void Build(const CollectiveSignature& signature, ProgramBuilder& builder) {
  HalvingDoubling(signature, builder).Build();
}

}  // namespace

const AlgorithmFunctions kHalvingDoublingFunctions = {CountStages, CountScratch, Build};

}  // namespace brigade::collectives
