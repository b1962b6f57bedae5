#ifndef BRIGADE_TRAIN_JOB_H_
#define BRIGADE_TRAIN_JOB_H_

// A training, whatever its model.

#include <cstdint>
#include <string>
#include <vector>

#include "brigade/device/device.h"
#include "brigade/train/config/config.h"

namespace brigade::train {

// Where a training is saved, and from where it goes on.
struct Checkpoints {
  // The folder of the checkpoints; empty: nothing is saved.
  std::string save = {};
  // Steps between two; 0: one at the end.
  int64_t save_every = 0;
  // How many stay; 0: all.
  int keep = 0;
  // A checkpoint, or a folder of them, of which the newest counts; empty: a new training.
  std::string resume = {};
  // Where it is damaged, the one before it counts.
  bool fall_back = false;
  // Fields that may be others than in the checkpoint (checkpoint::LoadOptions).
  std::vector<std::string> may_differ = {};
  // Weights with which a new training begins (checkpoint::LoadWeights); empty: random ones.
  std::string weights = {};
};

// Checksums of gradients and weights (digests/).
struct Digests {
  // Where they are written; empty: nowhere. And after how many steps each time.
  std::string file = {};
  int64_t every = 10;
  // Steps between two comparisons of what several ranks have alike; 0: none.
  int64_t verify_every = 0;
  // Gradients and weights of this step, the first being 1, are written to this folder; 0: of none.
  std::string dump = {};
  int64_t dump_step = 0;

  bool any() const { return !file.empty() || verify_every > 0 || dump_step > 0; }
};

// How to train; the same on all ranks.
struct Job {
  TrainConfig config;
  int64_t steps = 0;
  // The number of steps between evaluations of the held-out part; 0: only the first and the last.
  int64_t evaluate_every = 0;
  uint64_t seed = 1;
  device::Device device = {};
  // Of each rank's memory on the device; 0: none.
  int64_t device_limit_bytes = 0;
  // Of a CPU: ContextOptions::link_bytes_per_second. 0: none.
  int64_t device_link = 0;
  Checkpoints checkpoints = {};
  Digests digests = {};
};

}  // namespace brigade::train

#endif  // BRIGADE_TRAIN_JOB_H_
