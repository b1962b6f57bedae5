#ifndef BRIGADE_ADAMW_ARGUMENTS_H_
#define BRIGADE_ADAMW_ARGUMENTS_H_

// The ops' arguments as the kernels take them, checked: what the ops of all devices share.

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "bk_adam/kernels/adam/adam_math.h"
#include "bk_adam/kernels/adam/adam_parameters.h"
#include "bk_adam/kernels/update_types.h"
#include "bk_adam/precision/float16.h"
#include "bk_grad_check/kernels/grad_check/grad_check_math.h"
#include "csrc/decision.h"

namespace brigade_adamw {

// The arguments of adamw_ beside the lists.
struct AdamWOptions {
  double lr;
  double beta1;
  double beta2;
  double eps;
  double weight_decay;
  bool maximize;
  std::optional<double> max_norm;
  std::optional<at::Tensor> check;
  std::optional<at::Tensor> grad_scale;
  std::optional<at::Tensor> found_inf;
};

// The arguments of adamw_, checked.
struct Update {
  // One for each tensor, in group 0.
  std::vector<bk_adam::kernels::AdamSegment> segments;
  std::vector<int64_t> sizes;
  // Device memory, one for each tensor.
  std::vector<float*> steps;
  at::ScalarType grad_type;
  // Undefined without a copy.
  at::ScalarType copy_type;
  bk_adam::kernels::AdamGroup group;
  float lr;
  StepInputs inputs;
  // Gradients that were brought into the order of their parameters; they must outlive the update.
  std::vector<at::Tensor> kept;
};

// Raises an error that names op, list, index and both values, before anything is changed.
Update CheckUpdate(at::TensorList params, at::TensorList exp_avgs, at::TensorList exp_avg_sqs,
                   at::TensorList steps, at::TensorList copies, at::TensorList grads,
                   const AdamWOptions& options);

// Tells autograd that the update has changed these tensors, so that a backward pass that still
// needs their old values is an error.
void MarkChanged(at::TensorList params, at::TensorList copies);

// The gradients of grad_check, checked.
struct Gradients {
  std::vector<bk_grad_check::kernels::GradSegment> segments;
  std::vector<int64_t> sizes;
  std::vector<at::ScalarType> types;
  // As in Update.
  std::vector<at::Tensor> kept;
};

// Raises an error that names index and value.
Gradients CheckGradients(at::TensorList grads);

// Calls run(T()) with the kernels' type of a dtype that the checks let through.
template <typename Half, typename BFloat16, typename Run>
void WithType(at::ScalarType type, const Run& run) {
  switch (type) {
    case at::kHalf:
      return run(Half());
    case at::kBFloat16:
      return run(BFloat16());
    default:
      return run(float());
  }
}

// Calls run(Grad(), Copy()) with the kernels' types of an update.
template <typename Run>
void WithUpdateTypes(const Update& update, const Run& run) {
  using bk_adam::precision::BFloat16;
  using bk_adam::precision::Half;
  WithType<Half, BFloat16>(update.grad_type, [&](auto grad) {
    if (update.copy_type == at::kHalf) return run(grad, Half());
    if (update.copy_type == at::kBFloat16) return run(grad, BFloat16());
    run(grad, bk_adam::kernels::NoCopy());
  });
}

}  // namespace brigade_adamw

#endif  // BRIGADE_ADAMW_ARGUMENTS_H_
