#include "brigade/collectives/engines/nccl/executor.h"

#include <algorithm>

#include "brigade/collectives/algorithms/workspace.h"
#include "brigade/collectives/engines/combine.h"
#include "brigade/collectives/engines/grow_buffer.h"
#include "brigade/device/status_macros.h"

namespace brigade::collectives {

absl::Status NcclExecutor::Run(const Collective& collective, device::Stream& stream,
                               EnqueueGroup enqueue) {
  collective_ = &collective;
  BRIGADE_RETURN_IF_ERROR(Reserve(collective.signature));
  for (int stage = 0; stage < program_.stages(); ++stage) {
    CollectReads(stage);
    BRIGADE_RETURN_IF_ERROR(enqueue(transfers_));
    BRIGADE_RETURN_IF_ERROR(Reduce(stage, stream));
    CollectWrites(stage);
    if (!transfers_.empty()) BRIGADE_RETURN_IF_ERROR(enqueue(transfers_));
  }
  return absl::OkStatus();
}

// A copy from elsewhere to here needs no landing.
bool NcclExecutor::IsReceivedInPlace(const Instruction& instruction) const {
  return instruction.sources.size() == 1 && instruction.sources[0].rank != rank_;
}

int64_t NcclExecutor::LandingBytes(const Instruction& instruction) const {
  return NcclLandingBytes(instruction.count *
                          precision::SizeOf(PartialType(collective_->signature)));
}

absl::Status NcclExecutor::Reserve(const CollectiveSignature& signature) {
  program_.Build(signature, size_);
  const Workspace workspace = WorkspaceOf(signature, rank_, size_, EngineKind::kNccl);
  BRIGADE_RETURN_IF_ERROR(
      GrowBuffer(workspace.landing_bytes, "collective landing", context_, landing_));
  BRIGADE_RETURN_IF_ERROR(
      GrowBuffer(workspace.partials_bytes, "collective partials", context_, partials_));
  return GrowBuffer(workspace.scratch_bytes, "collective scratch", context_, scratch_);
}

const Part& NcclExecutor::OwnTarget(const Instruction& instruction) const {
  return *std::find_if(instruction.targets.begin(), instruction.targets.end(),
                       [&](const Part& target) { return target.rank == rank_; });
}

void NcclExecutor::CollectReads(int stage) {
  transfers_.clear();
  for (int other = 0; other < size_; ++other) {
    if (other == rank_) continue;
    program_.ForEach(other, stage, [&](const Instruction& instruction) {
      for (const Part& source : instruction.sources) {
        if (source.rank != rank_) continue;
        transfers_.push_back({true, Address(source), instruction.count, other});
      }
    });
  }
  char* landing = static_cast<char*>(landing_.data());
  program_.ForEach(rank_, stage, [&](const Instruction& instruction) {
    for (const Part& source : instruction.sources) {
      if (source.rank == rank_) continue;
      const bool in_place = IsReceivedInPlace(instruction);
      transfers_.push_back({false, in_place ? Address(OwnTarget(instruction)) : landing,
                            instruction.count, source.rank});
      if (!in_place) landing += LandingBytes(instruction);
    }
  });
}

absl::Status NcclExecutor::Reduce(int stage, device::Stream& stream) {
  const char* landed = static_cast<const char*>(landing_.data());
  absl::Status done;
  program_.ForEach(rank_, stage, [&](const Instruction& instruction) {
    if (IsReceivedInPlace(instruction) || !done.ok()) return;
    sources_.clear();
    for (const Part& source : instruction.sources) {
      sources_.push_back(source.rank == rank_ ? Address(source) : landed);
      if (source.rank != rank_) landed += LandingBytes(instruction);
    }
    void* const target = Address(OwnTarget(instruction));
    if (sources_.size() == 1 && sources_[0] == target) return;  // in place already
    done =
        Combine(instruction, collective_->signature, sources_, {target}, partials_.data(), stream);
  });
  return done;
}

void NcclExecutor::CollectWrites(int stage) {
  transfers_.clear();
  program_.ForEach(rank_, stage, [&](const Instruction& instruction) {
    char* const own = Address(OwnTarget(instruction));
    for (const Part& target : instruction.targets) {
      if (target.rank == rank_) continue;
      transfers_.push_back({true, own, instruction.count, target.rank});
    }
  });
  for (int other = 0; other < size_; ++other) {
    if (other == rank_) continue;
    program_.ForEach(other, stage, [&](const Instruction& instruction) {
      for (const Part& target : instruction.targets) {
        if (target.rank != rank_) continue;
        transfers_.push_back({false, Address(target), instruction.count, other});
      }
    });
  }
}

}  // namespace brigade::collectives
