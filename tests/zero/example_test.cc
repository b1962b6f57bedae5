// How to train with a ZeroOptimizer: two ranks fit a line in stage 3, each on inputs of its own.
// The host waits once, at the end.

#include <cmath>
#include <vector>

#include "brigade/tests/collectives/ranks.h"
#include "brigade/tests/testing/status_matchers.h"
#include "brigade/zero/zero_optimizer.h"
#include "gtest/gtest.h"

namespace brigade::zero {
namespace {

float Target(float x) { return 3.0f * x - 1.5f; }

// The whole program of one rank, which has a context, a compute stream and a communicator.
void FitALine(collectives::Rank& self, std::vector<float>& fitted) {
  // Two layers: y = slope * x, then y + offset.
  const ModelSpec model = {{"scale", {{"slope", 1}}, {}}, {"shift", {{"offset", 1}}, {}}};
  constexpr int kScale = 0, kShift = 1;  // units, and their parameters

  ZeroOptions options;
  options.stage = 3;
  options.dtype = precision::DType::kFloat32;
  options.optimizer.kind = optim::OptimizerKind::kSgd;
  options.optimizer.groups = {{.lr = 0.1}};
  auto zero = ZeroOptimizer::Create(model, options, *self.communicator, *self.context, *self.stream)
                  .value();

  const float x = self.rank == 0 ? -1.0f : 2.0f;
  struct {
    float one = 1.0f, scaled = 0, y = 0;
  } memory;
  device::Stream& stream = *self.stream;
  for (int step = 0; step < 200; ++step) {
    UnitScope scale(*zero, kScale, Pass::kForward);
    const auto* slope = scale.weights<float>(kScale);
    ASSERT_OK(scale.status());
    ASSERT_OK(stream.Enqueue({"scale", {device::Reads(slope, 4), device::Writes(&memory.y, 4)}},
                             [&memory, slope, x](device::ThreadPool&) {
                               memory.y = *slope * x;
                               return absl::OkStatus();
                             }));
    ASSERT_OK(scale.Release());

    UnitScope shift(*zero, kShift, Pass::kForward);
    const auto* offset = shift.weights<float>(kShift);
    ASSERT_OK(shift.status());
    ASSERT_OK(stream.Enqueue({"shift", {device::Reads(offset, 4), device::Writes(&memory.y, 4)}},
                             [&memory, offset](device::ThreadPool&) {
                               memory.y += *offset;
                               return absl::OkStatus();
                             }));
    ASSERT_OK(shift.Release());

    // loss = (y - target)^2 / 2, times the scale that the device knows.
    ASSERT_OK(zero->ScaleLoss(&memory.one, &memory.scaled, 1, precision::DType::kFloat32));
    for (const int unit : {kShift, kScale}) {
      UnitScope scope(*zero, unit, Pass::kBackward);
      const GradientTarget gradient = scope.gradient(unit);
      ASSERT_OK(scope.status());
      ASSERT_OK(stream.Enqueue({"backward",
                                {device::Reads(&memory.y, 4), device::Reads(&memory.scaled, 4),
                                 device::Writes(gradient.data, 4)}},
                               [&memory, gradient, unit, x](device::ThreadPool&) {
                                 const float error = (memory.y - Target(x)) * memory.scaled;
                                 *static_cast<float*>(gradient.data) =
                                     unit == kShift ? error : error * x;
                                 return absl::OkStatus();
                               }));
      ASSERT_OK(scope.Release());
      ASSERT_OK(zero->GradientsReady(unit));
    }
    ASSERT_OK(zero->FinishBackward());
    ASSERT_OK(zero->Step());
  }
  ASSERT_OK(stream.Synchronize());
  ASSERT_OK(zero->ExportParameters([&](int parameter, absl::Span<const float> values) {
    if (self.rank == 0) fitted[static_cast<size_t>(parameter)] = values[0];
    return absl::OkStatus();
  }));
}

TEST(ExampleTest, FitsALine) {
  std::vector<float> fitted(2);
  collectives::OnThreads({.size = 2}, [&](collectives::Rank& self) { FitALine(self, fitted); });
  EXPECT_NEAR(fitted[0], 3.0f, 1e-4f);
  EXPECT_NEAR(fitted[1], -1.5f, 1e-4f);
}

}  // namespace
}  // namespace brigade::zero
