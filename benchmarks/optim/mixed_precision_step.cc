// The whole step: bf16 gradients are checked (read once), the step is decided in device memory
// (unscaling, clipping, skipping, loss scale, learning rate), and AdamW updates the fp32 master and
// writes the bf16 weights (gradients are read again). No other pass over memory, and the host waits
// for nothing.

#include <vector>

#include "absl/strings/str_cat.h"
#include "brigade/benchmarks/common/cases.h"
#include "brigade/benchmarks/common/main.h"
#include "brigade/benchmarks/common/report.h"
#include "brigade/benchmarks/kernels/ceiling.h"
#include "brigade/device/status_macros.h"
#include "brigade/optim/mixed_precision_optimizer.h"
#include "brigade/precision/float16.h"

namespace brigade::benchmarks {
namespace {

using precision::BFloat16;

// Master and moments, and as much again for the ceilings.
constexpr int64_t kBytesHeld = 2 * 3 * sizeof(float) + 2 * sizeof(BFloat16);
constexpr int64_t kBytesMoved = 2 * 3 * sizeof(float) + 3 * sizeof(BFloat16);

// Below every norm here, so that clipping is at work.
constexpr double kMaxGradNorm = 1e-3;

// Host waits per step, over steps enqueued back to back.
absl::StatusOr<double> HostWaits(const Work& step, Bench& bench) {
  constexpr int kSteps = 4;
  const int64_t before = bench.context().host_waits();
  for (int i = 0; i < kSteps; ++i) {
    if (absl::Status status = step(bench.stream()); !status.ok()) return status;
  }
  const double waits = static_cast<double>(bench.context().host_waits() - before) / kSteps;
  if (absl::Status status = bench.stream().Synchronize(); !status.ok()) return status;
  return waits;
}

// The step must have been an ordinary one: a skipped update would be fast.
absl::Status CheckState(const kernels::StepState& state) {
  if (state.skip == 0 && state.step == state.iteration && state.grad_norm > kMaxGradNorm &&
      state.grad_multiplier * state.loss_scale < 1.0f) {
    return absl::OkStatus();
  }
  return absl::InternalError(absl::StrCat("not an ordinary step: skip ", state.skip, ", step ",
                                          state.step, " of ", state.iteration, ", norm ",
                                          state.grad_norm, ", multiplier ", state.grad_multiplier));
}

std::vector<optim::ParameterArrays> Parameters(const TensorList& list, BFloat16* weights,
                                               const BFloat16* grad) {
  const auto weights_at = list.Offsets(0), grad_at = list.Offsets(1);
  std::vector<optim::ParameterArrays> parameters;
  for (size_t i = 0; i < list.sizes().size(); ++i) {
    parameters.push_back({.name = absl::StrCat("tensor ", i),
                          .weights = weights + weights_at[i],
                          .grad = grad + grad_at[i],
                          .size = list.sizes()[i]});
  }
  return parameters;
}

absl::Status Measure(const Case& what, Bench& bench, benchmark::State& state) {
  const int64_t size = what.elements;
  const TensorList list = what.list();
  BRIGADE_ASSIGN_OR_RETURN(auto weights, bench.CreateArray<BFloat16>(list.extent(), 1.0f));
  BRIGADE_ASSIGN_OR_RETURN(auto grad, bench.CreateArray<BFloat16>(list.extent(), 64.0f));
  optim::MixedPrecisionOptions options;
  options.optimizer.groups[0].weight_decay = 0.01;
  // A window of one: the loss scale doubles in every step, until it has reached 2^16.
  options.loss_scaler = {.loss_scale = 0,
                         .initial_scale_power = 10,
                         .loss_scale_window = 1,
                         .max_loss_scale = 65536.0f};
  options.max_grad_norm = kMaxGradNorm;
  BRIGADE_ASSIGN_OR_RETURN(auto optimizer, optim::MixedPrecisionOptimizer::Create(
                                               Parameters(list, weights, grad), options,
                                               bench.context(), bench.stream()));
  const Work step = [&](device::Stream& stream) { return optimizer->Step(stream); };

  // The optimizer's state is its own.
  BRIGADE_ASSIGN_OR_RETURN(auto master, bench.CreateArray<float>(size, 1.0f));
  BRIGADE_ASSIGN_OR_RETURN(auto m, bench.CreateZeros<float>(size));
  BRIGADE_ASSIGN_OR_RETURN(auto v, bench.CreateZeros<float>(size));
  std::vector<Work> ceilings;
  for (const Work& read : ReadCeilings(grad, size * static_cast<int64_t>(sizeof(BFloat16)))) {
    const Work update = UpdateCeiling<BFloat16, BFloat16, 3>({master, m, v}, grad, weights, size);
    ceilings.push_back([read, update](device::Stream& stream) {
      absl::Status status = read(stream);
      return status.ok() ? update(stream) : status;
    });
  }

  BRIGADE_ASSIGN_OR_RETURN(auto waits, HostWaits(step, bench));
  BRIGADE_RETURN_IF_ERROR(
      Report({.bytes = size * kBytesMoved, .kernel = step, .ceilings = ceilings}, bench, state));
  state.counters["host_waits"] = waits;
  BRIGADE_RETURN_IF_ERROR(optimizer->RequestState(bench.stream()));
  BRIGADE_RETURN_IF_ERROR(bench.stream().Synchronize());
  BRIGADE_ASSIGN_OR_RETURN(auto last, optimizer->TakeState());
  return CheckState(*last);
}

}  // namespace

absl::Status RegisterBenchmarks() {
  return RegisterCases("mixed_precision_step", {.bytes_per_element = kBytesHeld}, Measure);
}

}  // namespace brigade::benchmarks
