#include "brigade/collectives/algorithms/workspace.h"

#include "brigade/collectives/algorithms/program.h"
#include "brigade/kernels/reduce/reduce.h"

namespace brigade::collectives {
namespace {

// Chunks of a source that may be on their way.
constexpr int64_t kAhead = 4;
// In bytes: parts begin at whole vectors.
constexpr int64_t kAlignment = 256;

// How many of the instruction's sources come from other ranks.
int64_t SourcesElsewhere(const Instruction& instruction, int rank) {
  return std::count_if(instruction.sources.begin(), instruction.sources.end(),
                       [&](const Part& part) { return part.rank != rank; });
}

// What lands in a stage, and the partial results, which the instructions need one after the other.
void AddNccl(const CollectiveSignature& signature, int rank, int size, Workspace& workspace) {
  const int64_t element_bytes = precision::SizeOf(PartialType(signature));
  int64_t bytes = 0;
  int stage = 0;
  ForEachInstruction(signature, rank, size, [&](const Instruction& instruction) {
    if (instruction.stage != stage) bytes = 0;
    stage = instruction.stage;
    if (instruction.sources.size() > 1) {  // else it is received in place
      bytes +=
          SourcesElsewhere(instruction, rank) * NcclLandingBytes(instruction.count * element_bytes);
    }
    workspace.landing_bytes = std::max(workspace.landing_bytes, bytes);
    workspace.partials_bytes = std::max(
        workspace.partials_bytes,
        kernels::ReducePartialsBytes(static_cast<int64_t>(instruction.sources.size()),
                                     instruction.count, SourceType(instruction, signature)));
  });
}

}  // namespace

LandingRing LandingRingOf(const CollectiveSignature& signature, int rank, int size,
                          int64_t chunk_bytes) {
  const int64_t element_bytes = precision::SizeOf(PartialType(signature));
  const int64_t chunk_count = chunk_bytes / element_bytes;
  LandingRing ring;
  int64_t most_sources = 0, messages = 0, most_messages = 0;
  int stage = 0;
  ForEachInstruction(signature, rank, size, [&](const Instruction& instruction) {
    if (instruction.stage != stage) messages = 0;
    stage = instruction.stage;
    const int64_t sources = SourcesElsewhere(instruction, rank);
    messages += sources * ((instruction.count + chunk_count - 1) / chunk_count);
    most_messages = std::max(most_messages, messages);
    most_sources = std::max(most_sources, sources);
    const bool in_place = instruction.sources.size() == 1 && instruction.targets.size() == 1 &&
                          instruction.targets[0].rank == rank;
    if (in_place || sources == 0) return;
    ring.message_bytes =
        std::max(ring.message_bytes, std::min(chunk_count, instruction.count) * element_bytes);
  });
  ring.window = std::min(kAhead * most_sources, most_messages);
  return ring;
}

int64_t NcclLandingBytes(int64_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

bool IsNcclsOwn(const CollectiveSignature& signature) {
  if (signature.kind == CollectiveKind::kShift) return false;
  return signature.algorithm == Algorithm::kNative || !HasAlgorithms(signature.kind);
}

Workspace WorkspaceOf(const CollectiveSignature& signature, int rank, int size, EngineKind kind) {
  if (kind == EngineKind::kNccl && IsNcclsOwn(signature)) return {};
  if (signature.kind == CollectiveKind::kSend) return {};
  Workspace workspace;
  workspace.scratch_bytes = ScratchBytes(signature, size);
  if (kind == EngineKind::kTransport) {
    const LandingRing ring = LandingRingOf(signature, rank, size, kTransportChunkBytes);
    workspace.landing_bytes = ring.window * ring.message_bytes;
  } else if (kind == EngineKind::kNccl) {
    AddNccl(signature, rank, size, workspace);
  }
  return workspace;
}

}  // namespace brigade::collectives
