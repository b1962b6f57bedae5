// grad_check on the CPU: ATen's threads take whole tiles, whose sums are then added in order, so
// that the number of threads changes no bit.

#include <ATen/ops/empty.h>
#include <torch/library.h>

#include <cmath>
#include <vector>

#include "csrc/arguments.h"
#include "bk_grad_check/kernels/grad_check/grad_check_cpu.h"
#include "bk_grad_check/precision/float16.h"
#include "csrc/parallel_ranges.h"

namespace brigade_adamw {
namespace {

namespace bk = bk_grad_check::kernels;

at::Tensor GradCheck(at::TensorList grads) {
  using bk_grad_check::precision::BFloat16;
  using bk_grad_check::precision::Half;
  const Gradients gradients = CheckGradients(grads);
  const std::vector<int64_t> before = PiecesBefore(gradients.sizes, bk::kGradTile);
  std::vector<double> sums(before.back());
  ParallelForEachRange(gradients.sizes, bk::kGradTile, [&](size_t i, int64_t begin, int64_t end) {
    WithType<Half, BFloat16>(gradients.types[i], [&](auto type) {
      bk::GradTileSumsRange<decltype(type)>(gradients.segments[i], begin, end,
                                            sums.data() + before[i]);
    });
  });
  const bk::GradStats stats = bk::GradCheckFinishCpu(sums.data(), before.back());
  at::Tensor result = at::empty({2}, at::kDouble);
  double* const values = result.mutable_data_ptr<double>();
  values[0] = std::sqrt(stats.sum_of_squares);
  values[1] = stats.all_finite != 0 ? 0.0 : 1.0;
  return result;
}

}  // namespace
}  // namespace brigade_adamw

TORCH_LIBRARY_IMPL(brigade_adamw, CPU, m) { m.impl("grad_check", &brigade_adamw::GradCheck); }
