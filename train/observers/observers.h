#ifndef BRIGADE_TRAIN_OBSERVERS_OBSERVERS_H_
#define BRIGADE_TRAIN_OBSERVERS_OBSERVERS_H_

#include <vector>

#include "absl/status/status.h"
#include "brigade/device/status_macros.h"
#include "brigade/train/observers/observer.h"

namespace brigade::train {

// Observers one after the other, until one gives an error. They outlive this object.
class Observers final : public Observer {
 public:
  void Add(Observer& observer) { all_.push_back(&observer); }

  absl::Status OnStep(const StepMetrics& metrics) override {
    for (Observer* each : all_) BRIGADE_RETURN_IF_ERROR(each->OnStep(metrics));
    return absl::OkStatus();
  }
  absl::Status OnEvaluation(const Evaluation& evaluation) override {
    for (Observer* each : all_) BRIGADE_RETURN_IF_ERROR(each->OnEvaluation(evaluation));
    return absl::OkStatus();
  }
  absl::Status OnStart(const Start& start) override {
    for (Observer* each : all_) BRIGADE_RETURN_IF_ERROR(each->OnStart(start));
    return absl::OkStatus();
  }
  absl::Status OnLoad(const Start& start) override {
    for (Observer* each : all_) BRIGADE_RETURN_IF_ERROR(each->OnLoad(start));
    return absl::OkStatus();
  }
  absl::Status OnProfile(const ProfileEvent& profile) override {
    for (Observer* each : all_) BRIGADE_RETURN_IF_ERROR(each->OnProfile(profile));
    return absl::OkStatus();
  }
  absl::Status OnSave(const SaveEvent& save) override {
    for (Observer* each : all_) BRIGADE_RETURN_IF_ERROR(each->OnSave(save));
    return absl::OkStatus();
  }
  absl::Status OnTrouble(const absl::Status& trouble) override {
    for (Observer* each : all_) BRIGADE_RETURN_IF_ERROR(each->OnTrouble(trouble));
    return absl::OkStatus();
  }

 private:
  std::vector<Observer*> all_;
};

}  // namespace brigade::train

#endif  // BRIGADE_TRAIN_OBSERVERS_OBSERVERS_H_
