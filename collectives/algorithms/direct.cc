#include "brigade/collectives/algorithms/algorithms.h"

namespace brigade::collectives {
namespace {

int Stages(CallKind, int) { return 1; }
int64_t ScratchParts(CallKind, int) { return 0; }

void Write(const CallShape& shape, Writer& writer) {
  const int rank = writer.rank();
  const int64_t count = shape.count;
  switch (shape.kind) {
    case CallKind::kAllReduce: {
      const int64_t begin = BlockBegin(count, writer.size(), rank);
      const int64_t end = BlockBegin(count, writer.size(), rank + 1);
      writer.At(0).FromAll(begin).ToAll(begin).Move(end - begin);
      return;
    }
    case CallKind::kReduceScatter:
      writer.At(0).FromAll(rank * count).To(rank, Side::kOutput, 0).Move(count);
      return;
    case CallKind::kAllGather:
      writer.At(0).From(rank, Side::kInput, 0).ToAll(rank * count).Move(count);
      return;
    case CallKind::kAllToAll:
      for (int from = 0; from < writer.size(); ++from) {
        writer.At(0)
            .From(from, Side::kInput, rank * count)
            .To(rank, Side::kOutput, from * count)
            .Move(count);
      }
      return;
    case CallKind::kBroadcast:
      writer.At(0).From(shape.root, Side::kInput, 0).To(rank, Side::kOutput, 0).Move(count);
      return;
    default:
      return;
  }
}

}  // namespace

const AlgorithmFunctions kDirectFunctions = {Stages, ScratchParts, Write};

}  // namespace brigade::collectives
