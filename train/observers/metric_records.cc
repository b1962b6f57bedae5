#include "brigade/train/observers/metric_records.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "brigade/device/memory_stats.h"

namespace brigade::train {
namespace {

using monitor::Value;

// Purposes that never had anything are not there.
void AppendMemory(const StepMemory& memory, device::Tier tier, std::vector<Value>& values) {
  if (memory.peak_bytes == 0) return;
  const std::string prefix =
      absl::StrCat("Train/Memory/", std::string(device::ToString(tier)), "_");
  const auto append = [&](absl::string_view name, int64_t bytes) {
    values.push_back({absl::StrCat(prefix, name), static_cast<double>(bytes)});
  };
  append("bytes", memory.bytes);
  append("peak_bytes", memory.peak_bytes);
  for (size_t p = 0; p < memory.by_purpose.size(); ++p) {
    if (memory.peak_by_purpose[p] == 0) continue;
    const std::string name(device::ToString(static_cast<device::Purpose>(p)));
    append(name + "_bytes", memory.by_purpose[p]);
    append(name + "_peak_bytes", memory.peak_by_purpose[p]);
  }
}

// `has_keys`: with the last part of the tag as the key.
void Append(const std::vector<std::pair<std::string, double>>& values, bool has_keys,
            monitor::Record& record) {
  for (const auto& [tag, value] : values) {
    record.values.push_back({tag, value, has_keys ? tag.substr(tag.rfind('/') + 1) : ""});
  }
}

}  // namespace

monitor::Record RecordOf(const StepMetrics& metrics, int64_t samples_of_step) {
  monitor::Record record = {.at = {metrics.step, metrics.step * samples_of_step},
                            .wall_time = monitor::WallSeconds()};
  record.values = {
      {"", metrics.seconds, "seconds", Value::Kind::kSinceStart},
      {"Train/Samples/train_loss", metrics.loss, "loss"},
      {"Train/Samples/tokens_per_second", metrics.tokens_per_second, "tokens_per_second"},
      {"Train/Samples/loss_scale", metrics.loss_scale, "loss_scale"},
      {"Train/Samples/grad_norm", metrics.grad_norm, "grad_norm"},
      {"Train/Samples/lr", metrics.learning_rate, "learning_rate"},
      {"Train/Samples/skipped", metrics.skipped ? 1.0 : 0.0, "skipped", Value::Kind::kFlag}};
  AppendMemory(metrics.device_memory, device::Tier::kDevice, record.values);
  AppendMemory(metrics.host_memory, device::Tier::kHost, record.values);
  return record;
}

monitor::Record RecordOf(const Evaluation& evaluation, int64_t samples_of_step) {
  return {.at = {evaluation.step, evaluation.step * samples_of_step},
          .wall_time = monitor::WallSeconds(),
          .values = {{"Train/Samples/held_out_loss", evaluation.held_out_loss, "held_out_loss"}},
          .is_made_again = true};
}

absl::Status MonitorObserver::OnStart(const Start& start) {
  monitor_.Start({start.step, start.step * samples_of_step_});
  return absl::OkStatus();
}

absl::Status MonitorObserver::OnStep(const StepMetrics& metrics) {
  monitor::Record record = RecordOf(metrics, samples_of_step_);
  if (profile_.has_value()) {
    Append(profile::ValuesOfRate(*profile_, metrics.tokens_per_second), /*has_keys=*/true, record);
  }
  monitor_.Publish(std::move(record));
  return absl::OkStatus();
}

absl::Status MonitorObserver::OnProfile(const ProfileEvent& event) {
  profile_ = event.profile;
  const int64_t step = event.profile.training.step;
  monitor::Record record = {.at = {step, step * samples_of_step_},
                            .wall_time = monitor::WallSeconds()};
  Append(profile::ValuesOf(event.profile), /*has_keys=*/false, record);
  monitor_.Publish(std::move(record));
  return absl::OkStatus();
}

absl::Status MonitorObserver::OnEvaluation(const Evaluation& evaluation) {
  monitor_.Publish(RecordOf(evaluation, samples_of_step_));
  return absl::OkStatus();
}

}  // namespace brigade::train
