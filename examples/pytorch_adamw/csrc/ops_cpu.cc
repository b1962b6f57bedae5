// The ops' schemas, and both ops on the CPU: ATen's threads take ranges of the lists. The sums of
// grad_check's tiles are added in order, so that the number of threads changes no bit.

#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>
#include <torch/library.h>

#include <cmath>
#include <map>
#include <vector>

#include "bk_adam/kernels/adam/adam_cpu.h"
#include "bk_adam/kernels/adam/adam_parameters.h"
#include "bk_grad_check/kernels/grad_check/grad_check_cpu.h"
#include "bk_grad_check/precision/float16.h"
#include "csrc/arguments.h"
#include "csrc/parallel_ranges.h"

namespace brigade_adamw {
namespace {

namespace bk = bk_adam::kernels;
namespace gk = bk_grad_check::kernels;

constexpr int64_t kPiece = 16384;  // elements; untuned

// The step that each tensor makes, counted from 1: parameters that had no gradient now and then
// have made fewer.
std::vector<int64_t> NextSteps(const Update& update) {
  std::vector<int64_t> steps;
  for (size_t i = 0; i < update.steps.size(); ++i) {
    const float made = *update.steps[i];
    TORCH_CHECK(made >= 0.0f && made < 0x1p24f, "adamw_: steps[", i, "] is ", made,
                ", and must be a count below 2^24");
    steps.push_back(static_cast<int64_t>(made) + 1);
  }
  return steps;
}

void AdamW(at::TensorList params, at::TensorList exp_avgs, at::TensorList exp_avg_sqs,
           at::TensorList steps, at::TensorList copies, at::TensorList grads, double lr,
           double beta1, double beta2, double eps, double weight_decay, bool maximize,
           std::optional<double> max_norm, const std::optional<at::Tensor>& check,
           const std::optional<at::Tensor>& grad_scale,
           const std::optional<at::Tensor>& found_inf) {
  const Update update = CheckUpdate(
      params, exp_avgs, exp_avg_sqs, steps, copies, grads,
      {lr, beta1, beta2, eps, weight_decay, maximize, max_norm, check, grad_scale, found_inf});
  const Decision decision = Decide(update.inputs);
  if (decision.skip) return;
  const std::vector<int64_t> next = NextSteps(update);
  std::map<int64_t, bk::AdamParameters> of_step;
  std::vector<const bk::AdamParameters*> parameters;
  for (const int64_t step : next) {
    const auto [place, is_new] = of_step.try_emplace(step);
    if (is_new) {
      const bk::OneStep one = {step, &update.lr, decision.multiplier};
      place->second =
          bk::MakeAdamParameters(&update.group, 1, bk::WeightDecayMode::kDecoupled, one);
    }
    parameters.push_back(&place->second);
  }
  WithUpdateTypes(update, [&](auto grad, auto copy) {
    ParallelForEachRange(update.sizes, kPiece, [&](size_t i, int64_t begin, int64_t end) {
      const bk::StepError error = bk::AdamRange<decltype(grad), decltype(copy)>(
          update.segments[i], *parameters[i], begin, end);
      TORCH_INTERNAL_ASSERT(error == bk::StepError::kNone, "the step ", bk::Describe(error));
    });
  });
  for (size_t i = 0; i < next.size(); ++i) *update.steps[i] = static_cast<float>(next[i]);
  MarkChanged(params, copies);
}

at::Tensor GradCheck(at::TensorList grads) {
  using bk_grad_check::precision::BFloat16;
  using bk_grad_check::precision::Half;
  const Gradients gradients = CheckGradients(grads);
  const std::vector<int64_t> before = PiecesBefore(gradients.sizes, gk::kGradTile);
  std::vector<double> sums(before.back());
  ParallelForEachRange(gradients.sizes, gk::kGradTile, [&](size_t i, int64_t begin, int64_t end) {
    WithType<Half, BFloat16>(gradients.types[i], [&](auto type) {
      gk::GradTileSumsRange<decltype(type)>(gradients.segments[i], begin, end,
                                            sums.data() + before[i]);
    });
  });
  const gk::GradStats stats = gk::GradCheckFinishCpu(sums.data(), before.back());
  at::Tensor result = at::empty({2}, at::kDouble);
  double* const values = result.mutable_data_ptr<double>();
  values[0] = std::sqrt(stats.sum_of_squares);
  values[1] = stats.all_finite != 0 ? 0.0 : 1.0;
  return result;
}

void Register(torch::Library& m) {
  m.impl("adamw_", &AdamW);
  m.impl("grad_check", &GradCheck);
}

}  // namespace
}  // namespace brigade_adamw

TORCH_LIBRARY(brigade_adamw, m) {
  m.def("grad_check(Tensor[] grads) -> Tensor");
  m.def(
      "adamw_(Tensor(a!)[] params, Tensor(b!)[] exp_avgs, Tensor(c!)[] exp_avg_sqs, "
      "Tensor(d!)[] steps, Tensor(e!)[] copies, Tensor[] grads, *, float lr, float beta1, "
      "float beta2, float eps, float weight_decay, bool maximize=False, float? max_norm=None, "
      "Tensor? check=None, Tensor? grad_scale=None, Tensor? found_inf=None) -> ()");
}

// A list with a sparse tensor comes here too, to be refused in words.
TORCH_LIBRARY_IMPL(brigade_adamw, CPU, m) { brigade_adamw::Register(m); }
TORCH_LIBRARY_IMPL(brigade_adamw, SparseCPU, m) { brigade_adamw::Register(m); }
TORCH_LIBRARY_IMPL(brigade_adamw, SparseCsrCPU, m) { brigade_adamw::Register(m); }
