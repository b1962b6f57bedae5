#ifndef BRIGADE_ZERO_OPTIONS_H_
#define BRIGADE_ZERO_OPTIONS_H_

#include <cstdint>
#include <limits>

#include "absl/status/status.h"
#include "brigade/collectives/collective.h"
#include "brigade/optim/loss_scaler.h"
#include "brigade/optim/parameter_group.h"
#include "brigade/precision/dtype.h"

namespace brigade::zero {

// A stage is what a rank keeps whole; of the rest it keeps its slices. Everything else is the same path.
// Source: Rajbhandari et al. 2020 (arXiv 1910.02054).
struct StageTraits {
  bool
      whole_optimizer_state;  // master, moments; every rank updates everything, from gathered gradients
  bool whole_gradients;       // else a bucket's memory is used again once it is reduced
  bool whole_parameters;      // else gathered for each use
};

inline constexpr int kStages = 4;
inline constexpr StageTraits kStageTraits[kStages] = {
    {true, true, true}, {false, true, true}, {false, false, true}, {false, false, false}};

// When gradients of several micro-batches are reduced; the two round differently.
enum class Accumulation : uint8_t {
  kEveryMicroBatch,  // any stage: reduced after each, the own slices are added up
  kAtBoundary,       // stages 0 and 1: added up locally, reduced once, in the accumulator's type
};

struct ZeroOptions {
  int stage = 1;
  // Of working weights and gradients whose parameter does not say otherwise: float16, bfloat16, or float32
  // (then the weights are the master).
  precision::DType dtype = precision::DType::kBFloat16;

  optim::OptimizerOptions optimizer = {};
  optim::LossScaler loss_scaler = {};
  double max_grad_norm = std::numeric_limits<double>::infinity();  // infinity: no clipping
  bool average_gradients = true;  // over ranks and micro-batches; false: their sum

  int micro_batches = 1;
  Accumulation accumulation = Accumulation::kEveryMicroBatch;
  precision::DType accumulator =
      precision::DType::kFloat32;  // of gradients over several micro-batches

  int64_t bucket_elements = int64_t{16} << 20;
  // Communication on a stream of its own, beside compute. Same bits either way.
  bool overlap_comm = true;
  // How many units in a row are in memory at once, where not all are: the one in use, and those gathered ahead
  // or still being reduced.
  int live_units = 2;
  // Stage 3: units of at most so many elements stay in memory and are gathered once a step.
  int64_t persistence_threshold = 0;

  // kDirect: the same bits on every engine. The others: each hop rounds.
  collectives::Algorithm algorithm = collectives::Algorithm::kDirect;

  const StageTraits& traits() const { return kStageTraits[stage]; }
  // Whether gradients are added up in memory of their own.
  bool accumulates() const { return micro_batches > 1; }
};

// InvalidArgument naming the option, its value, and what it contradicts.
absl::Status Validate(const ZeroOptions& options);

}  // namespace brigade::zero

#endif  // BRIGADE_ZERO_OPTIONS_H_
