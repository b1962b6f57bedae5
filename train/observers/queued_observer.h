#ifndef BRIGADE_TRAIN_OBSERVERS_QUEUED_OBSERVER_H_
#define BRIGADE_TRAIN_OBSERVERS_QUEUED_OBSERVER_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "brigade/monitor/task_queue.h"
#include "brigade/train/observers/observer.h"

namespace brigade::train {

// Hands metrics to an observer on a thread of its own, so that a terminal or a pipe that takes
// nothing holds up no step. What it says of errors is lost; what does not fit is dropped. Where it
// waits for ever, it is left behind.
class QueuedObserver final : public Observer {
 public:
  explicit QueuedObserver(std::shared_ptr<Observer> to) : to_(std::move(to)) {}

  absl::Status OnStep(const StepMetrics& metrics) override {
    return Later([to = to_, metrics] { to->OnStep(metrics).IgnoreError(); });
  }
  absl::Status OnEvaluation(const Evaluation& evaluation) override {
    return Later([to = to_, evaluation] { to->OnEvaluation(evaluation).IgnoreError(); });
  }
  absl::Status OnStart(const Start& start) override {
    return Later([to = to_, start] { to->OnStart(start).IgnoreError(); });
  }
  absl::Status OnLoad(const Start& start) override {
    return Later([to = to_, start] { to->OnLoad(start).IgnoreError(); });
  }
  absl::Status OnProfile(const ProfileEvent& profile) override {
    return Later([to = to_, profile] { to->OnProfile(profile).IgnoreError(); });
  }
  absl::Status OnSave(const SaveEvent& save) override {
    return Later([to = to_, save] { to->OnSave(save).IgnoreError(); });
  }
  absl::Status OnTrouble(const absl::Status& trouble) override {
    return Later([to = to_, trouble] { to->OnTrouble(trouble).IgnoreError(); });
  }

  // Any other task of the observer.
  void Post(std::function<void()> task) { queue_.Post(std::move(task)); }

  // Waits until the observer has seen all; false if `patience` ends before.
  bool Drain(absl::Duration patience) { return queue_.Drain(patience); }
  int64_t dropped() const { return queue_.dropped(); }

 private:
  // Some kB each: more steps than a terminal is ever behind.
  static constexpr size_t kCapacity = 1024;

  absl::Status Later(std::function<void()> task) {
    Post(std::move(task));
    return absl::OkStatus();
  }

  const std::shared_ptr<Observer> to_;
  monitor::TaskQueue queue_{kCapacity};
};

}  // namespace brigade::train

#endif  // BRIGADE_TRAIN_OBSERVERS_QUEUED_OBSERVER_H_
