#ifndef BRIGADE_TESTS_ZERO_TOY_MODEL_H_
#define BRIGADE_TESTS_ZERO_TOY_MODEL_H_

// A model whose "training" shows every stale or missing weight and gradient in the bits: its
// gradients are made of the weights seen in forward and in backward, of noise by rank, micro-batch,
// step and element, and of the loss scale on the device. Written once for any memory, so that the
// specification computes the same.

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "brigade/device/buffer.h"
#include "brigade/kernels/step_control/step_state.h"
#include "brigade/optim/step_controller.h"
#include "brigade/precision/dtype.h"
#include "brigade/tests/collectives/ranks.h"
#include "brigade/zero/step.h"
#include "brigade/zero/zero_optimizer.h"

namespace brigade::zero {

// Five units; one parameter that two units share, one frozen, one empty, some that never have a
// gradient.
ModelSpec ToyModel();
// The same with matrices: of two dimensions, of three, and some too small for factors.
ModelSpec ToyMatrices();

// Of the same kind, with parameters that several ranks have parts of even where these are of
// kLambTile elements (kernels/lamb).
ModelSpec ModelOfLargeTensors();

float InitialWeight(int parameter, int64_t i);

// A pass of a chunk's units, of those that a stage of a pipeline makes in a step.
struct ChunkPass {
  int chunk = 0;
  int micro_batch = 0;
  Pass pass = Pass::kForward;
};
// Passes of which those of one chunk come in the order of micro-batches, and backward behind
// forward; chunk 1 may finish a micro-batch before chunk 0 has finished the one before.
std::vector<ChunkPass> InterleavedPasses(int chunks, int micro_batches);
// Their chunks, each as long as it stays the same once: ZeroOptions::runs.
std::vector<int> RunsOf(const std::vector<ChunkPass>& passes);

// When gradients are not finite at a loss scale that a 16-bit type could bear.
struct Injection {
  int step = -1;
  int rank = 0;
  int micro_batch = 0;
  // -1: of all parameters.
  int parameter = -1;
  // The gradient of element 1.
  float value = std::numeric_limits<float>::infinity();
};

// Which gradients a unit has; every rank, micro-batch and step the same.
bool HasGradient(const Plan& plan, int unit, int parameter);

// What the forward pass of a unit gives: a sum over some of its weights.
float Activation(const Plan& plan, int unit,
                 const std::function<float(int parameter, int64_t i)>& weight);

// The unit's part of a gradient element, before it is rounded to the parameter's type.
struct GradientInput {
  int rank = 0;
  int micro_batch = 0;
  int step = 0;
  int unit = 0;
  int parameter = 0;
  int64_t i = 0;
};
float GradientElement(const GradientInput& at, float weight, float activation, float loss_scale,
                      const std::vector<Injection>& injections);

// An element of an array of one of the three types.
float Load(const void* data, precision::DType dtype, int64_t i);
void Store(void* data, precision::DType dtype, int64_t i, float value);

// Runs the toy's steps on a ZeroOptimizer. Its passes compute on the host: on the CPU in the
// stream's order, on a GPU on copies, for which the host waits.
class ToyTrainer {
 public:
  ToyTrainer(ZeroOptimizer& zero, collectives::Rank& self, std::vector<Injection> injections = {});

  // Forward, backward, update, enqueued; where options have chunks, in InterleavedPasses.
  absl::Status Step();
  absl::Status MicroBatch(int micro_batch);
  absl::Status Forward();
  absl::Status Forward(int unit, Pass pass);
  absl::Status Backward(int micro_batch);
  // The passes of these units, in this order.
  absl::Status Backward(int micro_batch, const std::vector<int>& uses);
  absl::Status Passes(const std::vector<ChunkPass>& passes);

  // The one that Step does next.
  int step = 0;
  // Units in pairs, the one whose backward came second first.
  bool report_late = false;
  // Whether it computes on copies, as on a GPU.
  bool on_copies;

 private:
  struct View {  // of a parameter
    int parameter;
    precision::DType dtype;
    const void* weights;
    int64_t size;
    GradientTarget target;
    bool has_gradient;
  };
  struct Array {  // of the device
    void* data;
    int64_t bytes;
    bool reads;
    bool writes;
  };
  // Work on the arrays' addresses on the host, in their order.
  using Work = std::function<void(const std::vector<void*>& arrays)>;

  std::vector<View> Views(int unit, UnitScope& scope) const;
  absl::Status Enqueue(const char* name, const std::vector<Array>& arrays, Work work);
  absl::Status ComputeOnCopies(const std::vector<Array>& arrays, const Work& work);

  ZeroOptimizer& zero_;
  collectives::Rank& self_;
  const std::vector<Injection> injections_;
  device::Buffer scratch_;  // loss, scaled loss, activations
  float* loss_;
  float* scaled_;
  float* activations_;
};

// A rank's optimizer on its compute stream; with options.shard_ranks and the like in groups, which
// stay with the rank: the last ones are those of its ShardGroups.
absl::StatusOr<std::unique_ptr<ZeroOptimizer>> CreateZero(const ModelSpec& model,
                                                          const ZeroOptions& options,
                                                          collectives::Rank& self);

// The communicators with which the last CreateZero with these options has made it.
struct ZeroGroups {
  collectives::Communicator& shards;
  OuterGroups outer;
};
inline ZeroGroups GroupsOf(const ZeroOptions& options, collectives::Rank& self) {
  if (options.shard_ranks == 0 && options.hpz_ranks == 0 && options.node_ranks == 0) {
    return {*self.communicator, {}};
  }
  const size_t made = self.groups.size();
  return {*self.groups[made - 5],
          {.world = self.communicator.get(),
           .between = self.groups[made - 4].get(),
           .near = self.groups[made - 3].get(),
           .node = self.groups[made - 2].get(),
           .nodes = self.groups[made - 1].get()}};
}

// The toy's initial weights on rank 0.
absl::Status InitializeToy(ZeroOptimizer& zero);

// All ranks' exported parameters, [parameter][i].
absl::StatusOr<std::vector<std::vector<float>>> Exported(ZeroOptimizer& zero);

// Where the state can be, but on the device; some need stage 3.
std::vector<OffloadOptions> Offloads();
// In files of the test's directory, in small chunks.
OffloadOptions InFile(device::Tier parameters, int64_t chunk_elements = 300);
// "Host50", "Host100HostParameters", "FileFileParameters".
std::string ToString(const OffloadOptions& offload);

// A stage, and where its state is: for suites that hold for all of them.
struct Home {
  int stage = 0;
  OffloadOptions offload = {};

  void Set(ZeroOptions& options) const {
    options.stage = stage;
    options.offload = offload;
  }
};
// Every stage, with the state on the device and with every offload that it has.
std::vector<Home> Homes();
// "Stage3Host100HostParameters".
std::string ToString(const Home& home);

}  // namespace brigade::zero

#endif  // BRIGADE_TESTS_ZERO_TOY_MODEL_H_
