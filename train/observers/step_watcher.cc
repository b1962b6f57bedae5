#include "brigade/train/observers/step_watcher.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "brigade/train/times/clock.h"

namespace brigade::train {
namespace {

// As often as anybody looks.
constexpr int64_t kTimelineNs = 300 * 1000 * 1000;
// Ranks are in the same step, or the next: older ones of which some rank says nothing are left out.
constexpr size_t kMostSteps = 256;

std::vector<monitor::Timeline::Span> SpansOf(const std::vector<StepTime::Span>& spans,
                                             int64_t begin_ns) {
  std::vector<monitor::Timeline::Span> all;
  for (const StepTime::Span& span : spans) {
    all.push_back({span.name, 1e-9 * static_cast<double>(span.begin_ns - begin_ns),
                   1e-9 * static_cast<double>(span.end_ns - begin_ns)});
  }
  return all;
}

}  // namespace

StepBreakdown BreakdownOf(const StepTime& time) {
  return {.step = time.step,
          .forward = 1e3 * time.passes[PassPart::kForward],
          .backward_inner = 1e3 * (time.passes.backward() + time.passes.recompute()),
          .backward_allreduce = 1e3 * time.split.exposed_communication,
          .update = 1e3 * time.split.optimizer};
}

void StepWatcher::PublishTimeline(const Ranks& ranks) {
  // On a pipeline's later stages a step begins later.
  int64_t begin_ns = ranks.begin()->second.begin_ns, end_ns = begin_ns;
  for (const auto& [name, time] : ranks) {
    begin_ns = std::min(begin_ns, time.begin_ns);
    end_ns = std::max(end_ns, time.end_ns);
  }
  // By number: "rank 10" is behind "rank 9".
  std::vector<std::pair<std::string, const StepTime*>> in_order;
  for (const auto& [name, time] : ranks) in_order.emplace_back(name, &time);
  std::sort(in_order.begin(), in_order.end(), [](const auto& a, const auto& b) {
    return std::pair(a.first.size(), a.first) < std::pair(b.first.size(), b.first);
  });
  const StepTime& first = *in_order[0].second;
  const Seconds& split = first.split;
  monitor::Timeline timeline = {
      .step = first.step,
      .seconds = 1e-9 * static_cast<double>(first.end_ns - first.begin_ns),
      .split = {{"gemm", split.gemm},
                {"other_compute", split.other_compute},
                {"optimizer", split.optimizer},
                {"exposed_communication", split.exposed_communication},
                {"idle", split.idle}}};
  for (const auto& [name, time] : in_order) {
    timeline.lanes.push_back(
        {name, SpansOf(time->lists, begin_ns), SpansOf(time->others, begin_ns)});
  }
  monitor_.Publish(std::move(timeline));
}

void StepWatcher::Show(std::vector<StepTime> of_ranks) {
  if (of_ranks.empty()) return;
  Ranks ranks;
  for (size_t rank = 0; rank < of_ranks.size(); ++rank) {
    ranks[absl::StrCat("rank ", rank)] = std::move(of_ranks[rank]);
  }
  PublishTimeline(ranks);
}

void StepWatcher::Watch(absl::string_view context, std::vector<StepTime> steps, bool shows) {
  if (context == "rank 0") {
    for (const StepTime& time : steps) {
      const StepBreakdown parts = BreakdownOf(time);
      if (options_.on_breakdown != nullptr) options_.on_breakdown(parts);
      if (!options_.has_values) continue;
      monitor::Record record = {.at = {time.step, time.step * options_.samples_of_step},
                                .wall_time = monitor::WallSeconds()};
      record.values = {
          {"Train/Samples/elapsed_time_ms_forward", parts.forward},
          {"Train/Samples/elapsed_time_ms_backward", parts.backward()},
          {"Train/Samples/elapsed_time_ms_backward_inner", parts.backward_inner},
          {"Train/Samples/elapsed_time_ms_backward_allreduce", parts.backward_allreduce},
          {"Train/Samples/elapsed_time_ms_step", parts.update}};
      monitor_.Publish(std::move(record));
    }
  }
  if (!options_.has_timelines || !shows) return;
  device::MutexLock lock(mutex_);
  for (StepTime& time : steps) {
    const int64_t step = time.step;
    Ranks& ranks = steps_[step];
    ranks[std::string(context)] = std::move(time);
    if (ranks.size() < static_cast<size_t>(options_.ranks)) continue;
    if (const int64_t now = SteadyNs(); now - shown_ns_ >= kTimelineNs) {
      PublishTimeline(ranks);
      shown_ns_ = now;
    }
    steps_.erase(steps_.begin(), steps_.upper_bound(step));
  }
  while (steps_.size() > kMostSteps) steps_.erase(steps_.begin());
}

}  // namespace brigade::train
