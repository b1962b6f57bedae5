#include "brigade/parallel/pipeline/check.h"

#include <algorithm>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "brigade/device/status_macros.h"
#include "brigade/parallel/pipeline/list_index.h"

namespace brigade::parallel {
namespace {

// The items of one chunk of a stage for one micro-batch.
struct Passes {
  PipelineItem forward, backward, weight;
  bool splits;

  // After which nothing of the chunk's activations is read.
  const PipelineItem& last() const { return splits ? weight : backward; }
};

// One stage's list by itself.
class StageCheck {
 public:
  StageCheck(const PipelineSchedule& schedule, int stage, const ListIndex& index)
      : schedule_(schedule), shape_(schedule.shape), stage_(stage), index_(index) {}

  absl::Status Check() const {
    for (int chunk = 0; chunk < shape_.schedule.chunks; ++chunk) {
      for (int i = 0; i < shape_.micro_batches; ++i) {
        BRIGADE_RETURN_IF_ERROR(CheckPasses(PassesOf(chunk, i)));
        if (i > 0) {
          BRIGADE_RETURN_IF_ERROR(CheckOrder(PassesOf(chunk, i - 1), PassesOf(chunk, i)));
        }
        BRIGADE_RETURN_IF_ERROR(CheckTransfers(PassesOf(chunk, i)));
      }
    }
    for (size_t i = 0; i < schedule_.collectives.size(); ++i) {
      const auto& stages = schedule_.collectives[i].stages;
      if (std::find(stages.begin(), stages.end(), stage_) == stages.end()) continue;
      BRIGADE_RETURN_IF_ERROR(CheckThere({ItemKind::kCollective, 0, static_cast<int>(i)}));
    }
    return absl::OkStatus();
  }

 private:
  template <typename... What>
  absl::Status Wrong(const PipelineItem& item, const What&... what) const {
    return absl::InvalidArgumentError(
        absl::StrCat("pipeline: ", Show(item), " on stage ", stage_, " ", what...));
  }

  std::string Show(const PipelineItem& item) const { return ToString(schedule_, item); }

  Passes PassesOf(int chunk, int micro_batch) const {
    const PipelineItem weight = {ItemKind::kBackwardWeight, chunk, micro_batch};
    const PipelineItem input = {ItemKind::kBackwardInput, chunk, micro_batch};
    const bool splits = index_.Has(weight) || index_.Has(input);
    return {.forward = {ItemKind::kForward, chunk, micro_batch},
            .backward = splits ? input : PipelineItem{ItemKind::kBackward, chunk, micro_batch},
            .weight = weight,
            .splits = splits};
  }

  absl::Status CheckThere(const PipelineItem& item) const {
    return index_.Has(item) ? absl::OkStatus() : Wrong(item, "is missing");
  }

  absl::Status CheckBefore(const PipelineItem& first, const PipelineItem& second,
                           absl::string_view why) const {
    BRIGADE_RETURN_IF_ERROR(CheckThere(first));
    BRIGADE_RETURN_IF_ERROR(CheckThere(second));
    if (index_.PositionOf(first) < index_.PositionOf(second)) return absl::OkStatus();
    return Wrong(second, "comes before ", Show(first), ", ", why);
  }

  absl::Status CheckPasses(const Passes& passes) const {
    const auto [kind, chunk, i] = passes.forward;
    BRIGADE_RETURN_IF_ERROR(
        CheckBefore(passes.forward, passes.backward, "which makes its activations"));
    if (!passes.splits) return absl::OkStatus();
    if (index_.Has({ItemKind::kBackward, chunk, i})) {
      return Wrong(passes.backward, "is there whole and in parts: its activations are freed twice");
    }
    return CheckBefore(passes.backward, passes.weight, "which makes what it reads");
  }

  absl::Status CheckOrder(const Passes& before, const Passes& passes) const {
    constexpr char kWhy[] = "but gradients are added in ascending micro-batches";
    BRIGADE_RETURN_IF_ERROR(CheckBefore(before.backward, passes.backward, kWhy));
    return CheckBefore(before.last(), passes.last(), kWhy);
  }

  // Where the neighbouring parts are on other stages, what is exchanged with them; else, that the
  // other chunk of this stage comes first.
  absl::Status CheckTransfers(const Passes& passes) const {
    const auto [kind, chunk, i] = passes.forward;
    const int part = PartOf(shape_, stage_, chunk);
    if (part > 0) {
      BRIGADE_RETURN_IF_ERROR(
          CheckInput({ItemKind::kReceiveActivation, chunk, i}, part - 1, passes.forward));
      BRIGADE_RETURN_IF_ERROR(CheckOutput({ItemKind::kSendGradient, chunk, i}, passes.backward));
    }
    if (part < shape_.parts() - 1) {
      BRIGADE_RETURN_IF_ERROR(
          CheckInput({ItemKind::kReceiveGradient, chunk, i}, part + 1, passes.backward));
      BRIGADE_RETURN_IF_ERROR(CheckOutput({ItemKind::kSendActivation, chunk, i}, passes.forward));
    }
    return absl::OkStatus();
  }

