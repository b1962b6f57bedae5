#include "brigade/collectives/engines/nccl/executor.h"

#include <algorithm>
#include <utility>

#include "brigade/collectives/engines/combine.h"
#include "brigade/collectives/engines/grow_buffer.h"
#include "brigade/device/status_macros.h"

namespace brigade::collectives {
namespace {

constexpr size_t kMaxPlans = 64;

int64_t LandingBytes(const CollectiveSignature& signature, int64_t count) {
  return NcclLandingBytes(count * precision::SizeOf(PartialType(signature)));
}

}  // namespace

absl::Status NcclExecutor::Run(const Collective& collective, device::Stream& stream,
                               EnqueueGroup enqueue) {
  collective_ = &collective;
  const Plan& plan = PlanOf(collective.signature);
  BRIGADE_RETURN_IF_ERROR(Reserve(plan));
  for (const Plan::Stage& stage : plan.stages) {
    BRIGADE_RETURN_IF_ERROR(enqueue(Addressed(stage.reads)));
    for (const Plan::Reduction& reduction : stage.reductions) {
      BRIGADE_RETURN_IF_ERROR(Reduce(reduction, stream));
    }
    if (!stage.writes.empty()) BRIGADE_RETURN_IF_ERROR(enqueue(Addressed(stage.writes)));
  }
  return absl::OkStatus();
}

absl::Status NcclExecutor::Reserve(const CollectiveSignature& signature) {
  return Reserve(PlanOf(signature));
}

absl::Status NcclExecutor::Reserve(const Plan& plan) {
  const Workspace& workspace = plan.workspace;
  BRIGADE_RETURN_IF_ERROR(
      GrowBuffer(workspace.landing_bytes, "collective landing", context_, landing_));
  BRIGADE_RETURN_IF_ERROR(
      GrowBuffer(workspace.partials_bytes, "collective partials", context_, partials_));
  return GrowBuffer(workspace.scratch_bytes, "collective scratch", context_, scratch_);
}

const NcclExecutor::Plan& NcclExecutor::PlanOf(const CollectiveSignature& signature) {
  const auto known = std::find_if(plans_.begin(), plans_.end(),
                                  [&](const Plan& plan) { return plan.signature == signature; });
  if (known != plans_.end()) return *known;
  if (plans_.size() < kMaxPlans) return plans_.emplace_back(Make(signature));
  Plan& place = plans_[std::exchange(oldest_, (oldest_ + 1) % kMaxPlans)];
  return place = Make(signature);
}

// Other ranks' instructions read what this one sends, and write what it receives.
NcclExecutor::Plan NcclExecutor::Make(const CollectiveSignature& signature) const {
  Plan plan;
  plan.signature = signature;
  plan.workspace = WorkspaceOf(signature, rank_, size_, EngineKind::kNccl);
  plan.stages.resize(static_cast<size_t>(Stages(signature, size_)));
  for (int rank = 0; rank < size_; ++rank) {
    ForEachInstruction(signature, rank, size_, [&](const Instruction& instruction) {
      Plan::Stage& stage = plan.stages[static_cast<size_t>(instruction.stage)];
      if (rank == rank_) {
        AddOwn(instruction, LandingBytes(signature, instruction.count), stage);
        return;
      }
      for (const Part& source : instruction.sources) {
        if (source.rank != rank_) continue;
        stage.reads.push_back({true, source, 0, instruction.count, rank});
      }
      for (const Part& target : instruction.targets) {
        if (target.rank != rank_) continue;
        stage.writes.push_back({false, target, 0, instruction.count, rank});
      }
    });
  }
  return plan;
}

void NcclExecutor::AddOwn(const Instruction& instruction, int64_t part_bytes,
                          Plan::Stage& stage) const {
  const Part& own = *std::find_if(instruction.targets.begin(), instruction.targets.end(),
                                  [&](const Part& target) { return target.rank == rank_; });
  const Part& first = instruction.sources[0];
  const int64_t landing = stage.landing_bytes;
  if (instruction.sources.size() == 1 && first.rank != rank_) {
    // A copy from elsewhere to here needs no landing.
    stage.reads.push_back({false, own, 0, instruction.count, first.rank});
  } else {
    for (const Part& source : instruction.sources) {
      if (source.rank == rank_) continue;
      stage.reads.push_back({false, source, stage.landing_bytes, instruction.count, source.rank});
      stage.landing_bytes += part_bytes;
    }
    stage.reductions.push_back({{instruction.sources.begin(), instruction.sources.end()},
                                own,
                                landing,
                                instruction.count});
  }
  for (const Part& target : instruction.targets) {
    if (target.rank == rank_) continue;
    stage.writes.push_back({true, own, 0, instruction.count, target.rank});
  }
}

absl::Span<const Transfer> NcclExecutor::Addressed(absl::Span<const Plan::Move> moves) {
  transfers_.clear();
  for (const Plan::Move& move : moves) {
    char* const data = move.part.rank == rank_ ? Address(move.part)
                                               : static_cast<char*>(landing_.data()) + move.landing;
    transfers_.push_back({move.sends, data, move.count, move.peer});
  }
  return transfers_;
}

absl::Status NcclExecutor::Reduce(const Plan::Reduction& reduction, device::Stream& stream) {
  const CollectiveSignature& signature = collective_->signature;
  const char* landed = static_cast<const char*>(landing_.data()) + reduction.landing;
  sources_.clear();
  for (const Part& source : reduction.sources) {
    sources_.push_back(source.rank == rank_ ? Address(source) : landed);
    if (source.rank != rank_) landed += LandingBytes(signature, reduction.count);
  }
  void* const target = Address(reduction.target);
  if (sources_.size() == 1 && sources_[0] == target) return absl::OkStatus();  // in place already
  const Instruction instruction = {.sources = reduction.sources,
                                   .targets = absl::MakeConstSpan(&reduction.target, 1),
                                   .count = reduction.count};
  return Combine(instruction, signature, sources_, {target}, partials_.data(), stream);
}

}  // namespace brigade::collectives
