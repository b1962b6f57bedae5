#include "brigade/collectives/engines/threads/group_state.h"

#include <algorithm>
#include <chrono>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "brigade/collectives/engines/workspace.h"
#include "brigade/device/status_macros.h"
#include "brigade/kernels/reduce/reduce.h"

namespace brigade::collectives {
namespace {

using Arrivals = absl::Span<const Rendezvous::Arrival>;

std::string Describe(int rank, const Collective& collective) {
  return DescribeCollective(rank, ToString(collective.signature), collective.sequence);
}

absl::Status CheckAlike(Arrivals arrivals, absl::FunctionRef<int(size_t)> rank_of) {
  for (size_t i = 1; i < arrivals.size(); ++i) {
    const Collective& first = arrivals[0].collective;
    const Collective& other = arrivals[i].collective;
    if (other.signature == first.signature && other.sequence == first.sequence) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(Describe(rank_of(0), first), ", but ", Describe(rank_of(i), other)));
  }
  for (size_t i = 0; i < arrivals.size(); ++i) {
    const absl::Status status = arrivals[i].stream->status();
    if (status.ok()) continue;
    return absl::Status(status.code(), absl::StrCat("rank ", rank_of(i), " cannot join ",
                                                    ToString(arrivals[i].collective.signature),
                                                    ": ", status.message()));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status GroupState::Join(int rank, device::Context& context) {
  std::lock_guard lock(mutex_);
  if (rank < 0 || rank >= options_.size) {
    return absl::InvalidArgumentError(
        absl::StrCat("rank ", rank, " is not in a group of ", options_.size));
  }
  Member& member = members_[static_cast<size_t>(rank)];
  if (member.context != nullptr) {
    return absl::AlreadyExistsError(absl::StrCat("there are two ranks with number ", rank));
  }
  for (std::unique_ptr<device::Event>& event : member.reached) {
    BRIGADE_ASSIGN_OR_RETURN(auto made, context.CreateEvent("collective"));
    event = std::move(made);
  }
  member.context = &context;
  return status_;
}

// The scratch goes back here, where the free waits for this rank's streams: they end after all who use it.
void GroupState::Leave(int rank) {
  members_[static_cast<size_t>(rank)].scratch = device::Buffer();
  Fail(absl::UnavailableError(absl::StrCat("rank ", rank, " has left the group")));
}

void GroupState::Fail(const absl::Status& error) {
  std::lock_guard lock(mutex_);
  if (status_.ok()) status_ = error;
  all_.Break(status_);
  for (auto& [ranks, rendezvous] : pairs_) rendezvous->Break(status_);
}

absl::Status GroupState::status() const {
  std::lock_guard lock(mutex_);
  return status_;
}

absl::Status GroupState::Meet(Rendezvous& rendezvous, int member,
                              const Rendezvous::Arrival& arrival, absl::Span<const int> ranks,
                              absl::FunctionRef<absl::Status(Arrivals)> act) {
  const auto late = [&](absl::Span<const int> absent) -> absl::Status {
    const auto name = [&](std::string* out, int i) {
      absl::StrAppend(out, "rank ", ranks.empty() ? i : ranks[static_cast<size_t>(i)]);
    };
    const double seconds = std::chrono::duration<double>(options_.timeout).count();
    const int waiting = ranks.empty() ? member : ranks[static_cast<size_t>(member)];
    const bool on_host = arrival.stream == nullptr;
    return absl::DeadlineExceededError(absl::StrCat(
        absl::StrJoin(absent, ", ", name), " did not join within ", seconds,
        " s: ", on_host ? "an exchange on the host" : Describe(waiting, arrival.collective)));
  };
  absl::Status met = rendezvous.Meet(member, arrival, options_.timeout, act, late);
  if (!met.ok()) {
    Fail(met);
    return status();
  }
  return met;
}

absl::Status GroupState::Run(int rank, const Collective& collective, device::Stream& stream) {
  const Rendezvous::Arrival arrival = {collective, &stream, {}};
  if (collective.signature.kind != CollectiveKind::kSend) {
    return Meet(all_, rank, arrival, {}, [&](Arrivals arrivals) { return Enqueue(arrivals); });
  }
  const int sender = collective.signature.root;
  const int receiver = rank == sender ? collective.peer : rank;
  return Meet(RendezvousOf(sender, receiver), rank == sender ? 0 : 1, arrival, {sender, receiver},
              [&](Arrivals arrivals) { return EnqueueSend(sender, receiver, arrivals); });
}

Rendezvous& GroupState::RendezvousOf(int sender, int receiver) {
  std::lock_guard lock(mutex_);
  std::unique_ptr<Rendezvous>& rendezvous = pairs_[{sender, receiver}];
  if (rendezvous == nullptr) {
    rendezvous = std::make_unique<Rendezvous>(2);
    if (!status_.ok()) rendezvous->Break(status_);
  }
  return *rendezvous;
}

absl::Status GroupState::Enqueue(Arrivals arrivals) {
  BRIGADE_RETURN_IF_ERROR(CheckAlike(arrivals, [](size_t i) { return static_cast<int>(i); }));
  const CollectiveSignature& signature = arrivals[0].collective.signature;
  const int size = options_.size;
  const int64_t scratch = ScratchElements(signature, size) * precision::SizeOf(signature.dtype);
  for (Member& member : members_) {
    BRIGADE_RETURN_IF_ERROR(
        Provide(scratch, "collective scratch", *member.context, member.scratch));
  }
  program_.Build(signature, size);

  const auto stream = [&](int rank) -> device::Stream& {
    return *arrivals[static_cast<size_t>(rank)].stream;
  };
  const auto reached = [&](int rank, int stage) -> device::Event& {
    return *members_[static_cast<size_t>(rank)].reached[stage % 2];
  };
  const bool barrier = signature.kind == CollectiveKind::kBarrier;
  const auto wait_for = [&](int rank, int other, int stage) -> absl::Status {
    if (!program_.ArePartners(rank, other)) return absl::OkStatus();
    return stream(rank).Wait(reached(other, stage));
  };
  for (int rank = 0; rank < size; ++rank) {
    BRIGADE_RETURN_IF_ERROR(stream(rank).Record(reached(rank, 0)));
  }
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
  const CollectiveSignature& signature = arrivals[0].collective.signature;
  const int64_t element_bytes = precision::SizeOf(signature.dtype);
  const auto address = [&](const Part& part) {
    const auto i = static_cast<size_t>(part.rank);
    return AddressOf(part, arrivals[i].collective, members_[i].scratch.data());
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
  return kernels::Reduce(sources_, targets_, instruction.count, {signature.dtype, signature.op},
                         *arrivals[static_cast<size_t>(rank)].stream);
}

absl::Status GroupState::EnqueueSend(int sender, int receiver, Arrivals arrivals) {
  BRIGADE_RETURN_IF_ERROR(
      CheckAlike(arrivals, [&](size_t i) { return i == 0 ? sender : receiver; }));
  const CollectiveSignature& signature = arrivals[0].collective.signature;
  device::Event& ready = *members_[static_cast<size_t>(sender)].reached[0];
  device::Event& done = *members_[static_cast<size_t>(receiver)].reached[1];
  device::Stream& from = *arrivals[0].stream;
  device::Stream& to = *arrivals[1].stream;
  members_[static_cast<size_t>(sender)].sent[static_cast<size_t>(receiver)] +=
      signature.count * precision::SizeOf(signature.dtype);
  BRIGADE_RETURN_IF_ERROR(from.Record(ready));
  BRIGADE_RETURN_IF_ERROR(to.Wait(ready));
  BRIGADE_RETURN_IF_ERROR(kernels::Reduce({arrivals[0].collective.input},
                                          {arrivals[1].collective.output}, signature.count,
                                          {signature.dtype}, to));
  BRIGADE_RETURN_IF_ERROR(to.Record(done));
  return from.Wait(done);
}

absl::Status GroupState::AllGatherHost(int rank, absl::Span<const int64_t> values,
                                       absl::Span<int64_t> all) {
  Rendezvous::Arrival arrival;
  arrival.values = values;
  BRIGADE_RETURN_IF_ERROR(Meet(all_, rank, arrival, {}, [&](Arrivals arrivals) -> absl::Status {
    exchanged_.clear();
    for (const Rendezvous::Arrival& each : arrivals) {
      exchanged_.insert(exchanged_.end(), each.values.begin(), each.values.end());
    }
    return absl::OkStatus();
  }));
  std::copy(exchanged_.begin(), exchanged_.end(), all.begin());
  return absl::OkStatus();
}

std::shared_ptr<GroupState> GroupState::Child(absl::Span<const int> members, uint64_t generation) {
  std::lock_guard lock(mutex_);
  std::shared_ptr<GroupState>& child =
      children_[absl::StrCat(generation, ":", absl::StrJoin(members, ","))];
  if (child == nullptr) {
    ThreadGroup::Options options = options_;
    options.size = static_cast<int>(members.size());
    child = std::make_shared<GroupState>(options);
  }
  return child;
}

}  // namespace brigade::collectives
