#ifndef BRIGADE_TESTS_CHECKPOINT_TOY_TRAINING_H_
#define BRIGADE_TESTS_CHECKPOINT_TOY_TRAINING_H_

// Trainings of the toy model that are loaded from a checkpoint and saved to one.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "brigade/checkpoint/fields.h"
#include "brigade/checkpoint/saver.h"
#include "brigade/device/device.h"
#include "brigade/tests/checkpoint/crash_file_system.h"
#include "brigade/tests/collectives/ranks.h"
#include "brigade/zero/zero_optimizer.h"

namespace brigade::checkpoint::testing {

inline constexpr char kRoot[] = "/checkpoints";

// Several files, and several chunks in the ring.
SaverOptions ToRoot(WriteMode mode = WriteMode::kInPlace);

// In fp16, with a loss scale that grows.
zero::ZeroOptions ToyOptions(int stage);

// What the training says of itself.
const Fields& TrainingFields();

// Steps [first, last), in fp16 with overflows in steps 1 and 4.
struct ToyRun {
  int stage = 0;
  int ranks = 1;
  int first = 0;
  int last = 0;
  // Null: not loaded, not saved.
  CrashFileSystem* from = nullptr;
  CrashFileSystem* to = nullptr;
  WriteMode mode = WriteMode::kInPlace;
  device::Device device = device::Cpu();
  zero::OffloadOptions offload = {};
  int shard_ranks = 0;
  // With these the model has matrices.
  std::optional<zero::CompressionOptions> gradient_compression = {};
  int node_ranks = 0;
  // With freeze_step, of 1-bit Adam and 1-bit LAMB; of Muon and Adafactor the model has
  // matrices, too.
  optim::OptimizerKind optimizer = optim::OptimizerKind::kAdamW;
  int64_t freeze_step = 0;
  // By 0/1 Adam, with matrices too.
  std::optional<optim::ZeroOneSchedule> zero_one = {};
  // Gradients as codes, in one hop or in two, with their errors.
  bool has_loco = false;
  // Before this step errors are shared as before a save; -1: never.
  int shares_at = -1;
};

// Fails the test that calls it. Rank 0's parameters.
std::vector<std::vector<float>> Train(const ToyRun& run);

// The checkpoint of a step: contents by path.
std::map<std::string, std::string> FilesOf(const CrashFileSystem& disk, int64_t step);

}  // namespace brigade::checkpoint::testing

#endif  // BRIGADE_TESTS_CHECKPOINT_TOY_TRAINING_H_
