#include "brigade/collectives/engines/nccl/executor.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "brigade/collectives/engines/workspace.h"
#include "brigade/device/status_macros.h"
#include "brigade/kernels/reduce/reduce.h"

namespace brigade::collectives {
namespace {

constexpr int64_t kAlignment = 256;  // of what lands: whole vectors

}  // namespace

absl::Status NcclExecutor::Run(const Collective& collective, device::Stream& stream,
                               Exchange exchange) {
  collective_ = &collective;
  program_.Build(collective.signature, size_);
  BRIGADE_RETURN_IF_ERROR(Provide());
  for (int stage = 0; stage < program_.stages(); ++stage) {
    CollectReads(stage);
    BRIGADE_RETURN_IF_ERROR(exchange(transfers_));
    BRIGADE_RETURN_IF_ERROR(Reduce(stage, stream));
    CollectWrites(stage);
    if (!transfers_.empty()) BRIGADE_RETURN_IF_ERROR(exchange(transfers_));
  }
  return absl::OkStatus();
}

// A copy from elsewhere to here needs no landing.
bool NcclExecutor::IsReceivedInPlace(const Instruction& instruction) const {
  return instruction.sources.size() == 1 && instruction.sources[0].rank != rank_;
}

int64_t NcclExecutor::LandingBytes(const Instruction& instruction) const {
  const int64_t bytes = instruction.count * precision::SizeOf(collective_->signature.dtype);
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

absl::Status NcclExecutor::Provide() {
  const CollectiveSignature& signature = collective_->signature;
  int64_t most = 0;
  for (int stage = 0; stage < program_.stages(); ++stage) {
    int64_t bytes = 0;
    absl::Status status;
    program_.ForEach(rank_, stage, [&](const Instruction& instruction) {
      const size_t sources = instruction.sources.size();
      if (sources > kernels::kMaxReduceArrays) {
        status = absl::UnimplementedError(absl::StrCat(
            "adds ", sources, " arrays at once, of at most ", kernels::kMaxReduceArrays));
      }
      if (IsReceivedInPlace(instruction)) return;
      for (const Part& source : instruction.sources) {
        if (source.rank != rank_) bytes += LandingBytes(instruction);
      }
    });
    BRIGADE_RETURN_IF_ERROR(status);
    most = std::max(most, bytes);
  }
  BRIGADE_RETURN_IF_ERROR(collectives::Provide(most, "collective landing", context_, landing_));
  return collectives::Provide(
      ScratchElements(signature, size_) * precision::SizeOf(signature.dtype), "collective scratch",
      context_, scratch_);
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
  const CollectiveSignature& signature = collective_->signature;
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
    done = kernels::Reduce(sources_, {target}, instruction.count, {signature.dtype, signature.op},
                           stream);
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
