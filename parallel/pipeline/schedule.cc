#include "brigade/parallel/pipeline/schedule.h"

#include <algorithm>
#include <array>

#include "brigade/device/status_macros.h"
#include "brigade/parallel/pipeline/transfers.h"

namespace brigade::parallel {
namespace {

StageList Gpipe(int micro_batches) {
  StageList list;
  for (const ItemKind kind : {ItemKind::kForward, ItemKind::kBackward}) {
    for (int i = 0; i < micro_batches; ++i) list.push_back({kind, 0, i});
  }
  return list;
}

// Forward passes alone, then each with a backward pass, then the rest of these. With one chunk this
// is 1F1B. `weights_after`: the gradients of weights are apart, and come as many micro-batches
// later; negative: they are not.
StageList OneForwardOneBackward(const PipelineShape& shape, int warm_up, int weights_after) {
  const int p = shape.stages, m = shape.micro_batches, v = shape.schedule.chunks;
  const bool splits = weights_after >= 0;
  const ItemKind backward = splits ? ItemKind::kBackwardInput : ItemKind::kBackward;
  const auto pass = [&](ItemKind kind, int k) {
    if (v == 1) return PipelineItem{kind, 0, k};
    const int group = k / (p * v), chunk = k % (p * v) / p;
    return PipelineItem{kind, kind == ItemKind::kForward ? chunk : v - 1 - chunk,
                        group * p + k % p};
  };
  const int passes = m * v;
  StageList list;
  for (int k = 0; k < std::min(warm_up, passes); ++k) list.push_back(pass(ItemKind::kForward, k));
  for (int k = 0; k < passes; ++k) {
    if (warm_up + k < passes) list.push_back(pass(ItemKind::kForward, warm_up + k));
    list.push_back(pass(backward, k));
    if (splits && k >= weights_after) {
      list.push_back(pass(ItemKind::kBackwardWeight, k - weights_after));
    }
  }
  if (splits) {
    for (int k = std::max(passes - weights_after, 0); k < passes; ++k) {
      list.push_back(pass(ItemKind::kBackwardWeight, k));
    }
  }
  return list;
}

// Writes the list of one stage of ZB-V. Each pass goes on with its chunk's next micro-batch.
class ZeroBubbleV {
 public:
  // The list is that of at least 2p - 1 micro-batches, which all its phases need; of fewer it has
  // those that there are.
  explicit ZeroBubbleV(const PipelineShape& shape)
      : micro_batches_(shape.micro_batches),
        counted_(std::max(shape.micro_batches, 2 * shape.stages - 1)) {}

  StageList OfStage(int stage, int stages) && {
    const int from_the_end = stages - stage;
    for (int i = 0; i < 2 * from_the_end - 1; ++i) Add(ItemKind::kForward, 0);
    for (int i = 0; i < stage; ++i) {
      Add(ItemKind::kForward, 1);
      Add(ItemKind::kForward, 0);
    }
    for (int i = 0; i < from_the_end; ++i) {
      Add(ItemKind::kForward, 1);
      AddBackward(1);
    }
    while (Next(ItemKind::kForward, 1) < counted_) {
      if (Next(ItemKind::kForward, 0) < counted_) Add(ItemKind::kForward, 0);
      AddBackward(0);
      Add(ItemKind::kForward, 1);
      AddBackward(1);
    }
    for (int i = 0; i < stage; ++i) {
      Add(ItemKind::kBackwardInput, 0);
      Add(ItemKind::kBackwardInput, 1);
    }
    while (Next(ItemKind::kBackwardInput, 0) < counted_) AddBackward(0);
    for (const int chunk : {1, 0}) {
      while (Next(ItemKind::kBackwardWeight, chunk) < counted_) {
        Add(ItemKind::kBackwardWeight, chunk);
      }
    }
    return std::move(list_);
  }

 private:
  int& Next(ItemKind kind, int chunk) {
    return next_[static_cast<size_t>(kind)][static_cast<size_t>(chunk)];
  }

  void Add(ItemKind kind, int chunk) {
    const int micro_batch = Next(kind, chunk)++;
    if (micro_batch < micro_batches_) list_.push_back({kind, chunk, micro_batch});
  }

  void AddBackward(int chunk) {
    Add(ItemKind::kBackwardInput, chunk);
    Add(ItemKind::kBackwardWeight, chunk);
  }

  const int micro_batches_, counted_;
  std::array<std::array<int, 2>, 4> next_ = {};
  StageList list_;
};

StageList ListOf(const PipelineShape& shape, int stage) {
  const int after = shape.stages - 1 - stage;
  switch (shape.schedule.kind) {
    case ScheduleKind::kGpipe:
      break;
    case ScheduleKind::kOneForwardOneBackward:
      return OneForwardOneBackward(shape, after, -1);
    case ScheduleKind::kInterleaved:
      return OneForwardOneBackward(shape, 2 * after + (shape.schedule.chunks - 1) * shape.stages,
                                   -1);
    case ScheduleKind::kZeroBubbleH1:
      return OneForwardOneBackward(shape, after, stage);
    case ScheduleKind::kZeroBubbleV:
      return ZeroBubbleV(shape).OfStage(stage, shape.stages);
  }
  return Gpipe(shape.micro_batches);
}

}  // namespace

absl::StatusOr<PipelineSchedule> ComputationsOf(const PipelineShape& shape) {
  BRIGADE_RETURN_IF_ERROR(Validate(shape));
  PipelineSchedule schedule = {.shape = shape};
  for (int stage = 0; stage < shape.stages; ++stage) {
    schedule.lists.push_back(ListOf(shape, stage));
  }
  return schedule;
}

absl::StatusOr<PipelineSchedule> CreateSchedule(const PipelineShape& shape) {
  BRIGADE_ASSIGN_OR_RETURN(PipelineSchedule schedule, ComputationsOf(shape));
  BRIGADE_RETURN_IF_ERROR(PlaceTransfers(schedule));
  return schedule;
}

}  // namespace brigade::parallel
