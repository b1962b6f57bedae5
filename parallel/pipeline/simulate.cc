#include "brigade/parallel/pipeline/simulate.h"

#include <algorithm>
#include <map>
#include <optional>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "brigade/device/status_macros.h"
#include "brigade/parallel/pipeline/list_index.h"

namespace brigade::parallel {
namespace {

constexpr double kNotYet = -1;

absl::Status Validate(const PipelineShape& shape, const PipelineTimes& times) {
  for (const auto* each : {&times.forward, &times.backward_input, &times.backward_weight}) {
    if (each->size() != static_cast<size_t>(shape.parts())) {
      return absl::InvalidArgumentError(absl::StrCat("pipeline: times of ", each->size(),
                                                     " parts for ", shape.parts(), " parts"));
    }
    for (const double time : *each) {
      if (!(time >= 0))
        return absl::InvalidArgumentError(absl::StrCat("pipeline: a time of ", time));
    }
  }
  if (times.transfer >= 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("pipeline: transfers take a time of ", times.transfer));
}

// Where an item is.
struct Place {
  int stage = 0;
  int position = ListIndex::kAbsent;
};

struct Transfer {
  Place send, receive;
  // Of the computation that makes what is sent.
  Place made;
  // Of the sender and of the receiver.
  size_t send_channel = 0, receive_channel = 0;
};

// Transfers of a stage that go one after the other.
struct Channel {
  std::vector<size_t> transfers = {};
  size_t next = 0;
  double free = 0;
};

class Clock {
 public:
  Clock(const PipelineSchedule& schedule, const PipelineTimes& times,
        const std::vector<ListIndex>& indices)
      : schedule_(schedule), shape_(schedule.shape), times_(times), indices_(indices) {
    const size_t stages = schedule.lists.size();
    result_.work.resize(stages);
    result_.active.resize(stages);
    free_.resize(stages);
    computations_.resize(stages);
    next_.resize(stages);
    for (size_t s = 0; s < stages; ++s) {
      const StageList& list = schedule.lists[s];
      result_.spans.emplace_back(list.size(), TimeSpan{kNotYet, kNotYet});
      for (size_t i = 0; i < list.size(); ++i) {
        if (!IsTransfer(list[i].kind)) computations_[s].push_back(static_cast<int>(i));
      }
    }
  }

  absl::StatusOr<Simulation> Run() && {
    BRIGADE_RETURN_IF_ERROR(FindTransfers());
    for (bool moves = true; moves;) {
      moves = false;
      for (int stage = 0; stage < shape_.stages; ++stage) {
        while (Compute(stage)) moves = true;
      }
      for (Channel& channel : channels_) {
        while (channel.next < channel.transfers.size() &&
               Move(transfers_[channel.transfers[channel.next]])) {
          moves = true;
        }
      }
    }
    for (int stage = 0; stage < shape_.stages; ++stage) {
      const auto& spans = result_.spans[static_cast<size_t>(stage)];
      for (size_t i = 0; i < spans.size(); ++i) {
        if (spans[i].end == kNotYet) return WaitsForever({stage, static_cast<int>(i)});
        result_.makespan = std::max(result_.makespan, spans[i].end);
      }
    }
    return std::move(result_);
  }

 private:
  const PipelineItem& ItemAt(const Place& place) const {
    return schedule_.lists[static_cast<size_t>(place.stage)][static_cast<size_t>(place.position)];
  }

  TimeSpan& SpanAt(const Place& place) {
    return result_.spans[static_cast<size_t>(place.stage)][static_cast<size_t>(place.position)];
  }

  Place Find(int stage, const PipelineItem& item) const {
    return {stage, indices_[static_cast<size_t>(stage)].PositionOf(item)};
  }

  // The backward pass of a chunk, or the part of it that computes the gradients of inputs.
  Place FindBackward(int stage, int chunk, int micro_batch) const {
    const Place whole = Find(stage, {ItemKind::kBackward, chunk, micro_batch});
    return whole.position != ListIndex::kAbsent
               ? whole
               : Find(stage, {ItemKind::kBackwardInput, chunk, micro_batch});
  }

  absl::Status WaitsForever(const Place& place) const {
    return absl::InvalidArgumentError(absl::StrCat("pipeline: ", ToString(schedule_, ItemAt(place)),
                                                   " on stage ", place.stage,
                                                   " waits for what never comes"));
  }

