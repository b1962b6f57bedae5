#include "brigade/parallel/pipeline/transfers.h"

#include <algorithm>
#include <tuple>
#include <utility>
#include <vector>

#include "brigade/device/status_macros.h"
#include "brigade/parallel/pipeline/simulate.h"

namespace brigade::parallel {
namespace {

// One end of a transfer, for the list of its stage.
struct Placed {
  double time;
  bool is_gradient;
  int micro_batch;
  // That has computed what is sent.
  int part;
  PipelineItem item;

  friend bool operator<(const Placed& a, const Placed& b) {
    const auto key = [](const Placed& x) {
      return std::tuple(x.time, x.is_gradient, x.micro_batch, x.part);
    };
    return key(a) < key(b);
  }
};

bool MakesGradientOfInput(ItemKind kind) {
  return kind == ItemKind::kBackward || kind == ItemKind::kBackwardInput;
}

}  // namespace

absl::Status PlaceTransfers(PipelineSchedule& computations) {
  const PipelineShape& shape = computations.shape;
  // All chunks of a stage take its time.
  const double chunks = shape.schedule.chunks;
  BRIGADE_ASSIGN_OR_RETURN(const Simulation clock,
                           Simulate(computations, EqualTimes(shape, {chunks, chunks, chunks})));
  std::vector<std::vector<Placed>> transfers(computations.lists.size());
  for (int stage = 0; stage < shape.stages; ++stage) {
    const auto s = static_cast<size_t>(stage);
    for (size_t i = 0; i < computations.lists[s].size(); ++i) {
      const auto [kind, chunk, micro_batch] = computations.lists[s][i];
      const bool is_gradient = MakesGradientOfInput(kind);
      if (kind != ItemKind::kForward && !is_gradient) continue;
      const PipelineItem send = {is_gradient ? ItemKind::kSendGradient : ItemKind::kSendActivation,
                                 chunk, micro_batch};
      const auto peer = PeerOf(shape, stage, send);
      if (!peer.has_value()) continue;
      Placed placed = {clock.spans[s][i].end, is_gradient, micro_batch, PartOf(shape, stage, chunk),
                       send};
      transfers[s].push_back(placed);
      placed.item = peer->item;
      transfers[static_cast<size_t>(peer->stage)].push_back(placed);
    }
  }
  for (size_t s = 0; s < transfers.size(); ++s) {
    std::sort(transfers[s].begin(), transfers[s].end());
    StageList list;
    auto next = transfers[s].begin();
    for (size_t i = 0; i < computations.lists[s].size(); ++i) {
      for (; next != transfers[s].end() && next->time <= clock.spans[s][i].begin; ++next) {
        list.push_back(next->item);
      }
      list.push_back(computations.lists[s][i]);
    }
    for (; next != transfers[s].end(); ++next) list.push_back(next->item);
    computations.lists[s] = std::move(list);
  }
  return absl::OkStatus();
}

}  // namespace brigade::parallel
