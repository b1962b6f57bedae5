#include "brigade/collectives/algorithms/program.h"

#include <algorithm>

#include "brigade/collectives/algorithms/algorithms.h"

namespace brigade::collectives {
namespace {

const AlgorithmFunctions& FunctionsOf(const CollectiveSignature& signature, int size) {
  if (!HasAlgorithms(signature.kind) || size == 1) return kDirectFunctions;
  switch (signature.algorithm) {
    case Algorithm::kAuto:
    case Algorithm::kDirect:
      break;
    case Algorithm::kRing:
    case Algorithm::kNative:  // to be counted: engines that have one carry no program out
      return kRingFunctions;
    case Algorithm::kBidirectionalRing:
      return kBidirectionalRingFunctions;
    case Algorithm::kHalvingDoubling:
      return kHalvingDoublingFunctions;
    case Algorithm::kHierarchical:
      return kHierarchicalFunctions;
    case Algorithm::kDoubleTree:
      return kDoubleTreeFunctions;
    case Algorithm::kParameterServer:
      return kParameterServerFunctions;
  }
  return kDirectFunctions;
}

bool HasFp32Partials(const CollectiveSignature& signature, int size) {
  return size > 1 && PartialType(signature) != signature.dtype;
}

}  // namespace

int64_t BlockBegin(int64_t count, int blocks, int block) {
  constexpr int64_t kUnit = 16;
  if (block == blocks) return count;
  const int64_t units = (count + kUnit - 1) / kUnit;
  const int64_t each = units / blocks, more = units % blocks;  // the first `more` have one more
  return std::min(count, (block * each + std::min<int64_t>(block, more)) * kUnit);
}

int Stages(const CollectiveSignature& signature, int size) {
  const AlgorithmFunctions& algorithm = FunctionsOf(signature, size);
  return HasFp32Partials(signature, size) ? Fp32PartialsStages(algorithm, signature, size)
                                          : algorithm.stages(signature, size);
}

int64_t ScratchElements(const CollectiveSignature& signature, int size) {
  const AlgorithmFunctions& algorithm = FunctionsOf(signature, size);
  return HasFp32Partials(signature, size) ? Fp32PartialsScratch(algorithm, signature, size)
                                          : algorithm.scratch_elements(signature, size);
}

int64_t ScratchBytes(const CollectiveSignature& signature, int size) {
  return ScratchElements(signature, size) * precision::SizeOf(PartialType(signature));
}

void ForEachInstruction(const CollectiveSignature& signature, int rank, int size,
                        absl::FunctionRef<void(const Instruction&)> visit) {
  ProgramBuilder builder(rank, size, visit);
  const AlgorithmFunctions& algorithm = FunctionsOf(signature, size);
  if (HasFp32Partials(signature, size)) {
    BuildFp32Partials(algorithm, signature, builder);
  } else {
    algorithm.build(signature, builder);
  }
}

void Program::Build(const CollectiveSignature& signature, int size) {
  if (signature == signature_ && size == size_) return;
  signature_ = signature;
  size_ = size;
  stages_ = Stages(signature, size);
  parts_.clear();
  entries_.clear();
  begins_.clear();
  const bool all_meet = signature.kind == CollectiveKind::kBarrier;
  partners_.assign(static_cast<size_t>(size * size), all_meet ? 1 : 0);
  for (int rank = 0; rank < size; ++rank) {
    const auto add = [&](absl::Span<const Part> parts) {
      for (const Part& part : parts) {
        parts_.push_back(part);
        partners_[static_cast<size_t>(rank * size + part.rank)] = 1;
        partners_[static_cast<size_t>(part.rank * size + rank)] = 1;
      }
    };
    begins_.push_back(entries_.size());
    ForEachInstruction(signature, rank, size, [&](const Instruction& instruction) {
      while (begins_.size() <= static_cast<size_t>(rank * stages_ + instruction.stage)) {
        begins_.push_back(entries_.size());
      }
      Entry entry = {instruction.stage, parts_.size(), 0, 0, instruction.count};
      add(instruction.sources);
      entry.targets = parts_.size();
      add(instruction.targets);
      entry.end = parts_.size();
      entries_.push_back(entry);
    });
    begins_.resize(static_cast<size_t>((rank + 1) * stages_), entries_.size());
  }
  begins_.push_back(entries_.size());
  for (int rank = 0; rank < size; ++rank) partners_[static_cast<size_t>(rank * size + rank)] = 0;
}

void CountWireElements(const CollectiveSignature& signature, int rank,
                       absl::Span<int64_t> elements) {
  const int size = static_cast<int>(elements.size());
  for (int owner = 0; owner < size; ++owner) {
    ForEachInstruction(signature, owner, size, [&](const Instruction& instruction) {
      if (owner == rank) {
        for (const Part& target : instruction.targets) {
          if (target.rank != rank) elements[target.rank] += instruction.count;
        }
      } else {
        for (const Part& source : instruction.sources) {
          if (source.rank == rank) elements[owner] += instruction.count;
        }
      }
    });
  }
}

}  // namespace brigade::collectives
