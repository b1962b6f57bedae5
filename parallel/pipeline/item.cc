#include "brigade/parallel/pipeline/item.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "brigade/device/status_macros.h"

namespace brigade::parallel {
namespace {

// What the two ends of a transfer are called, and the part of the model from the own one to the
// peer's.
struct Direction {
  ItemKind peer;
  int step;
};

Direction DirectionOf(ItemKind kind) {
  switch (kind) {
    case ItemKind::kSendActivation:
      return {ItemKind::kReceiveActivation, 1};
    case ItemKind::kReceiveActivation:
      return {ItemKind::kSendActivation, -1};
    case ItemKind::kSendGradient:
      return {ItemKind::kReceiveGradient, -1};
    default:
      return {ItemKind::kSendGradient, 1};
  }
}

absl::string_view Letter(ItemKind kind) {
  switch (kind) {
    case ItemKind::kForward:
      return "F";
    case ItemKind::kBackward:
    case ItemKind::kBackwardInput:
      return "B";
    case ItemKind::kBackwardWeight:
      return "W";
    case ItemKind::kSendActivation:
      return ">a";
    case ItemKind::kReceiveActivation:
      return "<a";
    case ItemKind::kSendGradient:
      return ">g";
    case ItemKind::kReceiveGradient:
      return "<g";
    case ItemKind::kCollective:
      break;
  }
  return "";
}

}  // namespace

bool IsComputation(ItemKind kind) { return kind <= ItemKind::kBackwardWeight; }

bool IsTransfer(ItemKind kind) {
  return kind >= ItemKind::kSendActivation && kind <= ItemKind::kReceiveGradient;
}

bool IsSend(ItemKind kind) {
  return kind == ItemKind::kSendActivation || kind == ItemKind::kSendGradient;
}

absl::Status Validate(const StageCollective& collective, size_t stages) {
  int least = 0;
  for (const int stage : collective.stages) {
    if (stage < least || static_cast<size_t>(stage) >= stages) {
      return absl::InvalidArgumentError(absl::StrCat(
          "pipeline: ", collective.name, " of stages ", absl::StrJoin(collective.stages, ", "),
          "; they must be of ", stages, " stages, in ascending order"));
    }
    least = stage + 1;
  }
  return absl::OkStatus();
}

std::vector<int> RunsOf(const StageList& list) {
  std::vector<int> runs;
  for (const PipelineItem& item : list) {
    if (!IsComputation(item.kind)) continue;
    if (runs.empty() || runs.back() != item.chunk) runs.push_back(item.chunk);
  }
  return runs;
}

absl::Status AddCollective(StageCollective collective, PipelineSchedule& schedule) {
  BRIGADE_RETURN_IF_ERROR(Validate(collective, schedule.lists.size()));
  const int index = static_cast<int>(schedule.collectives.size());
  for (const int stage : collective.stages) {
    schedule.lists[static_cast<size_t>(stage)].push_back({ItemKind::kCollective, 0, index});
  }
  schedule.collectives.push_back(std::move(collective));
  return absl::OkStatus();
}

std::optional<TransferEnd> PeerOf(const PipelineShape& shape, int stage,
                                  const PipelineItem& transfer) {
  const auto [kind, step] = DirectionOf(transfer.kind);
  const int part = PartOf(shape, stage, transfer.chunk) + step;
  if (part < 0 || part >= shape.parts()) return std::nullopt;
  const PartPlace place = PlaceOf(shape, part);
  if (place.stage == stage) return std::nullopt;
  return TransferEnd{place.stage, {kind, place.chunk, transfer.micro_batch}};
}

std::string ToString(const PipelineSchedule& schedule, const PipelineItem& item) {
  if (item.kind == ItemKind::kCollective) {
    const auto index = static_cast<size_t>(item.micro_batch);
    return index < schedule.collectives.size() ? schedule.collectives[index].name
                                               : absl::StrCat("collective ", item.micro_batch);
  }
  std::string text = absl::StrCat(Letter(item.kind), item.micro_batch);
  for (int chunk = 0; chunk < item.chunk; ++chunk) text += '\'';
  return text;
}

std::string ToString(const PipelineSchedule& schedule, const StageList& list) {
  return absl::StrJoin(list, " ", [&](std::string* text, const PipelineItem& item) {
    text->append(ToString(schedule, item));
  });
}

}  // namespace brigade::parallel
