#include "brigade/train/times/pass_times.h"

#include <cstdio>
#include <numeric>
#include <optional>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "brigade/device/threads/thread_pool.h"
#include "brigade/train/times/time_split.h"

namespace brigade::train {
namespace {

constexpr absl::string_view kEnd = "end of part";
constexpr absl::string_view kPass = "pass ";
constexpr absl::string_view kPassEnd = "end of pass";
constexpr absl::string_view kStep = "step";
constexpr absl::string_view kStepEnd = "end of step";
// [PassPart].
constexpr absl::string_view kMarks[kPassParts] = {"forward ",
                                                  "backward ",
                                                  "backward input ",
                                                  "backward weight ",
                                                  "recompute ",
                                                  "recompute pointwise ",
                                                  "recompute middle ",
                                                  "recompute qkv ",
                                                  "recompute expanded ",
                                                  "recompute attention "};

absl::Status Mark(absl::string_view name, device::Stream& stream) {
  const device::Access nothing = device::Reads(nullptr, 0);
  const device::Operation operation = {name, absl::MakeConstSpan(&nothing, 1)};
  if (stream.device().kind == device::DeviceKind::kCpu) {
    return stream.Enqueue(operation, [](device::ThreadPool&) { return absl::OkStatus(); });
  }
  return stream.Launch(operation, [](void*) { return absl::OkStatus(); });
}

bool IsPartOfAPass(const device::TracedOperation& operation) {
  const Activity activity = ActivityOf(operation);
  return operation.kind == device::TracedOperation::Kind::kWork &&
         (activity == Activity::kGemm || activity == Activity::kOtherCompute);
}

}  // namespace

absl::Status MarkPart(PassPart part, int stage, device::Stream& stream) {
  char name[40];
  const absl::string_view text = kMarks[static_cast<size_t>(part)];
  std::snprintf(name, sizeof(name), "%.*s%d", static_cast<int>(text.size()), text.data(), stage);
  return Mark(name, stream);
}

absl::Status MarkEnd(device::Stream& stream) { return Mark(kEnd, stream); }

absl::Status MarkPass(const parallel::PipelineItem& computation, device::Stream& stream) {
  return Mark(absl::StrCat(kPass, parallel::ToString(parallel::PipelineSchedule(), computation)),
              stream);
}

absl::Status MarkPassEnd(device::Stream& stream) { return Mark(kPassEnd, stream); }

std::optional<absl::string_view> PassOfMark(absl::string_view name) {
  if (name == kPassEnd) return "";
  if (!absl::ConsumePrefix(&name, kPass)) return std::nullopt;
  return name;
}

absl::Status MarkStep(device::Stream& stream) { return Mark(kStep, stream); }

absl::Status MarkStepEnd(device::Stream& stream) { return Mark(kStepEnd, stream); }

bool IsStepMark(absl::string_view name) { return name == kStep; }

bool IsStepEnd(absl::string_view name) { return name == kStepEnd; }

double PassSeconds::recompute() const {
  constexpr auto kFirst = static_cast<std::ptrdiff_t>(PassPart::kRecompute);
  return std::accumulate(parts.begin() + kFirst, parts.end(), 0.0);
}

PassSeconds& PassSeconds::operator+=(const PassSeconds& other) {
  for (size_t part = 0; part < parts.size(); ++part) parts[part] += other.parts[part];
  return *this;
}

std::optional<PassTimes::Place> PassTimes::MarkOf(absl::string_view name) {
  if (name == kEnd) return Place{};
  for (int part = 0; part < kPassParts; ++part) {
    absl::string_view text = name;
    int stage = 0;
    if (absl::ConsumePrefix(&text, kMarks[part]) && absl::SimpleAtoi(text, &stage) && stage >= 0) {
      return Place{static_cast<PassPart>(part), stage};
    }
  }
  return std::nullopt;
}

void PassTimes::Add(int stream, absl::Span<const device::TracedOperation> operations) {
  if (places_.size() <= static_cast<size_t>(stream)) {
    places_.resize(static_cast<size_t>(stream) + 1);
  }
  Place& place = places_[static_cast<size_t>(stream)];
  for (const device::TracedOperation& operation : operations) {
    if (const std::optional<Place> mark = MarkOf(operation.name); mark.has_value()) {
      place = *mark;
      const auto stages = static_cast<size_t>(place.stage + 1);
      if (ns_.size() < stages) ns_.resize(stages);
      continue;
    }
    if (place.stage == kNone || !IsPartOfAPass(operation)) continue;
    ns_[static_cast<size_t>(place.stage)][static_cast<size_t>(place.part)] +=
        operation.end_ns - operation.begin_ns;
  }
}

std::vector<PassSeconds> PassTimes::Stages() const {
  std::vector<PassSeconds> stages(ns_.size());
  for (size_t stage = 0; stage < ns_.size(); ++stage) {
    for (size_t part = 0; part < kPassParts; ++part) {
      stages[stage].parts[part] = static_cast<double>(ns_[stage][part]) * 1e-9;
    }
  }
  return stages;
}

}  // namespace brigade::train
