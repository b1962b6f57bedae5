#include "brigade/examples/gpt/recorder.h"

#include <chrono>

namespace brigade::gpt {
namespace {

// The tracer has room for 64 Ki operations of a stream: more than a stream runs in that time.
constexpr auto kInterval = std::chrono::milliseconds(100);

int64_t NowNs() {
  return std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
}

}  // namespace

Recorder::Recorder(ChromeTrace* trace) : trace_(trace), thread_([this] { Loop(); }) {}

Recorder::~Recorder() {
  {
    std::lock_guard lock(mutex_);
    closing_ = true;
    closing_changed_.notify_one();
  }
  thread_.join();
}

void Recorder::Loop() {
  std::unique_lock lock(mutex_);
  while (!closing_changed_.wait_for(lock, kInterval, [this] { return closing_; })) Empty();
}

void Recorder::Empty() {
  const std::vector<device::TracedStream> streams = tracer_.Take();
  for (const device::TracedStream& stream : streams) {
    Rank& rank = ranks_[std::string(stream.context)];
    const auto [entry, is_new] =
        rank.streams.emplace(std::string(stream.stream), static_cast<int>(rank.streams.size()));
    if (rank.split != nullptr) rank.split->Add(entry->second, stream.operations);
  }
  if (trace_ != nullptr) status_.Update(trace_->Append(streams));
}

void Recorder::Begin(const std::string& context) {
  std::lock_guard lock(mutex_);
  Empty();
  Rank& rank = ranks_[context];
  rank.split = std::make_unique<TimeSplit>(static_cast<int>(rank.streams.size()), NowNs());
}

Seconds Recorder::End(const std::string& context) {
  std::lock_guard lock(mutex_);
  Empty();
  Rank& rank = ranks_[context];
  const Seconds seconds = rank.split->Finish(NowNs());
  rank.split.reset();
  return seconds;
}

absl::Status Recorder::Finish() {
  std::lock_guard lock(mutex_);
  Empty();
  if (trace_ != nullptr) status_.Update(trace_->Finish());
  trace_ = nullptr;
  return status_;
}

}  // namespace brigade::gpt