  size_t ChannelOf(const Place& at, const Place& send, const Place& receive) {
    std::tuple key(at.stage, -1, -1, false);
    if (times_.channels != ChannelModel::kOnePerStage) {
      std::get<3>(key) = ItemAt(send).kind == ItemKind::kSendGradient;
    }
    if (times_.channels == ChannelModel::kOnePerEdge) {
      std::get<1>(key) = send.stage;
      std::get<2>(key) = receive.stage;
    }
    const auto [found, is_new] = channel_of_.emplace(key, channels_.size());
    if (is_new) channels_.emplace_back();
    return found->second;
  }

  absl::Status FindTransfers() {
    std::vector<std::vector<std::optional<size_t>>> transfer_at;
    for (const StageList& list : schedule_.lists) transfer_at.emplace_back(list.size());
    const auto at = [&](const Place& place) -> std::optional<size_t>& {
      return transfer_at[static_cast<size_t>(place.stage)][static_cast<size_t>(place.position)];
    };
    for (int stage = 0; stage < shape_.stages; ++stage) {
      const StageList& list = schedule_.lists[static_cast<size_t>(stage)];
      for (size_t i = 0; i < list.size(); ++i) {
        if (!IsSend(list[i].kind)) continue;
        const auto [kind, chunk, micro_batch] = list[i];
        const TransferEnd peer = *PeerOf(shape_, stage, list[i]);
        Transfer transfer = {.send = {stage, static_cast<int>(i)},
                             .receive = Find(peer.stage, peer.item),
                             .made = kind == ItemKind::kSendGradient
                                         ? FindBackward(stage, chunk, micro_batch)
                                         : Find(stage, {ItemKind::kForward, chunk, micro_batch})};
        if (transfer.receive.position == ListIndex::kAbsent) return WaitsForever(transfer.send);
        transfer.send_channel = ChannelOf(transfer.send, transfer.send, transfer.receive);
        transfer.receive_channel = ChannelOf(transfer.receive, transfer.send, transfer.receive);
        at(transfer.send) = at(transfer.receive) = transfers_.size();
        transfers_.push_back(transfer);
      }
    }
    for (int stage = 0; stage < shape_.stages; ++stage) {
      const StageList& list = schedule_.lists[static_cast<size_t>(stage)];
      for (size_t i = 0; i < list.size(); ++i) {
        if (!IsTransfer(list[i].kind)) continue;
        const Place place = {stage, static_cast<int>(i)};
        if (!at(place).has_value()) return WaitsForever(place);
        const Transfer& transfer = transfers_[*at(place)];
        const size_t channel =
            IsSend(list[i].kind) ? transfer.send_channel : transfer.receive_channel;
        channels_[channel].transfers.push_back(*at(place));
      }
    }
    return absl::OkStatus();
  }

  // Carries out the transfer, if it can start.
  bool Move(const Transfer& transfer) {
    Channel& from = channels_[transfer.send_channel];
    Channel& to = channels_[transfer.receive_channel];
    const auto is_next = [&](const Channel& channel) {
      return channel.next < channel.transfers.size() &&
             &transfers_[channel.transfers[channel.next]] == &transfer;
    };
    double begin = 0;
    if (!is_next(from) || !is_next(to) || !WaitFor(transfer.made, &begin)) return false;
    begin = std::max({begin, from.free, to.free});
    const double end = begin + times_.transfer;
    SpanAt(transfer.send) = SpanAt(transfer.receive) = {begin, end};
    for (Channel* const channel : {&from, &to}) {
      channel->free = end;
      ++channel->next;
    }
    return true;
  }

  // Whether the item has ended; `begin` is then not before that.
  bool WaitFor(const Place& place, double* begin) {
    if (place.position == ListIndex::kAbsent || SpanAt(place).end == kNotYet) return false;
    *begin = std::max(*begin, SpanAt(place).end);
    return true;
  }

  // What comes by a transfer, if there is one, or else is there when the other part has it.
  bool WaitForPart(int stage, const PipelineItem& receive, int part, double* begin) {
    const Place received = Find(stage, receive);
    if (received.position != ListIndex::kAbsent) return WaitFor(received, begin);
    const PartPlace maker = PlaceOf(shape_, part);
    return WaitFor(receive.kind == ItemKind::kReceiveActivation
                       ? Find(maker.stage, {ItemKind::kForward, maker.chunk, receive.micro_batch})
                       : FindBackward(maker.stage, maker.chunk, receive.micro_batch),
                   begin);
  }

