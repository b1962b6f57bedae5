#include "brigade/parallel/pipeline/list_index.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "brigade/device/status_macros.h"

namespace brigade::parallel {
namespace {

// What is wrong with an item by itself; empty: nothing.
std::string WrongWith(const PipelineSchedule& schedule, int stage, const PipelineItem& item) {
  const PipelineShape& shape = schedule.shape;
  if (item.kind == ItemKind::kCollective) {
    const auto& collectives = schedule.collectives;
    if (item.micro_batch < 0 || static_cast<size_t>(item.micro_batch) >= collectives.size()) {
      return absl::StrCat("there are ", collectives.size(), " collectives");
    }
    const auto& stages = collectives[static_cast<size_t>(item.micro_batch)].stages;
    return std::find(stages.begin(), stages.end(), stage) == stages.end()
               ? "the stage takes no part in it"
               : "";
  }
  if (item.micro_batch < 0 || item.micro_batch >= shape.micro_batches) {
    return absl::StrCat("there are ", shape.micro_batches, " micro-batches");
  }
  if (item.chunk < 0 || item.chunk >= shape.schedule.chunks) {
    return absl::StrCat("chunk ", item.chunk, " is none of ", shape.schedule.chunks);
  }
  if (IsTransfer(item.kind) && !PeerOf(shape, stage, item).has_value()) {
    return "no other stage has the part of the model at its other end";
  }
  return "";
}

}  // namespace

ListIndex::ListIndex(const PipelineShape& shape, size_t collectives)
    : shape_(shape),
      positions_(static_cast<size_t>(ItemKind::kCollective) *
                         static_cast<size_t>(shape.schedule.chunks) *
                         static_cast<size_t>(shape.micro_batches) +
                     collectives,
                 kAbsent) {}

size_t ListIndex::SlotOf(const PipelineItem& item) const {
  // Collectives, which have no chunk, come last.
  const int chunk = item.kind == ItemKind::kCollective ? 0 : item.chunk;
  const auto row = static_cast<size_t>(item.kind) * static_cast<size_t>(shape_.schedule.chunks) +
                   static_cast<size_t>(chunk);
  return row * static_cast<size_t>(shape_.micro_batches) + static_cast<size_t>(item.micro_batch);
}

absl::StatusOr<ListIndex> ListIndex::Create(const PipelineSchedule& schedule, int stage) {
  ListIndex index(schedule.shape, schedule.collectives.size());
  const StageList& list = schedule.lists[static_cast<size_t>(stage)];
  for (size_t i = 0; i < list.size(); ++i) {
    std::string wrong = WrongWith(schedule, stage, list[i]);
    if (wrong.empty()) {
      int& position = index.positions_[index.SlotOf(list[i])];
      if (position == kAbsent) {
        position = static_cast<int>(i);
        continue;
      }
      wrong = "it is there twice";
    }
    return absl::InvalidArgumentError(
        absl::StrCat("pipeline: ", ToString(schedule, list[i]), " on stage ", stage, ": ", wrong));
  }
  return index;
}

int ListIndex::PositionOf(const PipelineItem& item) const { return positions_[SlotOf(item)]; }

absl::StatusOr<std::vector<ListIndex>> IndexLists(const PipelineSchedule& schedule) {
  BRIGADE_RETURN_IF_ERROR(Validate(schedule.shape));
  if (schedule.lists.size() != static_cast<size_t>(schedule.shape.stages)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "pipeline: ", schedule.lists.size(), " lists for ", schedule.shape.stages, " stages"));
  }
  for (const StageCollective& collective : schedule.collectives) {
    BRIGADE_RETURN_IF_ERROR(Validate(collective, schedule.lists.size()));
  }
  std::vector<ListIndex> indices;
  for (int stage = 0; stage < schedule.shape.stages; ++stage) {
    BRIGADE_ASSIGN_OR_RETURN(auto index, ListIndex::Create(schedule, stage));
    indices.push_back(std::move(index));
  }
  return indices;
}

}  // namespace brigade::parallel
