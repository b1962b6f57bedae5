#ifndef BRIGADE_TRAIN_OBSERVERS_METRIC_RECORDS_H_
#define BRIGADE_TRAIN_OBSERVERS_METRIC_RECORDS_H_

#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "brigade/monitor/monitor.h"
#include "brigade/monitor/record.h"
#include "brigade/profile/step_profile.h"
#include "brigade/train/observers/observer.h"

// What a training tells as the records of monitor/: docs/monitoring.md has the table of tags.
namespace brigade::train {

monitor::Record RecordOf(const StepMetrics& metrics, int64_t samples_of_step);
monitor::Record RecordOf(const Evaluation& evaluation, int64_t samples_of_step);

// Publishes all metrics. Never waits.
class MonitorObserver final : public Observer {
 public:
  MonitorObserver(monitor::Monitor& monitor, int64_t samples_of_step)
      : monitor_(monitor), samples_of_step_(samples_of_step) {}

  absl::Status OnStart(const Start& start) override;
  absl::Status OnLoad(const Start& start) override { return OnStart(start); }
  absl::Status OnStep(const StepMetrics& metrics) override;
  absl::Status OnEvaluation(const Evaluation& evaluation) override;
  // Of the step that was profiled, which is some steps ago; from then on each step has its rate
  // beside the machine's.
  absl::Status OnProfile(const ProfileEvent& event) override;

 private:
  monitor::Monitor& monitor_;
  const int64_t samples_of_step_;
  std::optional<profile::StepProfile> profile_;
};

}  // namespace brigade::train

#endif  // BRIGADE_TRAIN_OBSERVERS_METRIC_RECORDS_H_
