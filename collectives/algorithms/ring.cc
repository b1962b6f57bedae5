// Source: Patarasuk and Yuan, Bandwidth optimal all-reduce algorithms, 2009.

#include "brigade/collectives/algorithms/algorithms.h"

namespace brigade::collectives {
namespace {

// In stage s a rank adds its own part to what the previous one has gathered of block rank - s - 1, and hands it
// on; after p - 1 stages block rank + 1 is complete. Then complete blocks go round.
void AllReduce(const CallShape& shape, Writer& writer) {
  const int rounds = writer.size() - 1;
  const auto begin = [&](int block) { return BlockBegin(shape.count, writer.size(), block); };
  const auto move = [&](int block) { writer.Move(begin(block + 1) - begin(block)); };
  for (int s = 0; s < rounds; ++s) {
    const int block = writer.behind(s + 1);
    writer.At(s)
        .From(writer.previous(), s == 0 ? Side::kInput : Side::kOutput, begin(block))
        .From(writer.rank(), Side::kInput, begin(block))
        .To(writer.rank(), Side::kOutput, begin(block));
    move(block);
  }
  for (int s = 0; s < rounds; ++s) {
    const int block = writer.behind(s);
    writer.At(rounds + s)
        .From(writer.previous(), Side::kOutput, begin(block))
        .To(writer.rank(), Side::kOutput, begin(block));
    move(block);
  }
}

// The same, shifted by one so that a rank ends with its own block. What is gathered on the way lies in scratch, each
// block in a place of its own: by messages a rank learns that one was read only when its own has come round.
void ReduceScatter(const CallShape& shape, Writer& writer) {
  const int64_t count = shape.count;
  const int last = writer.size() - 2;
  for (int s = 0; s <= last; ++s) {
    const int64_t begin = writer.behind(s + 2) * count;
    writer.At(s)
        .From(writer.previous(), s == 0 ? Side::kInput : Side::kScratch,
              s == 0 ? begin : (s - 1) * count)
        .From(writer.rank(), Side::kInput, begin)
        .To(writer.rank(), s == last ? Side::kOutput : Side::kScratch, s == last ? 0 : s * count)
        .Move(count);
  }
}

void AllGather(const CallShape& shape, Writer& writer) {
  const int64_t count = shape.count;
  const int rank = writer.rank();
  writer.At(0).From(rank, Side::kInput, 0).To(rank, Side::kOutput, rank * count).Move(count);
  for (int s = 0; s < writer.size() - 1; ++s) {
    const int64_t begin = writer.behind(s + 1) * count;
    writer.At(s)
        .From(writer.previous(), s == 0 ? Side::kInput : Side::kOutput, s == 0 ? 0 : begin)
        .To(rank, Side::kOutput, begin)
        .Move(count);
  }
}

int Stages(CallKind kind, int size) {
  return kind == CallKind::kAllReduce ? 2 * (size - 1) : size - 1;
}

int64_t ScratchParts(CallKind kind, int size) {
  return kind == CallKind::kReduceScatter ? size - 2 : 0;
}

void Write(const CallShape& shape, Writer& writer) {
  if (shape.kind == CallKind::kAllReduce) return AllReduce(shape, writer);
  if (shape.kind == CallKind::kReduceScatter) return ReduceScatter(shape, writer);
  AllGather(shape, writer);
}

}  // namespace

const AlgorithmFunctions kRingFunctions = {Stages, ScratchParts, Write};

}  // namespace brigade::collectives
