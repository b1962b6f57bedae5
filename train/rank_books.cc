#include "brigade/train/rank_books.h"

#include <algorithm>
#include <iterator>
#include <utility>
#include <vector>

#include "brigade/collectives/algorithms/wire_elements.h"
#include "brigade/collectives/algorithms/workspace.h"
#include "brigade/device/file/file_store.h"
#include "brigade/device/status_macros.h"
#include "brigade/replicas/round_plan.h"
#include "brigade/train/rank_memory.h"
#include "brigade/train/step_batch.h"
#include "brigade/train/times/clock.h"
#include "brigade/zero/plan/memory_model.h"

namespace brigade::train {
namespace {

using collectives::Communicator;
using device::Purpose;
using parallel::GridGroup;

// Of offload or of the stash.
template <typename Movement>
void AddSince(const Movement& before, const Movement& now, Movement& sum) {
  sum.to_host += now.to_host - before.to_host;
  sum.from_host += now.from_host - before.from_host;
  sum.file_read += now.file_read - before.file_read;
  sum.file_written += now.file_written - before.file_written;
}

}  // namespace

RankBooks::RankBooks(const Accounts& accounts) : of_(accounts) {}

void RankBooks::Start(int64_t steps) {
  traffic_before_ = of_.zero.traffic();
  movement_before_ = of_.zero.movement();
  stash_before_ = of_.part.stashed();
  sent_before_ = SentInGroups();
  gathered_before_ = gathered_;
  digests_before_ = SentDigests();
  between_before_ = SentBetween();
  if (outer_ != nullptr && summary_.steps == 0) outer_steps_before_ = outer_->steps();
  of_.recorder.Begin(of_.context.name(), steps);
  started_ns_ = SteadyNs();
}

void RankBooks::Stop() {
  counted_ns_ += SteadyNs() - started_ns_;
  const Recording recording = of_.recorder.End(of_.context.name());
  summary_.time += recording.time;
  passes_.resize(std::max(passes_.size(), recording.stages.size()));
  for (size_t s = 0; s < recording.stages.size(); ++s) {
    passes_[s] += recording.stages[s];
    summary_.passes += recording.stages[s];
  }
  const zero::Traffic now = of_.zero.traffic();
  summary_.traffic.gradients += now.gradients - traffic_before_.gradients;
  summary_.traffic.parameters += now.parameters - traffic_before_.parameters;
  summary_.traffic.scalars += now.scalars - traffic_before_.scalars;
  summary_.traffic.tied += now.tied - traffic_before_.tied;
  summary_.traffic.between += now.between - traffic_before_.between;
  summary_.traffic.near += now.near - traffic_before_.near;
  summary_.traffic.nodes += now.nodes - traffic_before_.nodes;
  AddSince(movement_before_, of_.zero.movement(), summary_.movement);
  AddSince(stash_before_, of_.part.stashed(), summary_.stashed);
  const GroupBytes sent = SentInGroups();
  for (size_t g = 0; g < sent.size(); ++g) summary_.sent[g] += sent[g] - sent_before_[g];
  ForEachOwnGroup([&](size_t g, const Communicator& group) {
    if (&group == &summing()) summary_.sent[g] -= SentDigests() - digests_before_;
  });
  if (outer_ == nullptr) return;
  // What a round gathers is no step's.
  const int64_t gathered = gathered_ - gathered_before_;
  summary_.traffic.parameters -= gathered;
  ForEachOwnGroup([&](size_t g, const Communicator& group) {
    if (&group == &of_.zero_groups.shards) summary_.sent[g] -= gathered;
  });
  summary_.rounds_sent += SentBetween() - between_before_;
  summary_.rounds_gathered += gathered;
  summary_.rounds = outer_->rounds();
}

int64_t RankBooks::SentBetween() const {
  int64_t sent = 0;
  if (outer_ == nullptr) return sent;
  const Communicator& between = *of_.zero_groups.replicas;
  for (int to = 0; to < between.size(); ++to) sent += between.sent_bytes(to);
  return sent;
}

// By formula; and the memory that is theirs.
absl::Status RankBooks::AddRounds(RankSummary& summary) const {
  if (outer_ == nullptr) return absl::OkStatus();
  Communicator& between = *of_.zero_groups.replicas;
  const zero::Plan& plan = of_.zero.plan();
  const zero::ZeroOptions& options = of_.zero.options();
  const replicas::OuterOptions& outer = outer_->options();
  BRIGADE_ASSIGN_OR_RETURN(
      const replicas::RoundTraffic traffic,
      replicas::TrafficOfSteps(plan, options, outer, outer_steps_before_, summary.steps,
                               of_.zero_groups.shards, between));
  BRIGADE_ASSIGN_OR_RETURN(const auto sums, between.Resolve(kStepSums));
  const int64_t of_sums = collectives::WireBytes(sums, between.rank(), between.size());
  summary.rounds_sent_model = traffic.between;
  for (int64_t step = outer_steps_before_ + 1; step <= outer_steps_before_ + summary.steps;
       ++step) {
    const bool is_round = step <= outer.start_step || replicas::DueFragment(outer, step) >= 0;
    if (is_round) summary.rounds_sent_model += of_sums;
  }
  summary.rounds_gathered_model = traffic.parameters;
  BRIGADE_ASSIGN_OR_RETURN(const auto terms, replicas::MemoryOf(plan, options, outer));
  for (const zero::MemoryTerm& term : terms) {
    const auto p = static_cast<size_t>(term.purpose);
    (term.tier == device::Tier::kHost ? summary.host_memory_model : summary.memory_model)[p] +=
        term.bytes;
  }
  BRIGADE_ASSIGN_OR_RETURN(auto workspace,
                           replicas::WorkspaceOfRounds(plan, options, outer, between));
  BRIGADE_ASSIGN_OR_RETURN(const auto of_step, between.WorkspaceFor(kStepSums));
  workspace = collectives::Max(workspace, of_step);
  summary.memory_model[static_cast<size_t>(Purpose::kCommunication)] += workspace.bytes();
  return absl::OkStatus();
}

void RankBooks::ForEachOwnGroup(absl::FunctionRef<void(size_t, Communicator&)> visit) const {
  train::ForEachOwnGroup(of_.grid, of_.zero_groups, visit);
}

GroupBytes RankBooks::SentInGroups() const {
  GroupBytes sent = {};
  ForEachOwnGroup([&](size_t g, const Communicator& group) {
    for (int to = 0; to < group.size(); ++to) sent[g] += group.sent_bytes(to);
  });
  sent[static_cast<size_t>(GridGroup::kPipeline)] += of_.executor.sent_bytes();
  return sent;
}

absl::StatusOr<GroupBytes> RankBooks::SentInGroupsOfStep(const zero::Traffic& traffic) const {
  BRIGADE_ASSIGN_OR_RETURN(const auto sums, summing().Resolve(kStepSums));
  const int64_t micro_batches = of_.job.config.zero.micro_batches;
  GroupBytes sent = {};
  absl::Status status;
  const std::vector<parallel::PassCollective> passes = of_.part.CollectivesOfPasses();
  ForEachOwnGroup([&](size_t g, Communicator& group) {
    for (const parallel::PassCollective& each : passes) {
      if (of_.grid.group(each.group) != &group) continue;
      const auto resolved = group.Resolve(each.signature);
      status.Update(resolved.status());
      if (!resolved.ok()) continue;
      sent[g] += micro_batches * each.times *
                 collectives::WireBytes(*resolved, group.rank(), group.size());
    }
    // What codes send inside a node counts as gradients.
    const bool in_nodes = of_.zero_groups.outer.node != nullptr;
    if (&group == &of_.zero_groups.shards) {
      sent[g] += traffic.parameters + (in_nodes ? 0 : traffic.gradients);
    }
    if (&group == of_.zero_groups.outer.node) sent[g] += traffic.gradients;
    if (&group == of_.zero_groups.outer.nodes) sent[g] += traffic.nodes;
    if (&group == of_.zero_groups.outer.between) sent[g] += traffic.between;
    if (&group == of_.zero_groups.outer.near) sent[g] += traffic.near;
    if (&group == of_.zero_groups.outer.tied) sent[g] += traffic.tied;
    if (&group != &summing()) return;
    sent[g] += traffic.scalars + collectives::WireBytes(sums, group.rank(), group.size());
  });
  BRIGADE_RETURN_IF_ERROR(status);
  sent[static_cast<size_t>(GridGroup::kPipeline)] += of_.executor.SentInStep();
  return sent;
}

absl::Status RankBooks::AddMemory(RankSummary& summary) const {
  const zero::ZeroOptimizer& zero = of_.zero;
  BRIGADE_ASSIGN_OR_RETURN(const std::vector<zero::MemoryTerm> terms,
                           MemoryOfRank({.job = of_.job,
                                         .grid = of_.grid,
                                         .zero_groups = of_.zero_groups,
                                         .part = of_.part,
                                         .buffers = of_.executor.buffers(),
                                         .parameters = zero.plan(),
                                         .zero = zero.options(),
                                         .digests = of_.digests}));
  for (int i = 0; i < device::kPurposes; ++i) {
    const auto purpose = static_cast<Purpose>(i);
    summary.memory[i] = of_.context.memory_stats().peak_bytes(purpose);
    summary.memory_model[i] = zero::Total(terms, device::Tier::kDevice, purpose);
    summary.host_memory[i] = of_.context.host_memory_stats().peak_bytes(purpose);
    summary.host_memory_model[i] = zero::Total(terms, device::Tier::kHost, purpose);
  }
  summary.host_memory_model[static_cast<size_t>(Purpose::kScratch)] += staging_bytes_;
  summary.file_bytes_model = zero::Total(terms, device::Tier::kFile);
  if (zero.file() != nullptr) summary.file_bytes = zero.file()->bytes();
  summary.file_bytes += of_.part.stash_file_bytes();
  return absl::OkStatus();
}

void RankBooks::AddStash(RankSummary& summary) const {
  const recompute::StashMovement pass = of_.part.stashed_in_pass();
  const int64_t passes = of_.job.config.zero.micro_batches;
  summary.stashed_of_step = {.to_host = passes * pass.to_host,
                             .from_host = passes * pass.from_host,
                             .file_read = passes * pass.file_read,
                             .file_written = passes * pass.file_written};
}

absl::StatusOr<RankSummary> RankBooks::Summary() const {
  const zero::ZeroOptimizer& zero = of_.zero;
  RankSummary summary = summary_;
  summary.activations = of_.part.activations();
  BRIGADE_RETURN_IF_ERROR(AddMemory(summary));
  AddStash(summary);
  BRIGADE_RETURN_IF_ERROR(AddRounds(summary));
  summary.chunks =
      ChunkSummaries(passes_, of_.part.chunks(), summary.steps * of_.job.config.zero.micro_batches);
  summary.movement_of_step = zero::MovementOfStep(zero.plan(), zero.options());
  BRIGADE_ASSIGN_OR_RETURN(summary.traffic_of_step,
                           zero::TrafficOfStep(zero.plan(), zero.options(), of_.zero_groups.shards,
                                               of_.zero_groups.outer));
  BRIGADE_ASSIGN_OR_RETURN(summary.sent_of_step, SentInGroupsOfStep(summary.traffic_of_step));
  for (const zero::Bucket& bucket : zero.plan().buckets()) summary.padded_bytes += bucket.bytes();
  for (const zero::Parameter& each : zero.plan().parameters()) {
    summary.parameters += each.spec.size;
  }
  return summary;
}

}  // namespace brigade::train
