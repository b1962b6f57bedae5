#ifndef BRIGADE_TRAIN_OBSERVERS_OBSERVER_H_
#define BRIGADE_TRAIN_OBSERVERS_OBSERVER_H_

// What a training tells of itself while it runs, and who hears it.

#include <array>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "brigade/checkpoint/saver.h"
#include "brigade/device/memory_stats.h"
#include "brigade/profile/step_profile.h"

namespace brigade::train {

// What a rank has of a tier, in bytes: now, and at most since it began.
struct StepMemory {
  int64_t bytes = 0;
  int64_t peak_bytes = 0;
  std::array<int64_t, device::kPurposes> by_purpose = {};
  std::array<int64_t, device::kPurposes> peak_by_purpose = {};
};

// One step, as all ranks know it; memory is the own rank's.
struct StepMetrics {
  // The first step is 1.
  int64_t step = 0;
  // The time since the first step began, without evaluations.
  double seconds = 0;
  // The mean over all that counts in the batch, before the update; of classes, in nats.
  double loss = 0;
  // Places of the step on all ranks, also those without a loss that counts.
  double tokens_per_second = 0;
  // The scale of the next step.
  double loss_scale = 1;
  // The norm before clipping; infinite after an overflow.
  double grad_norm = 0;
  // The rate of the first group's update; of a skipped step, that of the last update. Of Adafactor
  // before a tensor's own scale (scale_parameter).
  double learning_rate = 0;
  // The step was skipped because of an overflow.
  bool skipped = false;
  StepMemory device_memory = {};
  StepMemory host_memory = {};
};

struct Evaluation {
  // The number of steps before the evaluation.
  int64_t step = 0;
  // The mean over the held-out part.
  double held_out_loss = 0;
};

// How a training begins.
struct Start {
  // The steps made before, by the training that goes on; 0: a new one.
  int64_t step = 0;
  // A checkpoint was loaded.
  bool is_resumed = false;
  // In words, for the user; empty: nothing was to be resumed.
  std::string resumed;
  // Where rank 0's file is, and what writing it means; empty without one.
  std::string file = {};
  // What the cost model has chosen (TrainConfig::codec_choice), in lines; empty: nothing was open.
  std::string codecs = {};
  // What ranks compare; empty where they do not.
  std::string digests = {};
};

// A save that has ended.
struct SaveEvent {
  // Where the training is by now, in steps.
  int64_t step = 0;
  absl::StatusOr<checkpoint::SaveReport> report;
};

// A step that was profiled.
struct ProfileEvent {
  profile::StepProfile profile;
  // The tables (profile::ProfileText); empty where they have gone to a file.
  std::string text;
};

// Sees rank 0's metrics as they come, in its thread. An error ends the training.
class Observer {
 public:
  virtual ~Observer() = default;
  virtual absl::Status OnStep(const StepMetrics& metrics) = 0;
  virtual absl::Status OnEvaluation(const Evaluation& evaluation) = 0;
  // Comes first.
  virtual absl::Status OnStart(const Start& /*start*/) { return absl::OkStatus(); }
  // The training goes on from another state, earlier or later (Trainer::Load): its next step is the
  // one behind start.step.
  virtual absl::Status OnLoad(const Start& /*start*/) { return absl::OkStatus(); }
  virtual absl::Status OnProfile(const ProfileEvent& /*profile*/) { return absl::OkStatus(); }
  virtual absl::Status OnSave(const SaveEvent& /*save*/) { return absl::OkStatus(); }
  // Something that is written beside the training, such as digests, could not be: the first error
  // of each such thing. The training goes on.
  virtual absl::Status OnTrouble(const absl::Status& /*trouble*/) { return absl::OkStatus(); }
};

}  // namespace brigade::train

#endif  // BRIGADE_TRAIN_OBSERVERS_OBSERVER_H_
