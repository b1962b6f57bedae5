#include "brigade/train/times/time_split.h"

#include <algorithm>

#include "absl/strings/match.h"

namespace brigade::train {
namespace {

struct Rule {
  device::TracedOperation::Kind kind;
  absl::string_view name;
  Activity activity;
};

constexpr auto kWork = device::TracedOperation::Kind::kWork;
constexpr auto kWait = device::TracedOperation::Kind::kWait;

constexpr Rule kRules[] = {
    {kWork, "grad_check", Activity::kOptimizer},
    {kWork, "step_control", Activity::kOptimizer},
    {kWork, "adam", Activity::kOptimizer},
    {kWork, "sgd", Activity::kOptimizer},
    {kWork, "adam8", Activity::kOptimizer},
    {kWork, "lion", Activity::kOptimizer},
    {kWork, "adafactor_factors", Activity::kOptimizer},
    {kWork, "adafactor_params", Activity::kOptimizer},
    {kWork, "muon_momentum", Activity::kOptimizer},
    {kWork, "muon_orthogonalize", Activity::kOptimizer},
    {kWork, "muon_params", Activity::kOptimizer},
    // A collective between processes is one operation.
    {kWork, "all_reduce", Activity::kCommunication},
    {kWork, "reduce_scatter", Activity::kCommunication},
    {kWork, "all_gather", Activity::kCommunication},
    {kWork, "all_to_all", Activity::kCommunication},
    {kWork, "shift", Activity::kCommunication},
    {kWork, "broadcast", Activity::kCommunication},
    {kWork, "send", Activity::kCommunication},
    {kWork, "barrier", Activity::kCommunication},
    // Between threads it is waits for the other ranks, and sums of what lies in their memory.
    {kWork, "reduce", Activity::kCommunication},
    {kWait, "collective", Activity::kCommunication},
};

}  // namespace

Activity ActivityOf(const device::TracedOperation& operation) {
  for (const Rule& rule : kRules) {
    if (rule.kind == operation.kind && rule.name == operation.name) return rule.activity;
  }
  if (operation.kind == kWait) return Activity::kIdle;
  // Attention is products too, but for its exponentials.
  return absl::StrContains(operation.name, "gemm") || absl::StrContains(operation.name, "attention")
             ? Activity::kGemm
             : Activity::kOtherCompute;
}

Seconds& Seconds::operator+=(const Seconds& other) {
  gemm += other.gemm;
  other_compute += other.other_compute;
  optimizer += other.optimizer;
  exposed_communication += other.exposed_communication;
  idle += other.idle;
  hidden_communication += other.hidden_communication;
  dropped += other.dropped;
  return *this;
}

TimeSplit::TimeSplit(int streams, int64_t begin_ns)
    : streams_(static_cast<size_t>(streams), Stream{{}, begin_ns}), split_ns_(begin_ns) {}

void TimeSplit::Add(int stream, absl::Span<const device::TracedOperation> operations) {
  if (operations.empty()) return;
  Stream& to = streams_[static_cast<size_t>(stream)];
  for (const device::TracedOperation& operation : operations) {
    to.ahead.push_back({ActivityOf(operation), operation.begin_ns, operation.end_ns});
  }
  to.known_ns = operations.back().end_ns;
  const auto earlier = [](const Stream& a, const Stream& b) { return a.known_ns < b.known_ns; };
  SplitUntil(std::min_element(streams_.begin(), streams_.end(), earlier)->known_ns);
}

void TimeSplit::SplitUntil(int64_t until_ns) {
  while (split_ns_ < until_ns) {
    // No stream changes what it does between here and `next_ns`.
    int64_t next_ns = until_ns;
    Activity most = Activity::kIdle;
    bool communicates = false;
    for (Stream& stream : streams_) {
      std::deque<Interval>& ahead = stream.ahead;
      while (!ahead.empty() && ahead.front().end_ns <= split_ns_) ahead.pop_front();
      if (ahead.empty()) continue;
      const Interval& now = ahead.front();
      const bool begun = now.begin_ns <= split_ns_;
      next_ns = std::min(next_ns, begun ? now.end_ns : now.begin_ns);
      if (!begun) continue;
      most = std::max(most, now.activity);
      communicates |= now.activity == Activity::kCommunication;
    }
    ns_[static_cast<size_t>(most)] += next_ns - split_ns_;
    if (communicates && most > Activity::kCommunication) hidden_ns_ += next_ns - split_ns_;
    split_ns_ = next_ns;
  }
}

Seconds TimeSplit::Finish(int64_t end_ns) {
  SplitUntil(end_ns);
  const auto seconds = [](int64_t ns) { return static_cast<double>(ns) * 1e-9; };
  const auto of = [&](Activity activity) { return seconds(ns_[static_cast<size_t>(activity)]); };
  return {.gemm = of(Activity::kGemm),
          .other_compute = of(Activity::kOtherCompute),
          .optimizer = of(Activity::kOptimizer),
          .exposed_communication = of(Activity::kCommunication),
          .idle = of(Activity::kIdle),
          .hidden_communication = seconds(hidden_ns_)};
}

}  // namespace brigade::train
