#include "brigade/collectives/engines/threads/group_state.h"

#include <algorithm>
#include <bit>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "brigade/collectives/engines/combine.h"
#include "brigade/collectives/engines/grow_buffer.h"
#include "brigade/device/status_macros.h"
#include "brigade/kernels/reduce/reduce.h"

namespace brigade::collectives {
namespace {

// Looks per limit; at most one a millisecond, and at least one a second.
constexpr int kLooks = 20;
constexpr absl::Duration kMostFrequent = absl::Milliseconds(1);
constexpr absl::Duration kLeastFrequent = absl::Seconds(1);

}  // namespace

GroupState::GroupState(const ThreadGroup::Options& options)
    : options_(options),
      rendezvous_(options.size),
      members_(static_cast<size_t>(options.size)),
      monitor_(options.size, options.stream_timeout) {
  if (options.size == 1 || options.stream_timeout == absl::InfiniteDuration()) return;
  watchdog_ = std::make_unique<device::PeriodicThread>(
      std::clamp(options.stream_timeout / kLooks, kMostFrequent, kLeastFrequent), [this] {
        if (const absl::Status late = monitor_.Look(); !late.ok()) Fail(late);
      });
}

absl::Status GroupState::Join(int rank, device::Context& context) {
  device::MutexLock lock(mutex_);
  if (rank < 0 || rank >= options_.size) {
    return absl::InvalidArgumentError(
        absl::StrCat("rank ", rank, " is not in a group of ", options_.size));
  }
  Member& member = members_[static_cast<size_t>(rank)];
  if (member.context != nullptr) {
    return absl::AlreadyExistsError(absl::StrCat("there are two ranks with number ", rank));
  }
  if (device_.value_or(context.device()) != context.device()) {
    return absl::InvalidArgumentError(absl::StrCat("rank ", rank, " is on ",
                                                   context.device().ToString(), ", the group on ",
                                                   device_->ToString()));
  }
  for (std::unique_ptr<device::Event>& event : member.reached) {
    BRIGADE_ASSIGN_OR_RETURN(event, context.CreateEvent("collective"));
  }
  member.context = &context;
  device_ = context.device();
  return status_;
}

// The scratch goes back here, where the free waits for this rank's streams: they end after all who
// use it. What the rank took part in has its results: the next call that needs it fails.
void GroupState::Leave(int rank) {
  members_[static_cast<size_t>(rank)].scratch = device::Buffer();
  rendezvous_.Leave(rank);
}

void GroupState::Fail(const absl::Status& error) {
  absl::Status first;
  {
    device::MutexLock lock(mutex_);
    if (status_.ok()) status_ = error;
    first = status_;
  }
  rendezvous_.Break(first);
}

absl::Status GroupState::status() const {
  device::MutexLock lock(mutex_);
  return status_;
}

absl::Status GroupState::Meet(int rank, int partner, const Rendezvous::Arrival& arrival,
                              Rendezvous::Act act) {
  const absl::Status met = rendezvous_.Meet(rank, partner, arrival, options_.timeout, act);
  if (met.ok()) return met;
  Fail(met);
  return status();
}

absl::Status GroupState::Reserve(int rank, const CollectiveSignature& signature) {
  Member& member = members_[static_cast<size_t>(rank)];
  return GrowBuffer(ScratchBytes(signature, options_.size), "collective scratch", *member.context,
                    member.scratch);
}

absl::Status GroupState::Run(int rank, const Collective& collective, device::Stream& stream) {
  const CollectiveSignature& signature = collective.signature;
  const Rendezvous::Arrival arrival = {
      {signature, collective.sequence}, &collective, &stream, {}, {}};
  if (signature.kind != CollectiveKind::kSend) {
    // Each rank for itself, before any lock: to free what is too small waits for its streams.
    if (const absl::Status provided = Reserve(rank, signature); !provided.ok()) {
      Fail(absl::Status(provided.code(),
                        absl::StrCat("rank ", rank, " cannot join ", ToString(signature), ": ",
                                     provided.message())));
      return status();
    }
    return Meet(rank, Rendezvous::kAll, arrival,
                [&](Arrivals arrivals) { return Enqueue(arrivals); });
  }
  const int sender = signature.root;
  const int receiver = rank == sender ? collective.peer : rank;
  return Meet(rank, collective.peer, arrival,
              [&](Arrivals arrivals) { return EnqueueSend(sender, receiver, arrivals); });
}

// Marks on the ranks' streams where the collective begins.
absl::StatusOr<StreamMonitor::Entry*> GroupState::Begin(uint64_t ranks, Arrivals arrivals) {
  const auto first = static_cast<size_t>(std::countr_zero(ranks));
  BRIGADE_ASSIGN_OR_RETURN(auto entry, monitor_.Next(*members_[first].context));
  entry->fingerprint = arrivals[first].fingerprint;
  entry->ranks = ranks;
  for (uint64_t left = ranks; left != 0; left &= left - 1) {
    const auto rank = static_cast<size_t>(std::countr_zero(left));
    device::Stream& stream = *arrivals[rank].stream;
    const absl::Status status = stream.status();
    if (!status.ok()) {
      return absl::Status(status.code(), absl::StrCat("rank ", rank, " cannot join ",
                                                      ToString(entry->fingerprint.signature), ": ",
                                                      status.message()));
    }
    BRIGADE_RETURN_IF_ERROR(stream.Record(*entry->begins[rank]));
  }
  monitor_.Watch();
  return entry;
}

absl::Status GroupState::Enqueue(Arrivals arrivals) {
  const CollectiveSignature& signature = arrivals[0].fingerprint.signature;
  const int size = options_.size;
  program_.Build(signature, size);
  BRIGADE_ASSIGN_OR_RETURN(auto entry, Begin(~uint64_t{0} >> (64 - size), arrivals));

  const auto stream = [&](int rank) -> device::Stream& {
    return *arrivals[static_cast<size_t>(rank)].stream;
  };
  const auto reached = [&](int rank, int stage) -> device::Event& {
    const auto i = static_cast<size_t>(rank);
    return stage == 0 ? *entry->begins[i] : *members_[i].reached[stage % 2];
  };
  const bool barrier = signature.kind == CollectiveKind::kBarrier;
  const auto wait_for = [&](int rank, int other, int stage) -> absl::Status {
    if (!program_.ArePartners(rank, other)) return absl::OkStatus();
    return stream(rank).Wait(reached(other, stage));
  };
  for (int stage = 0; stage < program_.stages(); ++stage) {
    for (int rank = 0; rank < size; ++rank) {
      for (int other = 0; program_.Acts(rank, stage) && other < size; ++other) {
        BRIGADE_RETURN_IF_ERROR(wait_for(rank, other, stage));
      }
      absl::Status done;
      program_.ForEach(rank, stage, [&](const Instruction& instruction) {
        if (done.ok()) done = EnqueueInstruction(instruction, rank, arrivals);
      });
      BRIGADE_RETURN_IF_ERROR(done);
      BRIGADE_RETURN_IF_ERROR(stream(rank).Record(reached(rank, stage + 1)));
    }
  }
  // What a rank's stream does next may write what its partners still use.
  for (int rank = 0; rank < size; ++rank) {
    for (int other = 0; other < size; ++other) {
      if (!barrier && !program_.Acts(other)) continue;
      BRIGADE_RETURN_IF_ERROR(wait_for(rank, other, program_.stages()));
    }
  }
  return absl::OkStatus();
}

absl::Status GroupState::EnqueueInstruction(const Instruction& instruction, int rank,
                                            Arrivals arrivals) {
  const CollectiveSignature& signature = arrivals[0].fingerprint.signature;
  const int64_t element_bytes = precision::SizeOf(PartialType(signature));
  const auto address = [&](const Part& part) {
    const auto i = static_cast<size_t>(part.rank);
    return AddressOf(part, *arrivals[i].collective, members_[i].scratch.data());
  };
  const auto count = [&](int from, int to) {
    if (from == to) return;
    members_[static_cast<size_t>(from)].sent[static_cast<size_t>(to)] +=
        instruction.count * element_bytes;
  };
  sources_.clear();
  targets_.clear();
  for (const Part& part : instruction.sources) {
    sources_.push_back(address(part));
    count(part.rank, rank);
  }
  for (const Part& part : instruction.targets) {
    targets_.push_back(address(part));
    count(rank, part.rank);
  }
  if (sources_.size() == 1 && targets_.size() == 1 && sources_[0] == targets_[0]) {
    return absl::OkStatus();  // in place already
  }
  return Combine(instruction, signature, sources_, targets_, /*partials=*/nullptr,
                 *arrivals[static_cast<size_t>(rank)].stream);
}

absl::Status GroupState::EnqueueSend(int sender, int receiver, Arrivals arrivals) {
  const auto from = static_cast<size_t>(sender), to = static_cast<size_t>(receiver);
  BRIGADE_ASSIGN_OR_RETURN(auto entry, Begin(uint64_t{1} << from | uint64_t{1} << to, arrivals));
  const CollectiveSignature& signature = arrivals[from].fingerprint.signature;
  device::Stream& source = *arrivals[from].stream;
  device::Stream& target = *arrivals[to].stream;
  device::Event& done = *members_[to].reached[0];
  members_[from].sent[to] += signature.count * precision::SizeOf(signature.dtype);
  BRIGADE_RETURN_IF_ERROR(target.Wait(*entry->begins[from]));
  BRIGADE_RETURN_IF_ERROR(kernels::Reduce({arrivals[from].collective->input},
                                          {arrivals[to].collective->output}, signature.count,
                                          {signature.dtype}, target));
  BRIGADE_RETURN_IF_ERROR(target.Record(done));
  return source.Wait(done);
}

absl::Status GroupState::AllGatherHost(int rank, const Fingerprint& fingerprint,
                                       absl::Span<const int64_t> values, absl::Span<int64_t> all) {
  Rendezvous::Arrival arrival;
  arrival.fingerprint = fingerprint;
  arrival.values = values;
  arrival.all = all;
  return Meet(rank, Rendezvous::kAll, arrival, [](Arrivals arrivals) {
    for (const Rendezvous::Arrival& to : arrivals) {
      auto end = to.all.begin();
      for (const Rendezvous::Arrival& from : arrivals) {
        end = std::copy(from.values.begin(), from.values.end(), end);
      }
    }
    return absl::OkStatus();
  });
}

std::shared_ptr<GroupState> GroupState::JoinSubgroup(absl::Span<const int> members,
                                                     uint64_t generation) {
  const std::string key = absl::StrCat(generation, ":", absl::StrJoin(members, ","));
  device::MutexLock lock(mutex_);
  Subgroup& subgroup = subgroups_[key];
  if (subgroup.state == nullptr) {
    ThreadGroup::Options options = options_;
    options.size = static_cast<int>(members.size());
    subgroup = {std::make_shared<GroupState>(options), members.size()};
  }
  std::shared_ptr<GroupState> state = subgroup.state;
  if (--subgroup.to_come == 0) subgroups_.erase(key);
  return state;
}

}  // namespace brigade::collectives
