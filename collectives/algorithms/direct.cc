#include "brigade/collectives/algorithms/algorithms.h"

namespace brigade::collectives {
namespace {

int CountStages(const CollectiveSignature&, int) { return 1; }
int64_t CountScratch(const CollectiveSignature&, int) { return 0; }

void Build(const CollectiveSignature& signature, ProgramBuilder& builder) {
  const int rank = builder.rank();
  const int64_t count = signature.count;
  switch (signature.kind) {
    case CollectiveKind::kAllReduce: {
      const int64_t begin = BlockBegin(count, builder.size(), rank);
      const int64_t end = BlockBegin(count, builder.size(), rank + 1);
      builder.At(0).FromAll(begin).ToAll(begin).Move(end - begin);
      return;
    }
    case CollectiveKind::kReduceScatter:
      builder.At(0).FromAll(rank * count).To(rank, Side::kOutput, 0).Move(count);
      return;
    case CollectiveKind::kAllGather:
      builder.At(0).From(rank, Side::kInput, 0).ToAll(rank * count).Move(count);
      return;
    case CollectiveKind::kAllToAll:
      for (int from = 0; from < builder.size(); ++from) {
        builder.At(0)
            .From(from, Side::kInput, rank * count)
            .To(rank, Side::kOutput, from * count)
            .Move(count);
      }
      return;
    case CollectiveKind::kShift:
      builder.At(0)
          .From(builder.behind(signature.root), Side::kInput, 0)
          .To(rank, Side::kOutput, 0)
          .Move(count);
      return;
    case CollectiveKind::kBroadcast:
      builder.At(0).From(signature.root, Side::kInput, 0).To(rank, Side::kOutput, 0).Move(count);
      return;
    default:
      return;
  }
}

}  // namespace

const AlgorithmFunctions kDirectFunctions = {CountStages, CountScratch, Build};

}  // namespace brigade::collectives
