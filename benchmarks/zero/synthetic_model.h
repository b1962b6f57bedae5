#ifndef BRIGADE_BENCHMARKS_ZERO_SYNTHETIC_MODEL_H_
#define BRIGADE_BENCHMARKS_ZERO_SYNTHETIC_MODEL_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "brigade/device/buffer.h"
#include "brigade/device/context.h"
#include "brigade/device/stream.h"
#include "brigade/kernels/cast/cast.h"
#include "brigade/zero/zero_optimizer.h"

namespace brigade::benchmarks {

// Units of one size, whose passes are real memory traffic: forward copies the weights to
// activations, backward copies the weights to the gradients, and both read and write the
// activations `passes` times.
struct SyntheticModel {
  int units = 16;
  int parameters_per_unit = 4;
  int64_t unit_elements = 1 << 20;
  int passes = 1;

  int parameters() const { return units * parameters_per_unit; }
  int64_t elements() const { return units * unit_elements; }
  zero::ModelSpec Spec() const;
};

// The forward and backward passes of one rank, all in bfloat16.
class SyntheticTransformer {
 public:
  static absl::StatusOr<std::unique_ptr<SyntheticTransformer>> Create(const SyntheticModel& model,
                                                                      device::Context& context,
                                                                      device::Stream& compute);

  // A micro-batch through the optimizer, without its Step.
  absl::Status Forward(zero::ZeroOptimizer& zero);
  absl::Status Backward(zero::ZeroOptimizer& zero);

  // The same work on arrays of its own, with nothing else.
  absl::Status ForwardAlone();
  absl::Status BackwardAlone();

 private:
  SyntheticTransformer(const SyntheticModel& model, device::Stream& compute);

  absl::Status Activations();
  // Copies segments_.
  absl::Status Copy();
  void ListOwn(int unit, bool backward);
  char* Activation(int parameter_of_unit);

  const SyntheticModel model_;
  device::Stream& compute_;
  device::Buffer weights_, gradients_, activations_;
  std::vector<kernels::CastSegment> segments_;
};

}  // namespace brigade::benchmarks

#endif  // BRIGADE_BENCHMARKS_ZERO_SYNTHETIC_MODEL_H_
