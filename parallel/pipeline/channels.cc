#include "brigade/parallel/pipeline/channels.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "brigade/device/status_macros.h"

namespace brigade::parallel {
namespace {

bool CarriesActivation(ItemKind kind) {
  return kind == ItemKind::kSendActivation || kind == ItemKind::kReceiveActivation;
}

// What a channel carries: of activations or gradients, all, or what goes from one stage to another.
struct Carried {
  static constexpr int kAll = -1;

  bool activations = false;
  int from = kAll, to = kAll;

  friend auto operator<=>(const Carried&, const Carried&) = default;
};

Carried CarriedBy(const PipelineShape& shape, int stage, const PipelineItem& transfer) {
  Carried carried = {.activations = CarriesActivation(transfer.kind)};
  if (ChannelModelOf(shape) == ChannelModel::kOnePerDirection) return carried;
  const int peer = PeerOf(shape, stage, transfer)->stage;
  carried.from = IsSend(transfer.kind) ? stage : peer;
  carried.to = IsSend(transfer.kind) ? peer : stage;
  return carried;
}

// The channels of all stages, with their stages in ascending order.
std::map<Carried, std::set<int>> StagesOfChannels(const PipelineSchedule& schedule) {
  std::map<Carried, std::set<int>> channels;
  for (int stage = 0; stage < schedule.shape.stages; ++stage) {
    for (const PipelineItem& item : schedule.lists[static_cast<size_t>(stage)]) {
      if (!IsTransfer(item.kind)) continue;
      channels[CarriedBy(schedule.shape, stage, item)].insert(stage);
    }
  }
  return channels;
}

std::string NameOf(const Carried& carried) {
  const char* const what = carried.activations ? "activations" : "gradients";
  return carried.from == Carried::kAll
             ? what
             : absl::StrCat(what, " from ", carried.from, " to ", carried.to);
}

}  // namespace

ChannelModel ChannelModelOf(const PipelineShape& shape) {
  return shape.schedule.chunks == 1 ? ChannelModel::kOnePerDirection : ChannelModel::kOnePerEdge;
}

int Channel::RankOf(int stage) const {
  return static_cast<int>(std::find(stages.begin(), stages.end(), stage) - stages.begin());
}

absl::StatusOr<Channels> Channels::Create(const PipelineSchedule& schedule, Grid& grid,
                                          device::Context& context) {
  const int stage = grid.coordinates().pipeline;
  Channels self(schedule.shape, stage);
  std::map<Carried, std::set<int>> left = StagesOfChannels(schedule);
  std::map<Carried, int> own;
  // A stage joins one communicator in each call: so many channels are made at a time as have no
  // stage in common. All stages find the same ones.
  while (!left.empty()) {
    std::set<int> taken;
    int color = 0, mine = -1;
    std::vector<Carried> made;
    for (const auto& [carried, stages] : left) {
      if (std::any_of(stages.begin(), stages.end(),
                      [&](int each) { return taken.contains(each); })) {
        continue;
      }
      taken.insert(stages.begin(), stages.end());
      if (stages.contains(stage)) {
        mine = color;
        own[carried] = static_cast<int>(self.channels_.size());
        self.channels_.push_back({.stages = {stages.begin(), stages.end()}});
        BRIGADE_ASSIGN_OR_RETURN(self.channels_.back().stream,
                                 context.CreateStream(NameOf(carried)));
      }
      ++color;
      made.push_back(carried);
    }
    for (const Carried& carried : made) left.erase(carried);
    BRIGADE_ASSIGN_OR_RETURN(collectives::Communicator* const communicator,
                             grid.Split(GridGroup::kPipeline, mine));
    if (mine >= 0) self.channels_.back().communicator = communicator;
  }
  self.of_transfer_.assign(static_cast<size_t>(4 * schedule.shape.stages), -1);
  for (const PipelineItem& item : schedule.lists[static_cast<size_t>(stage)]) {
    if (!IsTransfer(item.kind)) continue;
    self.of_transfer_[self.SlotOf(item)] = own.at(CarriedBy(schedule.shape, stage, item));
  }
  return self;
}

size_t Channels::SlotOf(const PipelineItem& transfer) const {
  const int direction =
      static_cast<int>(transfer.kind) - static_cast<int>(ItemKind::kSendActivation);
  return static_cast<size_t>(4 * PeerOf(shape_, stage_, transfer)->stage + direction);
}

Channel& Channels::Of(const PipelineItem& transfer) {
  return channels_[static_cast<size_t>(of_transfer_[SlotOf(transfer)])];
}

int64_t Channels::sent_bytes() const {
  int64_t bytes = 0;
  for (const Channel& channel : channels_) {
    for (int to = 0; to < channel.communicator->size(); ++to) {
      bytes += channel.communicator->sent_bytes(to);
    }
  }
  return bytes;
}

}  // namespace brigade::parallel
