#ifndef BRIGADE_EXAMPLES_GPT_HISTORY_H_
#define BRIGADE_EXAMPLES_GPT_HISTORY_H_

#include <mutex>
#include <vector>

#include "absl/status/status.h"
#include "brigade/examples/gpt/job.h"

namespace brigade::gpt {

// Remembers all metrics, for the report at the end. Safe from any thread.
class History final : public Observer {
 public:
  absl::Status OnStep(const StepMetrics& metrics) override {
    std::lock_guard lock(mutex_);
    steps_.push_back(metrics);
    return absl::OkStatus();
  }
  absl::Status OnEvaluation(const Evaluation& evaluation) override {
    std::lock_guard lock(mutex_);
    evaluations_.push_back(evaluation);
    return absl::OkStatus();
  }

  std::vector<StepMetrics> steps() const {
    std::lock_guard lock(mutex_);
    return steps_;
  }
  std::vector<Evaluation> evaluations() const {
    std::lock_guard lock(mutex_);
    return evaluations_;
  }

 private:
  mutable std::mutex mutex_;
  std::vector<StepMetrics> steps_;
  std::vector<Evaluation> evaluations_;
};

}  // namespace brigade::gpt

#endif  // BRIGADE_EXAMPLES_GPT_HISTORY_H_
