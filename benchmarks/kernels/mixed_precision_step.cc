// The whole step: bf16 gradients are checked (read once), the step is decided in device memory (unscaling,
// clipping, skipping, loss scale, learning rate), and AdamW updates the fp32 master and writes the bf16
// parameters (gradients are read again). No other pass over memory, and the host waits for nothing.

#include <vector>

#include "absl/strings/str_cat.h"
#include "brigade/benchmarks/common/cases.h"
#include "brigade/benchmarks/common/main.h"
#include "brigade/benchmarks/common/report.h"
#include "brigade/benchmarks/kernels/ceiling.h"
#include "brigade/benchmarks/kernels/step_memory.h"
#include "brigade/kernels/adam/adam.h"
#include "brigade/kernels/grad_check/grad_check.h"
#include "brigade/kernels/step_control/step_control.h"

namespace brigade::benchmarks {
namespace {

using precision::BFloat16;

constexpr int64_t kBytesHeld = 3 * sizeof(float) + 2 * sizeof(BFloat16);
constexpr int64_t kBytesMoved = 2 * 3 * sizeof(float) + 3 * sizeof(BFloat16);

constexpr double kMaxGradNorm = 1e-3;  // below every norm here, so that clipping is at work

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

absl::Status Measure(const Case& what, Bench& bench, benchmark::State& state) {
  const int64_t size = what.elements;
  BRIGADE_ASSIGN_OR_RETURN(master, bench.NewArray<float>(size, 1.0f));
  BRIGADE_ASSIGN_OR_RETURN(m, bench.NewZeros<float>(size));
  BRIGADE_ASSIGN_OR_RETURN(v, bench.NewZeros<float>(size));
  BRIGADE_ASSIGN_OR_RETURN(grad, bench.NewArray<BFloat16>(size, 64.0f));
  BRIGADE_ASSIGN_OR_RETURN(param, bench.NewZeros<BFloat16>(size));

  // A window of one: the loss scale doubles in every step, until it has reached 2^16.
  const kernels::LossScaleOptions loss_scale = {
      .initial_scale = 1024.0f, .max_scale = 65536.0f, .window = 1};
  const kernels::AdamGroup group = {.weight_decay = 0.01};
  const kernels::StepBetas betas = {group.beta1, group.beta2};
  const kernels::GradSegment grads = {grad, size};
  const int64_t tiles = kernels::GradCheckWorkspaceSize({&grads, 1});
  BRIGADE_ASSIGN_OR_RETURN(workspace, bench.NewZeros<double>(tiles));
  BRIGADE_ASSIGN_OR_RETURN(stats, bench.NewZeros<kernels::GradStats>(1));
  BRIGADE_ASSIGN_OR_RETURN(step_state, bench.NewCopy(kernels::InitialStepState(loss_scale)));
  BRIGADE_ASSIGN_OR_RETURN(group_step, bench.NewZeros<kernels::GroupStep>(1));
  BRIGADE_ASSIGN_OR_RETURN(lr, bench.NewCopy(1e-3f));

  kernels::StepControlOptions control;
  control.loss_scale = loss_scale;
  control.max_grad_norm = kMaxGradNorm;
  control.betas = {&betas, 1};
  control.lr_table = lr;
  control.lr_table_size = 1;
  kernels::AdamOptions adam;
  adam.grad_dtype = precision::DType::kBFloat16;
  adam.copy_dtype = precision::DType::kBFloat16;
  adam.groups = {&group, 1};
  adam.state = step_state;
  adam.group_steps = group_step;
  const kernels::AdamSegment parameters = {master, m, v, grad, param, size, 0};

  const Work step = [&](device::Stream& stream) {
    absl::Status status =
        kernels::GradCheck({&grads, 1}, precision::DType::kBFloat16,
                           {workspace, static_cast<size_t>(tiles)}, stats, stream);
    if (status.ok()) {
      status = kernels::StepControl({stats, 1}, control, step_state, group_step, stream);
    }
    if (status.ok()) status = kernels::Adam({&parameters, 1}, adam, stream);
    return status;
  };
  std::vector<Work> ceilings;
  for (const Work& read : ReadCeilings(grad, size * static_cast<int64_t>(sizeof(BFloat16)))) {
    const Work update = UpdateCeiling<BFloat16, BFloat16, 3>({master, m, v}, grad, param, size);
    ceilings.push_back([read, update](device::Stream& stream) {
      absl::Status status = read(stream);
      return status.ok() ? update(stream) : status;
    });
  }

  BRIGADE_ASSIGN_OR_RETURN(waits, HostWaits(step, bench));
  absl::Status status =
      Report({.bytes = size * kBytesMoved, .kernel = step, .ceilings = ceilings}, bench, state);
  if (!status.ok()) return status;
  state.counters["host_waits"] = waits;
  kernels::StepState last;
  status = bench.stream().Copy(&last, step_state, sizeof(last));
  if (status.ok()) status = bench.stream().Synchronize();
  return status.ok() ? CheckState(last) : status;
}

}  // namespace

absl::Status RegisterBenchmarks() {
  return RegisterCases("mixed_precision_step", {.bytes_per_element = kBytesHeld, .lists = false},
                       Measure);
}

}  // namespace brigade::benchmarks
