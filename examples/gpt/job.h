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
  int64_t evaluate_every =
      0;  // steps between evaluations of the held-out part; 0: only first and last
  uint64_t seed = 1;
  device::Device device;
};

// One step, as all ranks know it.
struct StepMetrics {
  int64_t step = 0;    // from 1 on
  double seconds = 0;  // since the first step began, without evaluations
  double loss = 0;     // mean over the batch, before the update; nats per byte
  double tokens_per_second = 0;
  double loss_scale = 1;     // in effect from the next step on
  double grad_norm = 0;      // before clipping; infinite after an overflow
  double learning_rate = 0;  // of the update; if skipped, of the last one before
  bool skipped = false;      // for overflow
};

struct Evaluation {
  int64_t step = 0;          // after so many steps
  double held_out_loss = 0;  // nats per byte
};

// What one rank used. Plain bytes: they are gathered from all ranks.
struct RankSummary {
  int64_t memory[device::kPurposes] = {};        // peak bytes, measured
  int64_t memory_model[device::kPurposes] = {};  // by formula
  zero::Traffic traffic = {};                    // bytes sent in training steps, counted
  zero::Traffic traffic_of_step = {};            // by formula
  int64_t padded_bytes = 0;                      // of all weights
  int64_t steps = 0;
  Seconds time = {};  // of the steps, without evaluations
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
