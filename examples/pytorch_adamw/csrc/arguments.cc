#include "csrc/arguments.h"

#include <ATen/ops/empty_like.h>
#include <c10/util/Exception.h>

#include <cmath>
#include <limits>

namespace brigade_adamw {
namespace {

bool IsFloating(at::ScalarType type) {
  return type == at::kFloat || type == at::kHalf || type == at::kBFloat16;
}

// Elements without a gap and none twice, in whatever order.
void CheckDense(const at::Tensor& t, const char* op, const char* list, size_t i) {
  TORCH_CHECK(t.layout() == at::kStrided, op, ": ", list, "[", i, "] has the layout ", t.layout(),
              "; only strided tensors are supported");
  TORCH_CHECK(t.numel() == 0 || t.is_non_overlapping_and_dense(), op, ": ", list, "[", i,
              "] with sizes ", t.sizes(), " and strides ", t.strides(),
              " has gaps or overlaps; make it contiguous");
}

// Whether equal indices are equal distances from the first element.
bool SameOrder(const at::Tensor& a, const at::Tensor& b) {
  return a.numel() == 0 || a.strides() == b.strides() || (a.is_contiguous() && b.is_contiguous());
}

void CheckLike(const at::Tensor& t, const at::Tensor& param, const char* list, size_t i) {
  TORCH_CHECK(t.device() == param.device(), "adamw_: ", list, "[", i, "] is on ", t.device(),
              ", params[", i, "] on ", param.device());
  TORCH_CHECK(t.sizes() == param.sizes(), "adamw_: ", list, "[", i, "] has sizes ", t.sizes(),
              ", params[", i, "] ", param.sizes());
}

void CheckWritten(const at::Tensor& t, const at::Tensor& param, const char* list, size_t i) {
  CheckLike(t, param, list, i);
  CheckDense(t, "adamw_", list, i);
  TORCH_CHECK(SameOrder(t, param), "adamw_: ", list, "[", i, "] has strides ", t.strides(),
              ", params[", i, "] ", param.strides());
}

void CheckFloat(const at::Tensor& t, const char* list, size_t i) {
  TORCH_CHECK(t.scalar_type() == at::kFloat, "adamw_: ", list, "[", i, "] is ", t.scalar_type(),
              ", and must be Float");
}

void CheckCount(at::TensorList list, size_t count, const char* name) {
  TORCH_CHECK(list.size() == count, "adamw_: there are ", list.size(), " ", name, " for ", count,
              " params");
}

// The value of a scalar on the device of the update; null without one.
template <typename T>
const T* Scalar(const std::optional<at::Tensor>& t, int64_t size, const at::Device& device,
                const char* name) {
  if (!t.has_value() || !t->defined()) return nullptr;
  constexpr at::ScalarType kType = c10::CppTypeToScalarType<T>::value;
  TORCH_CHECK(t->scalar_type() == kType && t->numel() == size && t->is_contiguous(),
              "adamw_: ", name, " is ", t->scalar_type(), " of sizes ", t->sizes(),
              ", and must be ", kType, " with ", size, " element", size == 1 ? "" : "s");
  TORCH_CHECK(t->device() == device, "adamw_: ", name, " is on ", t->device(),
              ", the parameters are on ", device);
  return t->const_data_ptr<T>();
}

void CheckOptions(const AdamWOptions& o) {
  TORCH_CHECK(o.lr >= 0.0 && std::isfinite(o.lr), "adamw_: lr is ", o.lr,
              ", and must be at least 0");
  TORCH_CHECK(o.beta1 >= 0.0 && o.beta1 < 1.0, "adamw_: beta1 is ", o.beta1,
              ", and must be in [0, 1)");
  TORCH_CHECK(o.beta2 >= 0.0 && o.beta2 < 1.0, "adamw_: beta2 is ", o.beta2,
              ", and must be in [0, 1)");
  TORCH_CHECK(static_cast<float>(o.eps) > 0.0f && std::isfinite(o.eps), "adamw_: eps is ", o.eps,
              ", and must be greater than 0, also as a float");
  TORCH_CHECK(o.weight_decay >= 0.0 && std::isfinite(o.weight_decay), "adamw_: weight_decay is ",
              o.weight_decay, ", and must be at least 0");
  if (!o.max_norm.has_value()) return;
  TORCH_CHECK(*o.max_norm > 0.0, "adamw_: max_norm is ", *o.max_norm,
              ", and must be greater than 0");
  TORCH_CHECK(o.check.has_value(), "adamw_: max_norm needs check, the result of grad_check");
}

}  // namespace

Update CheckUpdate(at::TensorList params, at::TensorList exp_avgs, at::TensorList exp_avg_sqs,
                   at::TensorList steps, at::TensorList copies, at::TensorList grads,
                   const AdamWOptions& options) {
  const size_t count = params.size();
  CheckCount(exp_avgs, count, "exp_avgs");
  CheckCount(exp_avg_sqs, count, "exp_avg_sqs");
  CheckCount(steps, count, "steps");
  CheckCount(grads, count, "grads");
  if (!copies.empty()) CheckCount(copies, count, "copies");
  CheckOptions(options);

  Update update = {};
  update.copy_type = at::ScalarType::Undefined;
  update.segments.reserve(count);
  for (size_t i = 0; i < count; ++i) {
    const at::Tensor& param = params[i];
    TORCH_CHECK(param.device() == params[0].device(), "adamw_: params[", i, "] is on ",
                param.device(), ", params[0] on ", params[0].device());
    CheckFloat(param, "params", i);
    CheckDense(param, "adamw_", "params", i);
    CheckFloat(exp_avgs[i], "exp_avgs", i);
    CheckWritten(exp_avgs[i], param, "exp_avgs", i);
    CheckFloat(exp_avg_sqs[i], "exp_avg_sqs", i);
    CheckWritten(exp_avg_sqs[i], param, "exp_avg_sqs", i);
    CheckFloat(steps[i], "steps", i);
    TORCH_CHECK(steps[i].numel() == 1 && steps[i].device() == param.device(), "adamw_: steps[", i,
                "] has sizes ", steps[i].sizes(), " on ", steps[i].device(),
                ", and must be one number on ", param.device());

    at::Tensor grad = grads[i];
    TORCH_CHECK(IsFloating(grad.scalar_type()), "adamw_: grads[", i, "] is ", grad.scalar_type(),
                ", and must be Float, Half or BFloat16");
    if (i == 0) update.grad_type = grad.scalar_type();
    TORCH_CHECK(grad.scalar_type() == update.grad_type, "adamw_: grads[", i, "] is ",
                grad.scalar_type(), ", grads[0] ", update.grad_type);
    TORCH_CHECK(grad.layout() == at::kStrided, "adamw_: grads[", i, "] has the layout ",
                grad.layout(), "; only strided gradients are supported");
    CheckLike(grad, param, "grads", i);
    if (!grad.is_non_overlapping_and_dense() || !SameOrder(grad, param)) {
      grad = at::empty_like(param, param.options().dtype(grad.scalar_type())).copy_(grad);
      update.kept.push_back(grad);
    }

    void* copy = nullptr;
    if (!copies.empty()) {
      const at::ScalarType type = copies[i].scalar_type();
      TORCH_CHECK(type == at::kHalf || type == at::kBFloat16, "adamw_: copies[", i, "] is ", type,
                  ", and must be Half or BFloat16");
      if (i == 0) update.copy_type = type;
      TORCH_CHECK(type == update.copy_type, "adamw_: copies[", i, "] is ", type, ", copies[0] ",
                  update.copy_type);
      CheckWritten(copies[i], param, "copies", i);
      copy = copies[i].mutable_data_ptr();
    }
    update.segments.push_back({param.mutable_data_ptr<float>(),
                               exp_avgs[i].mutable_data_ptr<float>(),
                               exp_avg_sqs[i].mutable_data_ptr<float>(), grad.const_data_ptr(),
                               copy, param.numel(), /*group=*/0});
    update.sizes.push_back(param.numel());
    update.steps.push_back(steps[i].mutable_data_ptr<float>());
  }

  update.group = {options.beta1, options.beta2, options.eps, options.weight_decay};
  update.lr = static_cast<float>(options.lr);
  if (count == 0) return update;
  const at::Device device = params[0].device();
  update.inputs.check = Scalar<double>(options.check, 2, device, "check");
  update.inputs.grad_scale = Scalar<float>(options.grad_scale, 1, device, "grad_scale");
  update.inputs.found_inf = Scalar<float>(options.found_inf, 1, device, "found_inf");
  update.inputs.max_norm = options.max_norm.value_or(std::numeric_limits<double>::infinity());
  update.inputs.maximize = options.maximize;
  return update;
}

void MarkChanged(at::TensorList params, at::TensorList copies) {
  for (const at::TensorList list : {params, copies}) {
    for (const at::Tensor& t : list) {
      if (!t.is_inference()) t.unsafeGetTensorImpl()->bump_version();
    }
  }
}

Gradients CheckGradients(at::TensorList grads) {
  Gradients gradients;
  for (size_t i = 0; i < grads.size(); ++i) {
    at::Tensor grad = grads[i];
    TORCH_CHECK(IsFloating(grad.scalar_type()), "grad_check: grads[", i, "] is ",
                grad.scalar_type(), ", and must be Float, Half or BFloat16");
    TORCH_CHECK(grad.layout() == at::kStrided, "grad_check: grads[", i, "] has the layout ",
                grad.layout(), "; only strided gradients are supported");
    TORCH_CHECK(grad.device() == grads[0].device(), "grad_check: grads[", i, "] is on ",
                grad.device(), ", grads[0] on ", grads[0].device());
    if (!grad.is_non_overlapping_and_dense()) {
      grad = grad.contiguous();
      gradients.kept.push_back(grad);
    }
    gradients.segments.push_back({grad.const_data_ptr(), grad.numel()});
    gradients.sizes.push_back(grad.numel());
    gradients.types.push_back(grad.scalar_type());
  }
  return gradients;
}

}  // namespace brigade_adamw
