// A step of AdamW in mixed precision: the first one moves a weight by the learning rate.
#include <cmath>
#include <cstdio>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "brigade/device/context.h"
#include "brigade/optim/mixed_precision_optimizer.h"
#include "brigade/precision/float16.h"

namespace {

using brigade::device::Context;
using brigade::device::Stream;
using brigade::optim::MixedPrecisionOptimizer;
using brigade::precision::Half;

absl::StatusOr<float> OneStep() {
  const absl::StatusOr<std::unique_ptr<Context>> context = Context::Create({});
  if (!context.ok()) return context.status();
  const absl::StatusOr<std::unique_ptr<Stream>> stream = (*context)->CreateStream("compute");
  if (!stream.ok()) return stream.status();
  std::vector<Half> weights = {Half(1.0f)};
  std::vector<Half> grad = {Half(1.0f)};
  const brigade::optim::ParameterArrays parameter = {
      .name = "weight",
      .weights = weights.data(),
      .grad = grad.data(),
      .size = 1,
      .weight_dtype = brigade::precision::DType::kFloat16,
      .grad_dtype = brigade::precision::DType::kFloat16};
  brigade::optim::MixedPrecisionOptions options;
  options.optimizer.groups = {{.lr = 0.125, .weight_decay = 0}};
  const absl::StatusOr<std::unique_ptr<MixedPrecisionOptimizer>> optimizer =
      MixedPrecisionOptimizer::Create({&parameter, 1}, options, **context, **stream);
  if (!optimizer.ok()) return optimizer.status();
  absl::Status status = (*optimizer)->Step(**stream);
  status.Update((*stream)->Synchronize());
  if (!status.ok()) return status;
  return static_cast<float>(weights[0]);
}

}  // namespace

int main() {
  const absl::StatusOr<float> weight = OneStep();
  if (!weight.ok()) {
    std::fprintf(stderr, "%s\n", weight.status().ToString().c_str());
    return 1;
  }
  std::printf("%g\n", *weight);
  return std::fabs(*weight - 0.875f) < 1e-3f ? 0 : 1;
}
