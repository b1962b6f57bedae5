#include "brigade/train/times/recorder.h"

#include <utility>

#include "brigade/train/times/clock.h"

namespace brigade::train {
namespace {

// The tracer has room for 64 Ki operations of a stream: more than a stream runs in that time.
constexpr absl::Duration kInterval = absl::Milliseconds(100);

}  // namespace

Recorder::Recorder(ChromeTrace* trace, StepSink step_sink)
    : step_sink_(std::move(step_sink)), trace_(trace), thread_(kInterval, [this] {
        device::MutexLock lock(mutex_);
        Empty();
      }) {}

void Recorder::Empty() {
  const std::vector<device::TracedStream> streams = tracer_.Take();
  for (const device::TracedStream& stream : streams) {
    Rank& rank = ranks_[std::string(stream.context)];
    const auto [entry, is_new] =
        rank.streams.emplace(std::string(stream.stream), static_cast<int>(rank.streams.size()));
    if (rank.watched != nullptr) {
      auto& kept = rank.watched->streams;
      if (kept.size() < rank.streams.size()) kept.resize(rank.streams.size());
      profile::StreamOperations& to = kept[static_cast<size_t>(entry->second)];
      to.stream = std::string(stream.stream);
      to.operations.insert(to.operations.end(), stream.operations.begin(), stream.operations.end());
      rank.watched->dropped += stream.dropped;
    }
    if (rank.split == nullptr) continue;
    rank.split->Add(entry->second, stream.operations);
    rank.passes.Add(entry->second, stream.operations);
    if (rank.steps != nullptr) rank.steps->Add(entry->second, stream.operations);
    rank.dropped += stream.dropped;
  }
  for (auto& [name, rank] : ranks_) {
    if (rank.steps == nullptr) continue;
    if (std::vector<StepTime> steps = rank.steps->Take(); !steps.empty()) {
      step_sink_(name, std::move(steps));
    }
  }
  if (trace_ != nullptr) Note(trace_->Append(streams));
}

void Recorder::Begin(absl::string_view context, int64_t steps) {
  device::MutexLock lock(mutex_);
  Empty();
  Rank& rank = ranks_[std::string(context)];
  rank.split = std::make_unique<TimeSplit>(static_cast<int>(rank.streams.size()), SteadyNs());
  rank.passes = {};
  if (step_sink_ != nullptr) rank.steps = std::make_unique<StepTimes>(steps);
}

Recording Recorder::End(absl::string_view context) {
  device::MutexLock lock(mutex_);
  Empty();
  Rank& rank = ranks_[std::string(context)];
  Recording recording = {rank.split->Finish(SteadyNs()), rank.passes.Stages()};
  recording.time.dropped += rank.dropped;
  if (rank.steps != nullptr) {
    if (std::vector<StepTime> steps = rank.steps->Finish(); !steps.empty()) {
      step_sink_(context, std::move(steps));
    }
    rank.steps.reset();
  }
  rank.split.reset();
  rank.dropped = 0;
  return recording;
}

void Recorder::Note(const absl::Status& status) {
  device::MutexLock lock(status_mutex_);
  status_.Update(status);
}

void Recorder::Watch(absl::string_view context) {
  device::MutexLock lock(mutex_);
  ranks_[std::string(context)].watched = std::make_unique<Operations>();
  Empty();
}

Recorder::Operations Recorder::Watched(absl::string_view context) {
  device::MutexLock lock(mutex_);
  Empty();
  const std::unique_ptr<Operations> watched = std::move(ranks_[std::string(context)].watched);
  return watched == nullptr ? Operations() : std::move(*watched);
}

absl::Status Recorder::status() const {
  device::MutexLock lock(status_mutex_);
  return status_;
}

absl::Status Recorder::Finish() {
  device::MutexLock lock(mutex_);
  Empty();
  if (trace_ != nullptr) Note(trace_->Finish());
  trace_ = nullptr;
  return status();
}

}  // namespace brigade::train
