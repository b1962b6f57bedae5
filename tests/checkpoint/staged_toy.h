#ifndef BRIGADE_TESTS_CHECKPOINT_STAGED_TOY_H_
#define BRIGADE_TESTS_CHECKPOINT_STAGED_TOY_H_

// A toy model that the ranks of a grid share: its parameters are cut into tensor shards, and groups
// have those of a stage. Its gradients are numbers whose sums and squares are exact, and the same
// on all replicas: so every grid has the same bits, those of the step state included.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "brigade/checkpoint/model_part.h"
#include "brigade/checkpoint/write_mode.h"
#include "brigade/collectives/communicator.h"
#include "brigade/kernels/step_control/step_state.h"
#include "brigade/tests/checkpoint/crash_file_system.h"
#include "brigade/tests/collectives/ranks.h"
#include "brigade/zero/zero_optimizer.h"

namespace brigade::checkpoint::testing {

// An embedding, four blocks and a head that uses the embedding's "tokens" too; matrices, vectors,
// two frozen ones and one without elements.
zero::ModelSpec StagedToy();
// How its parameters are cut.
std::vector<parallel::Shard> ShardsOfToy();

// rank = tensor rank + tensor * (replica + data * stage).
struct ToyGrid {
  int tensor = 1;
  int data = 1;
  int stages = 1;
  // Of two stages, each with two ranges of the model.
  bool interleaved = false;
  // 1: nothing is cut, and a group with everything has no ModelPart.
  int shards = 4;

  int ranks() const { return tensor * data * stages; }
  int groups() const { return tensor * stages; }
  int tensor_rank(int rank) const { return rank % tensor; }
  int stage(int rank) const { return rank / (tensor * data); }
};
std::string ToString(const ToyGrid& grid);

// What a rank's group has. The last stage's "tokens" is not counted where another group has it too.
zero::ModelSpec SpecOf(const ToyGrid& grid, int rank);
ModelPart PartOf(const ToyGrid& grid, int rank);

// One rank: its group, and the optimizer.
struct StagedRank {
  collectives::Rank& self;
  std::unique_ptr<collectives::Communicator> group;
  ModelPart part;
  std::unique_ptr<zero::ZeroOptimizer> zero;
};
StagedRank CreateStaged(collectives::Rank& self, const ToyGrid& grid,
                        const zero::ZeroOptions& options, const zero::ModelSpec& spec);

// Steps [first, last), in fp16 with an overflow in step 1.
struct StagedRun {
  ToyGrid grid = {};
  int stage = 0;
  zero::OffloadOptions offload = {};
  int first = 0;
  int last = 0;
  // Null: not loaded, not saved.
  CrashFileSystem* from = nullptr;
  CrashFileSystem* to = nullptr;
  WriteMode mode = WriteMode::kInPlace;
  // Of the steps, how many are taken while it is saved: without a host wait.
  int beside = 0;
};

// [array][parameter][i] of the whole model, as its tensors lie; and the step state.
struct StagedState {
  std::vector<std::vector<std::vector<float>>> arrays;
  kernels::StepState step = {};
};

// What all ranks have; a call of each. Fails the test where what several have is not alike.
void AddStateOf(const StagedRank& rank, StagedState& state);

// Fails the test that calls it, as where ranks have different step states.
StagedState Train(const StagedRun& run);
// Fails the test that calls it unless all bits are the same.
void ExpectSame(const StagedState& a, const StagedState& b);

}  // namespace brigade::checkpoint::testing

#endif  // BRIGADE_TESTS_CHECKPOINT_STAGED_TOY_H_
