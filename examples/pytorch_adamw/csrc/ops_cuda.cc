// adamw_ and grad_check on CUDA: the kernels' launchers on PyTorch's current stream. Nothing waits.
// Memory comes from PyTorch's allocator, which knows the stream's order.

#include <ATen/cuda/CUDAContext.h>
#include <ATen/ops/empty.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <torch/library.h>

#include <algorithm>
#include <vector>

#include "bk_adam/kernels/adam/adam_cuda.h"
#include "bk_grad_check/kernels/grad_check/grad_check_cuda.h"
#include "csrc/arguments.h"
#include "csrc/parallel_ranges.h"
#include "csrc/step_cuda.h"

namespace brigade_adamw {
namespace {

namespace bk = bk_adam::kernels;
namespace gk = bk_grad_check::kernels;

// StepState and GroupSteps of one launch.
constexpr int64_t kStepBytes =
    sizeof(bk::StepState) + kTensorsPerLaunch * static_cast<int64_t>(sizeof(bk::GroupStep));

void AdamW(at::TensorList params, at::TensorList exp_avgs, at::TensorList exp_avg_sqs,
           at::TensorList steps, at::TensorList copies, at::TensorList grads, double lr,
           double beta1, double beta2, double eps, double weight_decay, bool maximize,
           std::optional<double> max_norm, const std::optional<at::Tensor>& check,
           const std::optional<at::Tensor>& grad_scale,
           const std::optional<at::Tensor>& found_inf) {
  Update update = CheckUpdate(
      params, exp_avgs, exp_avg_sqs, steps, copies, grads,
      {lr, beta1, beta2, eps, weight_decay, maximize, max_norm, check, grad_scale, found_inf});
  const int64_t count = static_cast<int64_t>(update.segments.size());
  if (count == 0) return;
  const c10::cuda::CUDAGuard guard(params[0].device());
  const cudaStream_t stream = at::cuda::getCurrentCUDAStream();
  const std::vector<bk::AdamGroup> groups(kTensorsPerLaunch, update.group);
  for (int64_t first = 0; first < count; first += kTensorsPerLaunch) {
    const int64_t here = std::min<int64_t>(count - first, kTensorsPerLaunch);
    at::Tensor memory = at::empty({kStepBytes}, params[0].options().dtype(at::kByte));
    auto* const state = reinterpret_cast<bk::StepState*>(memory.mutable_data_ptr());
    StepParameters decide = {};
    decide.inputs = update.inputs;
    decide.betas = {beta1, beta2};
    decide.lr = update.lr;
    std::copy_n(update.steps.begin() + first, here, decide.steps);
    decide.count = static_cast<int>(here);
    decide.state = state;
    decide.group_steps = reinterpret_cast<bk::GroupStep*>(state + 1);
    C10_CUDA_CHECK(LaunchDecideStep(decide, stream));

    bk::AdamSegment* const segments = update.segments.data() + first;
    for (int64_t i = 0; i < here; ++i) segments[i].group = static_cast<int32_t>(i);
    const bk::AdamParameters parameters = bk::MakeAdamParameters(
        groups.data(), here, bk::WeightDecayMode::kDecoupled, state, decide.group_steps);
    WithUpdateTypes(update, [&](auto grad, auto copy) {
      const cudaError_t error =
          bk::LaunchAdam<decltype(grad), decltype(copy)>(segments, here, parameters, stream);
      C10_CUDA_CHECK(error);
    });
  }
  MarkChanged(params, copies);
}

at::Tensor GradCheck(at::TensorList grads) {
  using bk_grad_check::precision::BFloat16;
  using bk_grad_check::precision::Half;
  const Gradients gradients = CheckGradients(grads);
  const c10::cuda::CUDAGuard guard(grads[0].device());
  const cudaStream_t stream = at::cuda::getCurrentCUDAStream();
  const std::vector<int64_t> before = PiecesBefore(gradients.sizes, gk::kGradTile);
  const auto doubles = grads[0].options().dtype(at::kDouble).layout(at::kStrided);
  at::Tensor result = at::empty({2}, doubles);
  at::Tensor stats = at::empty({sizeof(gk::GradStats) / sizeof(double)}, doubles);
  at::Tensor sums = at::empty({std::max<int64_t>(before.back(), 1)}, doubles);
  double* const tile_sums = sums.mutable_data_ptr<double>();
  auto* const found = reinterpret_cast<gk::GradStats*>(stats.mutable_data_ptr());
  // Launches of tensors of one type that stand together: the order of the sums is that of the list.
  const size_t count = gradients.types.size();
  for (size_t begin = 0, end; begin < count; begin = end) {
    const at::ScalarType type = gradients.types[begin];
    for (end = begin + 1; end < count && gradients.types[end] == type;) ++end;
    WithType<Half, BFloat16>(type, [&](auto value) {
      C10_CUDA_CHECK(gk::LaunchGradTileSums<decltype(value)>(gradients.segments.data() + begin,
                                                             static_cast<int64_t>(end - begin),
                                                             tile_sums + before[begin], stream));
    });
  }
  C10_CUDA_CHECK(gk::LaunchGradCheckFinish(tile_sums, before.back(), found, stream));
  C10_CUDA_CHECK(LaunchNorm(found, result.mutable_data_ptr<double>(), stream));
  return result;
}

void Register(torch::Library& m) {
  m.impl("adamw_", &AdamW);
  m.impl("grad_check", &GradCheck);
}

}  // namespace
}  // namespace brigade_adamw

// A list with a sparse tensor comes here too, to be refused in words.
TORCH_LIBRARY_IMPL(brigade_adamw, CUDA, m) { brigade_adamw::Register(m); }
TORCH_LIBRARY_IMPL(brigade_adamw, SparseCUDA, m) { brigade_adamw::Register(m); }
TORCH_LIBRARY_IMPL(brigade_adamw, SparseCsrCUDA, m) { brigade_adamw::Register(m); }
