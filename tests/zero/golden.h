#ifndef BRIGADE_TESTS_ZERO_GOLDEN_H_
#define BRIGADE_TESTS_ZERO_GOLDEN_H_

// Training runs of the toy model beside the specification.

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "brigade/kernels/block_quant/block_quant_math.h"
#include "brigade/precision/dtype.h"
#include "brigade/tests/collectives/ranks.h"
#include "brigade/tests/zero/toy_model.h"
#include "brigade/zero/options.h"

namespace brigade::zero {

inline constexpr int kGoldenSteps = 50;

struct GoldenCase {
  int ranks = 2;
  precision::DType dtype = precision::DType::kFloat16;
  optim::OptimizerKind optimizer = optim::OptimizerKind::kAdamW;
  int micro_batches = 1;
  Accumulation accumulation = Accumulation::kEveryMicroBatch;
  // Less than the largest parameter.
  int64_t bucket_elements = 1000;
  std::optional<precision::DType> communication_dtype = {};
  collectives::Reduction reduction = collectives::Reduction::kRoundedOnce;
  // Specified are sums in the order of ranks, and hierarchical ones.
  collectives::Algorithm algorithm = collectives::Algorithm::kAuto;
  // Of the communicator's topology; 0: it has none.
  int ranks_per_node = 0;
  // Where the state is. A delay of the update is another training.
  OffloadOptions offload = {};
  // Before this step the state is saved, and loaded again; -1: never.
  int reload_at = -1;
  bool tied_apart = false;
  // Of the toy's units, in InterleavedPasses; and whether these are in runs.
  std::vector<int> chunks = {};
  bool has_runs = false;
  // ZeroOptions::shard_ranks.
  int shard_ranks = 0;
  // ZeroOptions::hpz_ranks, in stage 3.
  int hpz_ranks = 0;
  // As codes: weights in stages that gather them, and gradients, in two hops with nodes of so many.
  std::optional<kernels::QuantFormat> quantized_weights = {}, quantized_gradients = {};
  int node_ranks = 0;
  std::optional<CompressionOptions> gradient_compression = {};
  // Of OneBitAdam and OneBitLamb.
  int64_t freeze_step = 0;
  // Of ZeroOneAdam, whose freeze_step is var_freeze_step.
  int64_t var_update_scaler = 3, local_step_scaler = 1, local_step_clipper = 1;
  // Of other kinds than LAMB 0.01.
  double weight_decay = 0.01;
  // Of these gradients: the error feedback.
  std::optional<LocoOptions> loco = {};
  // Weights that are not trained: then of stage 3 alone.
  std::optional<kernels::QuantFormat> quantized_frozen_weights = {};
};

std::string ToString(const GoldenCase& golden_case);

// Ranks x types x optimizers x accumulation, types of the wire, topologies.
std::vector<GoldenCase> GoldenCases();

// What a run leaves: the masters, and the state after each step.
struct Trajectory {
  std::vector<std::vector<float>> parameters;  // [parameter][i]
  std::vector<kernels::StepState> states;      // [step]
};

// The options of the case: overflows on the way, and clipping.
ZeroOptions OptionsOf(const GoldenCase& golden_case, int stage);
std::vector<Injection> InjectionsOf(const GoldenCase& golden_case);

// The toy; where tensors count as a whole, one with tensors of several tiles.
ModelSpec ModelOf(optim::OptimizerKind optimizer);

// By tests/spec.
Trajectory Specified(const GoldenCase& golden_case);

// By a ZeroOptimizer; `trained` is empty on an error. With `on_copies` the toy computes as on a
// GPU.
absl::Status Train(collectives::Rank& self, const ZeroOptions& options,
                   const std::vector<Injection>& injections, Trajectory& trained,
                   bool on_copies = false, int reload_at = -1);

// Internal naming the first difference in bits.
absl::Status Compare(const Trajectory& trained, const Trajectory& wanted);

// Trains with every stage that allows the case and the offload, on ranks that share a device. Fails
// the test that calls it where one differs from the specification.
void ExpectTheSpecificationsBits(const GoldenCase& golden_case, device::Device device,
                                 bool on_copies = false);

// Of an optimizer that needs whole tensors: ranks and types with cuts elsewhere, micro-batches,
// groups, and loads of a state.
std::vector<GoldenCase> WholeTensorCases(optim::OptimizerKind kind);

}  // namespace brigade::zero

#endif  // BRIGADE_TESTS_ZERO_GOLDEN_H_
