// A ring in both directions. Block b belongs to rank b: half of the other ranks add to it on its
// way up to b, the rest on its way down, and both sums meet there after ceil((p - 1) / 2) stages.
// Complete blocks go back the way that they came. The bytes of a ring, in half the stages.

#include <algorithm>

#include "brigade/collectives/algorithms/algorithms.h"

namespace brigade::collectives {
namespace {

// How many ranks a block's sum crosses on its way up, which is also how many stages there are, and
// on its way down.
int Up(int size) { return size / 2; }
int Down(int size) { return (size - 1) / 2; }

struct Location {
  Side side;
  int64_t begin;
};

class BidirectionalRing {
 public:
  BidirectionalRing(const CollectiveSignature& signature, ProgramBuilder& builder)
      : signature_(signature),
        builder_(builder),
        up_(Up(builder.size())),
        down_(Down(builder.size())) {}

  void Reduce() {
    const int rank = builder_.rank(), last = up_ - 1;
    for (int stage = 0; stage < last; ++stage) {
      Pass(stage, builder_.previous(), builder_.behind(stage - last), stage, 0);
      const int step = stage - (up_ - down_);  // the shorter way begins later
      if (step >= 0) Pass(stage, builder_.next(), builder_.behind(down_ - 1 - step), step, last);
    }
    const Location from_below = Sum(rank, last - 1, 0), own = Sum(rank, -1, 0);
    const Location from_above = Sum(rank, down_ - 2, last);
    builder_.At(last)
        .From(builder_.previous(), from_below.side, from_below.begin)
        .From(rank, own.side, own.begin);
    if (down_ > 0) builder_.From(builder_.next(), from_above.side, from_above.begin);
    builder_.To(rank, Side::kOutput,
                signature_.kind == CollectiveKind::kReduceScatter ? 0 : Begin(rank));
    builder_.Move(Count(rank));
  }

  void Gather(int first) {
    const int rank = builder_.rank();
    if (signature_.kind == CollectiveKind::kAllGather) {
      builder_.At(0)
          .From(rank, Side::kInput, 0)
          .To(rank, Side::kOutput, Begin(rank))
          .Move(Count(0));
    }
    for (int step = 0; step < up_; ++step) {
      Copy(first, step, builder_.next(), builder_.behind(-step - 1));
      if (step < down_) Copy(first, step, builder_.previous(), builder_.behind(step + 1));
    }
  }

 private:
  int64_t Begin(int block) const {
    return signature_.kind == CollectiveKind::kAllReduce
               ? BlockBegin(signature_.count, builder_.size(), block)
               : block * signature_.count;
  }
  int64_t Count(int block) const {
    return signature_.kind == CollectiveKind::kAllReduce ? Begin(block + 1) - Begin(block)
                                                         : signature_.count;
  }
  // Where a rank keeps what it has added up of a block in a step of one way; before the first it is
  // its input. The scratch of a way begins at `slot`.
  Location Sum(int block, int step, int slot) const {
    if (step < 0) return {Side::kInput, Begin(block)};
    if (signature_.kind == CollectiveKind::kAllReduce) return {Side::kOutput, Begin(block)};
    return {Side::kScratch, (slot + step) * signature_.count};
  }

  void Pass(int stage, int from, int block, int step, int slot) {
    const Location before = Sum(block, step - 1, slot), own = Sum(block, -1, slot);
    const Location after = Sum(block, step, slot);
    builder_.At(stage)
        .From(from, before.side, before.begin)
        .From(builder_.rank(), own.side, own.begin)
        .To(builder_.rank(), after.side, after.begin)
        .Move(Count(block));
  }

  void Copy(int first, int step, int from, int block) {
    const bool from_input = step == 0 && signature_.kind == CollectiveKind::kAllGather;
    builder_.At(first + step)
        .From(from, from_input ? Side::kInput : Side::kOutput, from_input ? 0 : Begin(block))
        .To(builder_.rank(), Side::kOutput, Begin(block))
        .Move(Count(block));
  }

  const CollectiveSignature& signature_;
  ProgramBuilder& builder_;
  const int up_, down_;
};

int CountStages(const CollectiveSignature& signature, int size) {
  return (signature.kind == CollectiveKind::kAllReduce ? 2 : 1) * Up(size);
}

int64_t CountScratch(const CollectiveSignature& signature, int size) {
  if (signature.kind != CollectiveKind::kReduceScatter) return 0;
  return (Up(size) - 1 + std::max(Down(size) - 1, 0)) * signature.count;
}

void Build(const CollectiveSignature& signature, ProgramBuilder& builder) {
  BidirectionalRing ring(signature, builder);
  if (signature.kind != CollectiveKind::kAllGather) ring.Reduce();
  if (signature.kind != CollectiveKind::kReduceScatter) {
    ring.Gather(signature.kind == CollectiveKind::kAllReduce ? Up(builder.size()) : 0);
  }
}

}  // namespace

const AlgorithmFunctions kBidirectionalRingFunctions = {CountStages, CountScratch, Build};

}  // namespace brigade::collectives
