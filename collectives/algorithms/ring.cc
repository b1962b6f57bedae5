// Source: Patarasuk and Yuan, Bandwidth optimal all-reduce algorithms, 2009.

#include "brigade/collectives/algorithms/algorithms.h"

namespace brigade::collectives {
namespace {

// In stage s a rank adds its own part to what the previous one has gathered of block rank - s - 1,
// and hands it on; after p - 1 stages block rank + 1 is complete. Then complete blocks go on
// from rank to rank.
void AllReduce(const CollectiveSignature& signature, ProgramBuilder& builder) {
  const int rounds = builder.size() - 1;
  const auto begin = [&](int block) { return BlockBegin(signature.count, builder.size(), block); };
  const auto move = [&](int block) { builder.Move(begin(block + 1) - begin(block)); };
  for (int s = 0; s < rounds; ++s) {
    const int block = builder.behind(s + 1);
    builder.At(s)
        .From(builder.previous(), s == 0 ? Side::kInput : Side::kOutput, begin(block))
        .From(builder.rank(), Side::kInput, begin(block))
        .To(builder.rank(), Side::kOutput, begin(block));
    move(block);
  }
  for (int s = 0; s < rounds; ++s) {
    const int block = builder.behind(s);
    builder.At(rounds + s)
        .From(builder.previous(), Side::kOutput, begin(block))
        .To(builder.rank(), Side::kOutput, begin(block));
    move(block);
  }
}

// The same, shifted by one so that a rank ends with its own block. What is gathered on the way lies
// in scratch, each block in a place of its own: by messages a rank learns that one was read only
// when its own has come round.
void ReduceScatter(const CollectiveSignature& signature, ProgramBuilder& builder) {
  const int64_t count = signature.count;
  const int last = builder.size() - 2;
  for (int s = 0; s <= last; ++s) {
    const int64_t begin = builder.behind(s + 2) * count;
    builder.At(s)
        .From(builder.previous(), s == 0 ? Side::kInput : Side::kScratch,
              s == 0 ? begin : (s - 1) * count)
        .From(builder.rank(), Side::kInput, begin)
        .To(builder.rank(), s == last ? Side::kOutput : Side::kScratch, s == last ? 0 : s * count)
        .Move(count);
  }
}

void AllGather(const CollectiveSignature& signature, ProgramBuilder& builder) {
  const int64_t count = signature.count;
  const int rank = builder.rank();
  builder.At(0).From(rank, Side::kInput, 0).To(rank, Side::kOutput, rank * count).Move(count);
  for (int s = 0; s < builder.size() - 1; ++s) {
    const int64_t begin = builder.behind(s + 1) * count;
    builder.At(s)
        .From(builder.previous(), s == 0 ? Side::kInput : Side::kOutput, s == 0 ? 0 : begin)
        .To(rank, Side::kOutput, begin)
        .Move(count);
  }
}

int CountStages(const CollectiveSignature& signature, int size) {
  return signature.kind == CollectiveKind::kAllReduce ? 2 * (size - 1) : size - 1;
}

int64_t CountScratch(const CollectiveSignature& signature, int size) {
  if (signature.kind != CollectiveKind::kReduceScatter) return 0;
  return (size - 2) * signature.count;
}

void Build(const CollectiveSignature& signature, ProgramBuilder& builder) {
  if (signature.kind == CollectiveKind::kAllReduce) return AllReduce(signature, builder);
  if (signature.kind == CollectiveKind::kReduceScatter) return ReduceScatter(signature, builder);
  AllGather(signature, builder);
}

}  // namespace

const AlgorithmFunctions kRingFunctions = {CountStages, CountScratch, Build};

}  // namespace brigade::collectives
