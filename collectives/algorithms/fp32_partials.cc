// Sums of 16-bit inputs whose partial sums are fp32: a rank widens its input into scratch, the
// algorithm's own program runs there in place, and a rank rounds what it gets. So every algorithm
// has this level, with its order of additions.

#include "brigade/collectives/algorithms/algorithms.h"

namespace brigade::collectives {
namespace {

// Where the program for fp32 arrays in place keeps what the call's program calls `part`: the input
// comes first, a reduce-scatter's output lies in it, and the program's own scratch follows.
Part InScratch(const CollectiveSignature& signature, int size, const Part& part) {
  const bool scatters = signature.kind == CollectiveKind::kReduceScatter;
  int64_t begin = part.begin;
  if (part.side == Side::kScratch) begin += InputElements(signature, part.rank, size);
  if (part.side == Side::kOutput && scatters) begin += part.rank * signature.count;
  return {part.rank, Side::kScratch, begin};
}

}  // namespace

int Fp32PartialsStages(const AlgorithmFunctions& algorithm, const CollectiveSignature& signature,
                       int size) {
  return 1 + algorithm.stages(signature, size) + 1;
}

int64_t Fp32PartialsScratch(const AlgorithmFunctions& algorithm,
                            const CollectiveSignature& signature, int size) {
  return InputElements(signature, 0, size) + algorithm.scratch_elements(signature, size);
}

void BuildFp32Partials(const AlgorithmFunctions& algorithm, const CollectiveSignature& signature,
                       ProgramBuilder& builder) {
  const int rank = builder.rank(), size = builder.size();
  const auto in_scratch = [&](const Part& part) { return InScratch(signature, size, part); };
  builder.At(0)
      .From(rank, Side::kInput, 0)
      .To(rank, Side::kScratch, 0)
      .Move(InputElements(signature, rank, size));
  const auto move = [&](const Instruction& instruction) {
    builder.At(1 + instruction.stage);
    for (const Part& source : instruction.sources) builder.From(in_scratch(source));
    for (const Part& target : instruction.targets) builder.To(in_scratch(target));
    builder.Move(instruction.count);
  };
  ProgramBuilder inner(rank, size, move);
  algorithm.build(signature, inner);
  builder.At(1 + algorithm.stages(signature, size))
      .From(in_scratch({rank, Side::kOutput, 0}))
      .To(rank, Side::kOutput, 0)
      .Move(signature.count);
}

}  // namespace brigade::collectives