  bool InputsAreThere(int stage, const PipelineItem& item, double* begin) {
    const auto [kind, chunk, i] = item;
    const int part = PartOf(shape_, stage, chunk);
    switch (kind) {
      case ItemKind::kForward:
        return part == 0 ||
               WaitForPart(stage, {ItemKind::kReceiveActivation, chunk, i}, part - 1, begin);
      case ItemKind::kBackwardWeight:
        return WaitFor(Find(stage, {ItemKind::kBackwardInput, chunk, i}), begin);
      default:
        return WaitFor(Find(stage, {ItemKind::kForward, chunk, i}), begin) &&
               (part == shape_.parts() - 1 ||
                WaitForPart(stage, {ItemKind::kReceiveGradient, chunk, i}, part + 1, begin));
    }
  }

  double DurationOf(int stage, const PipelineItem& item) const {
    const auto part = static_cast<size_t>(PartOf(shape_, stage, item.chunk));
    switch (item.kind) {
      case ItemKind::kForward:
        return times_.forward[part];
      case ItemKind::kBackwardInput:
        return times_.backward_input[part];
      case ItemKind::kBackwardWeight:
        return times_.backward_weight[part];
      default:
        return times_.backward_input[part] + times_.backward_weight[part];
    }
  }

  // The stage's next computation or collective; none: at its end.
  std::optional<Place> NextOf(int stage) const {
    const auto s = static_cast<size_t>(stage);
    if (next_[s] == computations_[s].size()) return std::nullopt;
    return Place{stage, computations_[s][next_[s]]};
  }

  // Carries it out, if it can start.
  bool Compute(int stage) {
    const std::optional<Place> next = NextOf(stage);
    if (!next.has_value()) return false;
    const PipelineItem& item = ItemAt(*next);
    if (item.kind == ItemKind::kCollective) return Meet(item);
    const auto s = static_cast<size_t>(stage);
    double begin = free_[s];
    if (!InputsAreThere(stage, item, &begin)) return false;
    const double duration = DurationOf(stage, item);
    free_[s] = begin + duration;
    SpanAt(*next) = {begin, free_[s]};
    TimeSpan& active = result_.active[s];
    if (active.end == 0) active.begin = begin;
    active.end = free_[s];
    result_.work[s] += duration;
    ++next_[s];
    return true;
  }

  // A collective, if all of its stages are there.
  bool Meet(const PipelineItem& item) {
    const auto& stages = schedule_.collectives[static_cast<size_t>(item.micro_batch)].stages;
    double time = 0;
    for (const int stage : stages) {
      const std::optional<Place> next = NextOf(stage);
      if (!next.has_value() || !(ItemAt(*next) == item)) return false;
      time = std::max(time, free_[static_cast<size_t>(stage)]);
    }
    for (const int stage : stages) {
      SpanAt(*NextOf(stage)) = {time, time};
      free_[static_cast<size_t>(stage)] = time;
      ++next_[static_cast<size_t>(stage)];
    }
    return true;
  }

  const PipelineSchedule& schedule_;
  const PipelineShape& shape_;
  const PipelineTimes& times_;
  const std::vector<ListIndex>& indices_;
  // Of each stage: the positions of what it computes, collectives among it, and the next of these.
  std::vector<std::vector<int>> computations_;
  std::vector<size_t> next_;
  // When each stage has ended what it does.
  std::vector<double> free_;
  std::vector<Transfer> transfers_;
  std::vector<Channel> channels_;
  std::map<std::tuple<int, int, int, bool>, size_t> channel_of_;
  Simulation result_;
};

}  // namespace

PipelineTimes EqualTimes(const PipelineShape& shape, const StageTimes& times) {
  const auto parts = static_cast<size_t>(shape.parts());
  const double chunks = shape.schedule.chunks;
  return {.forward = std::vector<double>(parts, times.forward / chunks),
          .backward_input = std::vector<double>(parts, times.backward_input / chunks),
          .backward_weight = std::vector<double>(parts, times.backward_weight / chunks)};
}

double Simulation::Bubble() const { return makespan - *std::max_element(work.begin(), work.end()); }

double Simulation::LongestWait() const {
  double longest = 0;
  for (size_t s = 0; s < work.size(); ++s) {
    longest = std::max(longest, active[s].end - active[s].begin - work[s]);
  }
  return longest;
}

absl::StatusOr<Simulation> Simulate(const PipelineSchedule& schedule, const PipelineTimes& times) {
  BRIGADE_ASSIGN_OR_RETURN(const auto indices, IndexLists(schedule));
  BRIGADE_RETURN_IF_ERROR(Validate(schedule.shape, times));
  return Clock(schedule, times, indices).Run();
}

}  // namespace brigade::parallel