  absl::Status CheckInput(const PipelineItem& receive, int part, const PipelineItem& user) const {
    if (PeerOf(shape_, stage_, receive).has_value()) {
      return CheckBefore(receive, user, "which brings what it reads");
    }
    const Passes maker = PassesOf(PlaceOf(shape_, part).chunk, receive.micro_batch);
    return CheckBefore(
        receive.kind == ItemKind::kReceiveActivation ? maker.forward : maker.backward, user,
        "which makes what it reads");
  }

  absl::Status CheckOutput(const PipelineItem& send, const PipelineItem& maker) const {
    if (!PeerOf(shape_, stage_, send).has_value()) return absl::OkStatus();
    return CheckBefore(maker, send, "which makes what it sends");
  }

  const PipelineSchedule& schedule_;
  const PipelineShape& shape_;
  const int stage_;
  const ListIndex& index_;
};

// Takes the nodes off the graph that no edge leads to any more: those whose items are, on all of
// their stages, the first ones that are left. What cannot be taken off has a cycle.
class Graph {
 public:
  explicit Graph(const PipelineSchedule& schedule)
      : schedule_(schedule), first_left_(schedule.lists.size(), 0) {}

  absl::Status Check() && {
    std::vector<int> stages;
    for (int stage = 0; stage < schedule_.shape.stages; ++stage) stages.push_back(stage);
    while (!stages.empty()) {
      const int stage = stages.back();
      stages.pop_back();
      while (FirstLeft(stage) != nullptr && WaitsFor(stage) == kNone) {
        for (const int each : StagesOf(stage, *FirstLeft(stage))) {
          ++first_left_[static_cast<size_t>(each)];
          if (each != stage) stages.push_back(each);
        }
      }
    }
    for (int stage = 0; stage < schedule_.shape.stages; ++stage) {
      if (FirstLeft(stage) != nullptr) return Cycle(stage);
    }
    return absl::OkStatus();
  }

 private:
  static constexpr int kNone = -1;

  // Null: none.
  const PipelineItem* FirstLeft(int stage) const {
    const auto s = static_cast<size_t>(stage);
    const StageList& list = schedule_.lists[s];
    return first_left_[s] < list.size() ? &list[first_left_[s]] : nullptr;
  }

  // That have an item of this one's node.
  std::vector<int> StagesOf(int stage, const PipelineItem& item) const {
    if (item.kind == ItemKind::kCollective) {
      return schedule_.collectives[static_cast<size_t>(item.micro_batch)].stages;
    }
    if (IsTransfer(item.kind)) return {stage, PeerOf(schedule_.shape, stage, item)->stage};
    return {stage};
  }

  // A stage that has something else to do before the node of this stage's first item; kNone: none.
  int WaitsFor(int stage) const {
    const PipelineItem& item = *FirstLeft(stage);
    const PipelineItem other_end =
        IsTransfer(item.kind) ? PeerOf(schedule_.shape, stage, item)->item : item;
    for (const int each : StagesOf(stage, item)) {
      const PipelineItem* const first = FirstLeft(each);
      if (each != stage && (first == nullptr || !(*first == other_end))) return each;
    }
    return kNone;
  }

  // Where every stage on the way from this one waits for the next.
  absl::Status Cycle(int stage) const {
    std::vector<int> way;
    auto begin = way.end();
    for (; begin == way.end(); begin = std::find(way.begin(), way.end(), stage)) {
      way.push_back(stage);
      stage = WaitsFor(stage);
    }
    std::vector<std::string> waits;
    for (; begin != way.end(); ++begin) {
      waits.push_back(absl::StrCat(ToString(schedule_, *FirstLeft(*begin)), " on stage ", *begin,
                                   " for stage ", WaitsFor(*begin)));
    }
    return absl::InvalidArgumentError(
        absl::StrCat("pipeline: the lists wait for each other: ", absl::StrJoin(waits, ", ")));
  }

  const PipelineSchedule& schedule_;
  // Positions on the lists.
  std::vector<size_t> first_left_;
};

}  // namespace

absl::StatusOr<std::vector<StageBuffers>> Check(const PipelineSchedule& schedule) {
  BRIGADE_ASSIGN_OR_RETURN(const auto indices, IndexLists(schedule));
  std::vector<StageCheck> checks;
  for (int stage = 0; stage < schedule.shape.stages; ++stage) {
    checks.emplace_back(schedule, stage, indices[static_cast<size_t>(stage)]);
  }
  for (const StageCheck& check : checks) BRIGADE_RETURN_IF_ERROR(check.Check());
  BRIGADE_RETURN_IF_ERROR(Graph(schedule).Check());
  std::vector<StageBuffers> buffers;
  for (int stage = 0; stage < schedule.shape.stages; ++stage) {
    buffers.push_back(BufferPlan(schedule, stage, indices[static_cast<size_t>(stage)]).counts());
  }
  return buffers;
}

}  // namespace brigade::parallel
