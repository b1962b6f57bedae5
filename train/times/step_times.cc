#include "brigade/train/times/step_times.h"

#include <algorithm>
#include <optional>

#include "absl/strings/match.h"
#include "absl/strings/string_view.h"

namespace brigade::train {
namespace {

using device::TracedOperation;

// Begins each forward pass of a stage of the model (MarkPart).
constexpr absl::string_view kForward = "forward ";
// Operations of some thousand steps of a small model.
constexpr int64_t kMostWaiting = int64_t{1} << 19;
// Of exchanges and updates; those beyond are not shown.
constexpr size_t kMostSpans = 512;

// Marks may take no time: one at that very moment is not before it.
bool IsBefore(const TracedOperation& operation, int64_t ns) {
  return operation.end_ns <= ns && operation.begin_ns < ns;
}

// Puts the second of two spans of one name, between which hardly anything is, to the first.
void Append(StepTime::Span span, int64_t gap_ns, std::vector<StepTime::Span>& to) {
  if (!to.empty() && to.back().name == span.name && span.begin_ns - to.back().end_ns <= gap_ns) {
    to.back().end_ns = std::max(to.back().end_ns, span.end_ns);
  } else if (to.size() < kMostSpans) {
    to.push_back(std::move(span));
  }
}

// Of one stream, between two marks.
void AppendPasses(absl::Span<const TracedOperation> operations, std::vector<StepTime::Span>& to) {
  std::string name;
  bool has_begun = false;
  for (const TracedOperation& operation : operations) {
    if (const std::optional<absl::string_view> pass = PassOfMark(operation.name)) {
      name = std::string(*pass);
      has_begun = false;
    } else if (!name.empty() && operation.kind == TracedOperation::Kind::kWork) {
      // Waits in front are no part of it, and neither are those behind.
      if (!has_begun) to.push_back({name, operation.begin_ns, operation.end_ns});
      has_begun = true;
      to.back().end_ns = operation.end_ns;
    }
  }
}

}  // namespace

void StepTimes::Add(int stream, absl::Span<const TracedOperation> operations) {
  const auto index = static_cast<size_t>(stream);
  if (streams_.size() <= index) streams_.resize(index + 1);
  Stream& to = streams_[index];
  for (const TracedOperation& operation : operations) {
    if (operation.kind == TracedOperation::Kind::kWork) {
      if (IsStepMark(operation.name)) {
        // Of a step without a forward pass the next one takes the place.
        if (begins_.empty() || begins_.back().ns >= 0) begins_.push_back({});
        continue;
      }
      if (PassOfMark(operation.name).has_value()) {
        to.mark = operation;
        continue;
      }
      if (!begins_.empty() && begins_.back().ns < 0 && absl::StartsWith(operation.name, kForward)) {
        begins_.back().ns = operation.begin_ns;
      }
      if (to.mark.has_value()) {
        to.mark->begin_ns = to.mark->end_ns = operation.begin_ns;
        to.operations.push_back(*to.mark);
        to.mark.reset();
        ++waiting_;
      }
    }
    to.operations.push_back(operation);
    ++waiting_;
  }
  if (waiting_ > kMostWaiting && begins_.size() < 3) {
    // No marks, or a step that does not end: what is not known then is not shown.
    for (Stream& each : streams_) each.operations.clear();
    waiting_ = 0;
  }
}

StepTime StepTimes::Cut(int64_t begin_ns, int64_t end_ns) const {
  StepTime step = {.begin_ns = begin_ns, .end_ns = end_ns};
  TimeSplit split(static_cast<int>(streams_.size()), begin_ns);
  PassTimes passes;
  const int64_t gap_ns = (end_ns - begin_ns) / 1000;
  for (size_t s = 0; s < streams_.size(); ++s) {
    std::vector<TracedOperation> all, begun;
    for (TracedOperation operation : streams_[s].operations) {
      if (IsBefore(operation, begin_ns) || operation.begin_ns >= end_ns) continue;
      if (operation.begin_ns >= begin_ns) begun.push_back(operation);
      operation.begin_ns = std::max(operation.begin_ns, begin_ns);
      operation.end_ns = std::min(operation.end_ns, end_ns);
      all.push_back(operation);
      const Activity activity = ActivityOf(operation);
      if (activity != Activity::kCommunication && activity != Activity::kOptimizer) continue;
      Append({activity == Activity::kOptimizer ? "update" : "exchange", operation.begin_ns,
              operation.end_ns},
             gap_ns, step.others);
    }
    split.Add(static_cast<int>(s), all);
    passes.Add(static_cast<int>(s), begun);
    AppendPasses(begun, step.lists);
  }
  const auto earlier = [](const StepTime::Span& a, const StepTime::Span& b) {
    return a.begin_ns < b.begin_ns;
  };
  std::sort(step.lists.begin(), step.lists.end(), earlier);
  std::sort(step.others.begin(), step.others.end(), earlier);
  step.split = split.Finish(end_ns);
  for (const PassSeconds& stage : passes.Stages()) step.passes += stage;
  return step;
}

void StepTimes::DropUntil(int64_t ns) {
  for (Stream& stream : streams_) {
    std::deque<TracedOperation>& operations = stream.operations;
    while (!operations.empty() && IsBefore(operations.front(), ns)) {
      operations.pop_front();
      --waiting_;
    }
  }
}

std::vector<StepTime> StepTimes::Take() {
  std::vector<StepTime> steps;
  while (begins_.size() >= 3 && begins_[2].ns >= 0) {
    steps.push_back(Cut(begins_[0].ns, begins_[1].ns));
    steps.back().step = ++step_;
    DropUntil(begins_[1].ns);
    begins_.pop_front();
  }
  return steps;
}

std::vector<StepTime> StepTimes::Finish() {
  std::vector<StepTime> steps = Take();
  if (!begins_.empty() && begins_.back().ns < 0) begins_.pop_back();
  int64_t last_ns = 0;
  for (const Stream& stream : streams_) {
    if (!stream.operations.empty()) {
      last_ns = std::max(last_ns, stream.operations.back().end_ns);
    }
  }
  for (; !begins_.empty(); begins_.pop_front()) {
    const int64_t end_ns = begins_.size() > 1 ? begins_[1].ns : last_ns;
    if (end_ns <= begins_[0].ns) continue;
    steps.push_back(Cut(begins_[0].ns, end_ns));
    steps.back().step = ++step_;
    DropUntil(end_ns);
  }
  return steps;
}

}  // namespace brigade::train
