// A ring in both directions. Block b belongs to rank b: half of the other ranks add to it on its way up to b, the rest on
// its way down, and both sums meet there after ceil((p - 1) / 2) stages. Complete blocks go back the way that they
// came. The bytes of a ring, in half the stages.

#include <algorithm>

#include "brigade/collectives/algorithms/algorithms.h"

namespace brigade::collectives {
namespace {

// How many ranks a block's sum crosses on its way up, which is also how many stages there are, and on its way down.
int Up(int size) { return size / 2; }
int Down(int size) { return (size - 1) / 2; }

struct Place {
  Side side;
  int64_t begin;
};

class BidirectionalRing {
 public:
  BidirectionalRing(const CallShape& shape, Writer& writer)
      : shape_(shape), writer_(writer), up_(Up(writer.size())), down_(Down(writer.size())) {}

  void Reduce() {
    const int rank = writer_.rank(), last = up_ - 1;
    for (int stage = 0; stage < last; ++stage) {
      Pass(stage, writer_.previous(), writer_.behind(stage - last), stage, 0);
      const int step = stage - (up_ - down_);  // the shorter way begins later
      if (step >= 0) Pass(stage, writer_.next(), writer_.behind(down_ - 1 - step), step, last);
    }
    const Place from_below = Sum(rank, last - 1, 0), own = Sum(rank, -1, 0);
    const Place from_above = Sum(rank, down_ - 2, last);
    writer_.At(last)
        .From(writer_.previous(), from_below.side, from_below.begin)
        .From(rank, own.side, own.begin);
    if (down_ > 0) writer_.From(writer_.next(), from_above.side, from_above.begin);
    writer_.To(rank, Side::kOutput, shape_.kind == CallKind::kReduceScatter ? 0 : Begin(rank));
    writer_.Move(Count(rank));
  }

  void Gather(int first) {
    const int rank = writer_.rank();
    if (shape_.kind == CallKind::kAllGather) {
      writer_.At(0).From(rank, Side::kInput, 0).To(rank, Side::kOutput, Begin(rank)).Move(Count(0));
    }
    for (int step = 0; step < up_; ++step) {
      Copy(first, step, writer_.next(), writer_.behind(-step - 1));
      if (step < down_) Copy(first, step, writer_.previous(), writer_.behind(step + 1));
    }
  }

 private:
  int64_t Begin(int block) const {
    return shape_.kind == CallKind::kAllReduce ? BlockBegin(shape_.count, writer_.size(), block)
                                               : block * shape_.count;
  }
  int64_t Count(int block) const {
    return shape_.kind == CallKind::kAllReduce ? Begin(block + 1) - Begin(block) : shape_.count;
  }
  // Where a rank keeps what it has added up of a block in a step of one way; before the first it is its input. The
  // scratch of a way begins at `slot`.
  Place Sum(int block, int step, int slot) const {
    if (step < 0) return {Side::kInput, Begin(block)};
    if (shape_.kind == CallKind::kAllReduce) return {Side::kOutput, Begin(block)};
    return {Side::kScratch, (slot + step) * shape_.count};
  }

  void Pass(int stage, int from, int block, int step, int slot) {
    const Place before = Sum(block, step - 1, slot), own = Sum(block, -1, slot);
    const Place after = Sum(block, step, slot);
    writer_.At(stage)
        .From(from, before.side, before.begin)
        .From(writer_.rank(), own.side, own.begin)
        .To(writer_.rank(), after.side, after.begin)
        .Move(Count(block));
  }

  void Copy(int first, int step, int from, int block) {
    const bool from_input = step == 0 && shape_.kind == CallKind::kAllGather;
    writer_.At(first + step)
        .From(from, from_input ? Side::kInput : Side::kOutput, from_input ? 0 : Begin(block))
        .To(writer_.rank(), Side::kOutput, Begin(block))
        .Move(Count(block));
  }

  const CallShape& shape_;
  Writer& writer_;
  const int up_, down_;
};

int Stages(CallKind kind, int size) { return (kind == CallKind::kAllReduce ? 2 : 1) * Up(size); }

int64_t ScratchParts(CallKind kind, int size) {
  return kind == CallKind::kReduceScatter ? Up(size) - 1 + std::max(Down(size) - 1, 0) : 0;
}

void Write(const CallShape& shape, Writer& writer) {
  BidirectionalRing ring(shape, writer);
  if (shape.kind != CallKind::kAllGather) ring.Reduce();
  if (shape.kind != CallKind::kReduceScatter) {
    ring.Gather(shape.kind == CallKind::kAllReduce ? Up(writer.size()) : 0);
  }
}

}  // namespace

const AlgorithmFunctions kBidirectionalRingFunctions = {Stages, ScratchParts, Write};

}  // namespace brigade::collectives
