#ifndef BRIGADE_TRAIN_OBSERVERS_HISTORY_H_
#define BRIGADE_TRAIN_OBSERVERS_HISTORY_H_

#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "brigade/device/threads/mutex.h"
#include "brigade/train/observers/observer.h"

namespace brigade::train {

// Remembers all metrics, for the report at the end. Safe from any thread.
class History final : public Observer {
 public:
  absl::Status OnStep(const StepMetrics& metrics) override {
    device::MutexLock lock(mutex_);
    steps_.push_back(metrics);
    return absl::OkStatus();
  }
  absl::Status OnEvaluation(const Evaluation& evaluation) override {
    device::MutexLock lock(mutex_);
    evaluations_.push_back(evaluation);
    return absl::OkStatus();
  }

  std::vector<StepMetrics> steps() const {
    device::MutexLock lock(mutex_);
    return steps_;
  }
  std::vector<Evaluation> evaluations() const {
    device::MutexLock lock(mutex_);
    return evaluations_;
  }

 private:
  mutable device::Mutex mutex_;
  std::vector<StepMetrics> steps_ ABSL_GUARDED_BY(mutex_);
  std::vector<Evaluation> evaluations_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace brigade::train

#endif  // BRIGADE_TRAIN_OBSERVERS_HISTORY_H_
