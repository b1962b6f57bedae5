// The ops' schemas; who computes them on which device stands in the files beside this one.

#include <torch/library.h>

TORCH_LIBRARY(brigade_adamw, m) {
  m.def("grad_check(Tensor[] grads) -> Tensor");
  m.def(
      "adamw_(Tensor(a!)[] params, Tensor(b!)[] exp_avgs, Tensor(c!)[] exp_avg_sqs, "
      "Tensor(d!)[] steps, Tensor(e!)[] copies, Tensor[] grads, *, float lr, float beta1, "
      "float beta2, float eps, float weight_decay, bool maximize=False, float? max_norm=None, "
      "Tensor? check=None, Tensor? grad_scale=None, Tensor? found_inf=None) -> ()");
}
