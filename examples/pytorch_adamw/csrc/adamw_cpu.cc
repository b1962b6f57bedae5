// adamw_ on the CPU: ATen's threads take ranges of the list.

#include <c10/util/Exception.h>
#include <torch/library.h>

#include <map>
#include <vector>

#include "csrc/arguments.h"
#include "bk_adam/kernels/adam/adam_cpu.h"
#include "bk_adam/kernels/adam/adam_parameters.h"
#include "csrc/parallel_ranges.h"

namespace brigade_adamw {
namespace {

namespace bk = bk_adam::kernels;

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
  const Update update = CheckUpdate(params, exp_avgs, exp_avg_sqs, steps, copies, grads,
                                    {lr, beta1, beta2, eps, weight_decay, maximize, max_norm,
                                     check, grad_scale, found_inf});
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

}  // namespace
}  // namespace brigade_adamw

TORCH_LIBRARY_IMPL(brigade_adamw, CPU, m) { m.impl("adamw_", &brigade_adamw::AdamW); }
