#ifndef BRIGADE_EXAMPLES_GPT_JOB_H_
#define BRIGADE_EXAMPLES_GPT_JOB_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "brigade/device/device.h"
#include "brigade/device/memory_stats.h"
#include "brigade/examples/gpt/config.h"
#include "brigade/examples/gpt/corpus.h"
#include "brigade/examples/gpt/model.h"
#include "brigade/examples/gpt/time_split.h"
#include "brigade/zero/plan/traffic.h"

namespace brigade::gpt {

// What to train; the same on all ranks.
struct Job {
  ModelOptions model;
  TrainConfig config;
  Corpus corpus;
  int64_t steps = 0;
  // The number of steps between evaluations of the held-out part; 0: only the first and the last.
  int64_t evaluate_every = 0;
  uint64_t seed = 1;
  device::Device device;
};

// One step, as all ranks know it.
struct StepMetrics {
  // The first step is 1.
  int64_t step = 0;
  // The time since the first step began, without evaluations.
  double seconds = 0;
  // The mean over the batch, before the update, in nats per byte.
  double loss = 0;
  double tokens_per_second = 0;
  // The scale of the next step.
  double loss_scale = 1;
  // The norm before clipping; infinite after an overflow.
  double grad_norm = 0;
  // The rate of the update; of a skipped step, that of the last update.
  double learning_rate = 0;
  // The step was skipped because of an overflow.
  bool skipped = false;
};

struct Evaluation {
  // The number of steps before the evaluation.
  int64_t step = 0;
  // In nats per byte.
  double held_out_loss = 0;
};

// What one rank used. Plain bytes: they are gathered from all ranks.
struct RankSummary {
  // The measured peak, in bytes by purpose.
  int64_t memory[device::kPurposes] = {};
  // The same by formula.
  int64_t memory_model[device::kPurposes] = {};
  // The bytes counted in training steps.
  zero::Traffic traffic = {};
  // The bytes of one step by formula.
  zero::Traffic traffic_of_step = {};
  // The bytes of all weights with padding.
  int64_t padded_bytes = 0;
  int64_t steps = 0;
  // The time of the steps, without evaluations.
  Seconds time = {};
};

// Sees rank 0's metrics as they come, in its thread. An error ends the training.
class Observer {
 public:
  virtual ~Observer() = default;
  virtual absl::Status OnStep(const StepMetrics& metrics) = 0;
  virtual absl::Status OnEvaluation(const Evaluation& evaluation) = 0;
};

// How a training ended.
struct Outcome {
  std::vector<RankSummary> ranks;
  bool interrupted = false;
};

}  // namespace brigade::gpt

#endif  // BRIGADE_EXAMPLES_GPT_JOB_H_
