#include "brigade/train/observers/rank_lanes.h"

#include <algorithm>
#include <cstddef>
#include <nlohmann/json.hpp>
#include <utility>

#include "brigade/collectives/agree.h"
#include "brigade/device/files.h"
#include "brigade/device/status_macros.h"
#include "brigade/device/threads/start_thread.h"
#include "brigade/train/times/clock.h"

namespace brigade::train {
namespace {

using Json = nlohmann::json;

// Recorders see steps in heaps, of which two ranks have different ones.
constexpr size_t kMostSteps = 512;
// Of a list: of a step with more the first ones are shown.
constexpr size_t kMostSpans = 4096;

// Of the boot of this machine's kernel, whose processes have one steady clock; 0: not known.
int64_t BootOf() {
  constexpr int64_t kMostBytes = 1024;
  const auto id = device::ReadFile("/proc/sys/kernel/random/boot_id", kMostBytes);
  return id.ok() ? static_cast<int64_t>(collectives::Fnv1a(*id)) : 0;
}

Json OfSpans(const std::vector<StepTime::Span>& spans) {
  Json all = Json::array();
  for (size_t i = 0; i < std::min(spans.size(), kMostSpans); ++i) {
    all.push_back({spans[i].name, spans[i].begin_ns, spans[i].end_ns});
  }
  return all;
}

bool AreNumbers(const Json& json, size_t count, bool are_whole) {
  return json.is_array() && json.size() == count &&
         std::all_of(json.begin(), json.end(), [&](const Json& each) {
           return are_whole ? each.is_number_integer() : each.is_number();
         });
}

bool Read(const Json& json, std::vector<StepTime::Span>& spans) {
  if (!json.is_array()) return false;
  for (const Json& each : json) {
    if (!each.is_array() || each.size() != 3 || !each[0].is_string() ||
        !each[1].is_number_integer() || !each[2].is_number_integer()) {
      return false;
    }
    spans.push_back({each[0], each[1], each[2]});
  }
  return true;
}

void Move(int64_t by_ns, StepTime& step) {
  step.begin_ns += by_ns;
  step.end_ns += by_ns;
  for (auto* const spans : {&step.lists, &step.others}) {
    for (StepTime::Span& span : *spans) {
      span.begin_ns += by_ns;
      span.end_ns += by_ns;
    }
  }
}

}  // namespace

std::string ToText(const StepTime& step) {
  const Seconds& split = step.split;
  const Json json = {
      {"step", {step.step, step.begin_ns, step.end_ns}},
      {"split",
       {split.gemm, split.other_compute, split.optimizer, split.exposed_communication, split.idle}},
      {"lists", OfSpans(step.lists)},
      {"others", OfSpans(step.others)}};
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

absl::StatusOr<StepTime> StepTimeFromText(absl::string_view text) {
  const Json json = Json::parse(text.begin(), text.end(), nullptr, /*allow_exceptions=*/false);
  const auto wrong = absl::InvalidArgumentError("what a rank has told is no step");
  if (!json.is_object()) return wrong;
  for (const char* const key : {"step", "split", "lists", "others"}) {
    if (!json.contains(key)) return wrong;
  }
  StepTime step;
  if (!AreNumbers(json["step"], 3, /*are_whole=*/true) ||
      !AreNumbers(json["split"], 5, /*are_whole=*/false) || !Read(json["lists"], step.lists) ||
      !Read(json["others"], step.others)) {
    return wrong;
  }
  step.step = json["step"][0];
  step.begin_ns = json["step"][1];
  step.end_ns = json["step"][2];
  const Json& split = json["split"];
  step.split = {.gemm = split[0],
                .other_compute = split[1],
                .optimizer = split[2],
                .exposed_communication = split[3],
                .idle = split[4]};
  return step;
}

RankLanes::RankLanes(Sink sink, absl::Duration interval)
    : sink_(std::move(sink)), interval_(interval) {}

RankLanes::~RankLanes() { Abort(); }

void RankLanes::Keep(std::vector<StepTime> steps) {
  if (!active()) return;
  device::MutexLock lock(mutex_);
  for (StepTime& step : steps) {
    if (step.step <= last_kept_) {
      steps_.clear();
      ++returns_;
    }
    last_kept_ = step.step;
    steps_.push_back(std::move(step));
  }
  while (steps_.size() > kMostSteps) steps_.pop_front();
}

absl::Status RankLanes::Start(RankLanes* lanes, collectives::Communicator& world) {
  const bool has_lanes = lanes != nullptr && !lanes->thread_.joinable();
  BRIGADE_ASSIGN_OR_RETURN(const auto all, world.AllGatherHost({has_lanes ? 1 : 0}));
  if (std::find(all.begin(), all.end(), 0) != all.end() || world.size() == 1) {
    return absl::OkStatus();
  }
  return lanes->Begin(world);
}

absl::Status RankLanes::Begin(collectives::Communicator& world) {
  // What a training before this one has left.
  clock_ns_ = 0;
  {
    device::MutexLock lock(mutex_);
    done_ = false;
    steps_.clear();
    last_kept_ = -1;
    returns_ = 0;
  }
  BRIGADE_ASSIGN_OR_RETURN(channel_, world.CreateHostChannel());
  const int64_t boot = BootOf();
  BRIGADE_ASSIGN_OR_RETURN(const auto boots, channel_->AllGatherHost({boot}));
  const int64_t now = SteadyNs();
  BRIGADE_ASSIGN_OR_RETURN(const auto clocks, channel_->AllGatherHost({now}));
  if (boot == 0 || boot != boots[0]) clock_ns_ = clocks[0] - now;
  active_ = true;
  thread_ = device::StartThread([this] { Loop(); });
  if (!thread_.joinable()) {
    active_ = false;
    channel_->Abort(absl::UnavailableError("a rank has no thread for the times of its steps"));
  }
  return absl::OkStatus();
}

void RankLanes::Loop() {
  for (bool ended = false; !ended;) {
    bool done = false;
    {
      device::MutexLock lock(mutex_);
      if (!done_) ends_.WaitWithTimeout(mutex_, interval_);
      done = done_;
    }
    const absl::StatusOr<bool> all_done = Exchange(done);
    // The others must not wait for a rank that is through.
    if (!all_done.ok()) channel_->Abort(all_done.status());
    ended = !all_done.ok() || *all_done;
  }
  active_ = false;
}

absl::StatusOr<bool> RankLanes::Exchange(bool done) {
  int64_t oldest = 0, newest = -1, returns = 0;
  {
    device::MutexLock lock(mutex_);
    returns = returns_;
    if (!steps_.empty()) {
      oldest = steps_.front().step;
      newest = steps_.back().step;
    }
  }
  constexpr int kNumbers = 4;
  BRIGADE_ASSIGN_OR_RETURN(const auto all,
                           channel_->AllGatherHost({done ? 1 : 0, oldest, newest, returns}));
  bool all_done = true, same_returns = true;
  // The last step that all have: the same on all ranks.
  int64_t first = 0, last = newest;
  for (size_t at = 0; at < all.size(); at += kNumbers) {
    all_done = all_done && all[at] != 0;
    first = std::max(first, all[at + 1]);
    last = std::min(last, all[at + 2]);
    same_returns = same_returns && all[at + 3] == all[3];
  }
  if (last < first || !same_returns) return all_done;
  std::string mine;
  {
    device::MutexLock lock(mutex_);
    // They may have changed meanwhile: of those behind another return none is meant.
    while (returns_ == returns && !steps_.empty() && steps_.front().step <= last) {
      if (steps_.front().step == last) {
        Move(clock_ns_, steps_.front());
        mine = ToText(steps_.front());
      }
      steps_.pop_front();
    }
  }
  // A rank may have none of that number: it was pushed out meanwhile, or never made.
  BRIGADE_ASSIGN_OR_RETURN(const auto texts, collectives::AllGatherBytes(mine, *channel_));
  if (channel_->rank() != 0) return all_done;
  std::vector<StepTime> steps;
  for (const std::string& text : texts) {
    if (text.empty()) return all_done;
    BRIGADE_ASSIGN_OR_RETURN(StepTime step, StepTimeFromText(text));
    steps.push_back(std::move(step));
  }
  sink_(std::move(steps));
  return all_done;
}

void RankLanes::Finish() {
  {
    device::MutexLock lock(mutex_);
    done_ = true;
    ends_.SignalAll();
  }
  if (thread_.joinable()) thread_.join();
}

void RankLanes::Abort() {
  if (thread_.joinable()) {
    channel_->Abort(absl::CancelledError("this rank's training has ended"));
    Finish();
  }
  channel_.reset();
}

}  // namespace brigade::train
