// The kernels of a step strung together by hand: what they declare to the race checker fits
// together. Bits, waits and allocations of whole steps:
// tests/optim/mixed_precision_optimizer_test.cc.

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "brigade/device/context.h"
#include "brigade/kernels/adam/adam.h"
#include "brigade/kernels/grad_check/grad_check.h"
#include "brigade/kernels/step_control/step_control.h"
#include "brigade/precision/dtype.h"
#include "brigade/precision/float16.h"
#include "brigade/tests/testing/status_matchers.h"
#include "gtest/gtest.h"

namespace brigade::kernels {
namespace {

using ::brigade::testing::StatusIs;
using precision::Half;

// Everything in device memory, as a training system would hold it.
struct Trainer {
  explicit Trainer(device::Context& context)
      : context(context), stream(context.CreateStream("compute").value()) {
    int64_t at = 0;
    for (const int64_t n : {3, 0, 12345, 8192, 1}) {
      grad_segments.push_back({grad + at, n});
      adam_segments.push_back({master + at, m + at, v + at, grad + at, copy + at, n, 0});
      at += n;
    }
    *lr = 1e-2f;
    *state = InitialStepState(control.loss_scale);
    control.betas = betas;
    control.lr_table = lr;
    control.lr_table_size = 1;
    adam.grad_dtype = precision::DType::kFloat16;
    adam.copy_dtype = precision::DType::kFloat16;
    adam.groups = groups;
    adam.state = state;
    adam.group_steps = group_steps;
  }

  absl::Status Step() {
    absl::Status status =
        GradCheck(grad_segments, precision::DType::kFloat16, {workspace, 5}, stats, *stream);
    status.Update(StepControl({stats, 1}, control, state, group_steps, *stream));
    status.Update(Adam(adam_segments, adam, *stream));
    return status;
  }

  template <typename T>
  T* New(int64_t size) {
    buffers.push_back(context.Allocate(size * sizeof(T), device::Purpose::kScratch).value());
    return buffers.back().as<T>().data();
  }

  static constexpr int64_t kSize = 20541;

  device::Context& context;
  std::vector<device::Buffer> buffers;
  float* const master = New<float>(kSize);
  float* const m = New<float>(kSize);
  float* const v = New<float>(kSize);
  Half* const copy = New<Half>(kSize);
  Half* const grad = New<Half>(kSize);
  StepState* const state = New<StepState>(1);
  GroupStep* const group_steps = New<GroupStep>(1);
  GradStats* const stats = New<GradStats>(1);
  double* const workspace = New<double>(5);
  float* const lr = New<float>(1);
  const std::vector<StepBetas> betas = {{0.9, 0.999}};
  const std::vector<AdamGroup> groups = {{}};
  StepControlOptions control;
  std::vector<GradSegment> grad_segments;

  const std::unique_ptr<device::Stream> stream;
  std::vector<AdamSegment> adam_segments;
  AdamOptions adam;
};

TEST(MixedPrecisionStepTest, IsFreeOfRacesOnOneStreamButNotOnTwo) {
  device::RaceChecker checker;
  auto context =
      device::Context::Create({.compute_threads = 1, .checks = true, .race_checker = &checker})
          .value();
  Trainer trainer(*context);
  for (int step = 0; step < 3; ++step) ASSERT_OK(trainer.Step());
  ASSERT_OK(trainer.stream->Synchronize());
  EXPECT_TRUE(checker.reports().empty());
  // On a stream of its own and without a wait, the update races with the step before. Here an
  // atomic flag keeps the two apart, which the checker cannot know, so that only it reports.
  std::atomic<bool> stepped{false};
  ASSERT_OK(trainer.Step());
  ASSERT_OK(trainer.stream->Enqueue({"flag", {}}, [&stepped](device::ThreadPool&) {
    stepped = true;
    return absl::OkStatus();
  }));
  auto other = context->CreateStream("other").value();
  ASSERT_OK(other->Enqueue({"await flag", {}}, [&stepped](device::ThreadPool&) {
    while (!stepped) std::this_thread::yield();
    return absl::OkStatus();
  }));
  ASSERT_OK(Adam(trainer.adam_segments, trainer.adam, *other));
  EXPECT_THAT(other->Synchronize(),
              StatusIs(absl::StatusCode::kFailedPrecondition, ::testing::HasSubstr("\"adam\"")));
  EXPECT_FALSE(checker.reports().empty());
}

}  // namespace
}  // namespace brigade::kernels
