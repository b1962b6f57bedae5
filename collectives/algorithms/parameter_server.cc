#include "brigade/collectives/algorithms/algorithms.h"

namespace brigade::collectives {
namespace {

constexpr int kServer = 0;

int CountStages(const CollectiveSignature&, int) { return 1; }
int64_t CountScratch(const CollectiveSignature&, int) { return 0; }

void Build(const CollectiveSignature& signature, ProgramBuilder& builder) {
  if (builder.rank() == kServer) builder.At(0).FromAll(0).ToAll(0).Move(signature.count);
}

}  // namespace

const AlgorithmFunctions kParameterServerFunctions = {CountStages, CountScratch, Build};

}  // namespace brigade::collectives
