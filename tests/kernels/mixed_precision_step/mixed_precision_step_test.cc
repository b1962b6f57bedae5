// The whole optimizer step in mixed precision on one rank, through the public calls: grad_check, step_control,
// adam. Same bits as the specification over many steps, without a host wait or an allocation.

#include <atomic>
#include <limits>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "brigade/device/context.h"
#include "brigade/kernels/adam/adam.h"
#include "brigade/kernels/grad_check/grad_check.h"
#include "brigade/kernels/step_control/step_control.h"
#include "brigade/precision/dtype.h"
#include "brigade/tests/kernels/testing.h"
#include "brigade/tests/spec/formats.h"
#include "brigade/tests/spec/optimizers.h"
#include "brigade/tests/spec/step_control.h"
#include "brigade/tests/spec/sums.h"
#include "brigade/tests/testing/counted_allocations.h"
#include "gtest/gtest.h"

namespace brigade::kernels {
namespace {

using precision::Half;

constexpr int kSteps = 24;
constexpr float kInfinity = std::numeric_limits<float>::infinity();
const std::vector<int64_t> kSizes = {3, 0, 12345, 8192, 1, 40000};

// Everything in device memory, as a training system would hold it.
class Trainer {
 public:
  explicit Trainer(device::Context& context) : stream(context.NewStream("compute").value()) {
    const int64_t size = TotalSize();
    const auto allocate = [&](int64_t bytes, device::Purpose purpose) {
      buffers.push_back(context.Allocate(bytes, purpose).value());
      return buffers.back().data();
    };
    using device::Purpose;
    master = static_cast<float*>(allocate(size * sizeof(float), Purpose::kOptimizerState));
    m = static_cast<float*>(allocate(size * sizeof(float), Purpose::kOptimizerState));
    v = static_cast<float*>(allocate(size * sizeof(float), Purpose::kOptimizerState));
    copy = static_cast<Half*>(allocate(size * sizeof(Half), Purpose::kParameters));
    for (int step = 0; step < kSteps; ++step) {
      grads.push_back(static_cast<Half*>(allocate(size * sizeof(Half), Purpose::kGradients)));
    }
    state = static_cast<StepState*>(allocate(sizeof(StepState), Purpose::kScratch));
    group_steps = static_cast<GroupStep*>(allocate(sizeof(GroupStep), Purpose::kScratch));
    stats = static_cast<GradStats*>(allocate(sizeof(GradStats), Purpose::kScratch));
    lr_table = static_cast<float*>(allocate(2 * sizeof(float), Purpose::kScratch));
    workspace = absl::MakeSpan(
        static_cast<double*>(allocate(100 * sizeof(double), Purpose::kScratch)), 100);
    lr_table[0] = 1e-2f;
    lr_table[1] = 5e-3f;
    control.loss_scale = {.initial_scale = 1024.0f, .window = 3, .hysteresis = 1};
    control.max_grad_norm = 1.0;
    control.betas = betas;
    control.lr_table = lr_table;
    control.lr_table_size = 2;
    adam.grad_dtype = precision::DType::kFloat16;
    adam.copy_dtype = precision::DType::kFloat16;
    adam.groups = groups;
    adam.state = state;
    adam.group_steps = group_steps;
    *state = InitialStepState(control.loss_scale);
  }

  static int64_t TotalSize() {
    int64_t size = 0;
    for (const int64_t n : kSizes) size += n;
    return size;
  }

  // Not with ASSERT_OK: GoogleTest's matchers allocate.
  absl::Status Step(int step) {
    grad_segments.clear();
    adam_segments.clear();
    int64_t at = 0;
    for (const int64_t n : kSizes) {
      Half* const grad = grads[step] + at;
      grad_segments.push_back({grad, n});
      adam_segments.push_back({master + at, m + at, v + at, grad, copy + at, n, 0});
      at += n;
    }
    absl::Status status =
        GradCheck(grad_segments, precision::DType::kFloat16, workspace, stats, *stream);
    status.Update(StepControl(absl::MakeConstSpan(stats, 1), control, state, group_steps, *stream));
    status.Update(Adam(adam_segments, adam, *stream));
    return status;
  }

  std::unique_ptr<device::Stream> stream;
  std::vector<device::Buffer> buffers;
  float *master, *m, *v, *lr_table;
  Half* copy;
  std::vector<Half*> grads;
  StepState* state;
  GroupStep* group_steps;
  GradStats* stats;
  absl::Span<double> workspace;
  const std::vector<StepBetas> betas = {{0.9, 0.999}};
  const std::vector<AdamGroup> groups = {{0.9, 0.999, 1e-8, 0.01}};
  StepControlOptions control;
  AdamOptions adam;
  std::vector<GradSegment> grad_segments;
  std::vector<AdamSegment> adam_segments;
};

// The same serially, by the specification.
struct Specified {
  std::vector<float> master, m, v, copy;
  spec::StepState state;

  void Step(const Half* grads, const StepControlOptions& control) {
    std::vector<std::vector<float>> segments;
    int64_t at = 0;
    for (const int64_t n : kSizes) {
      segments.emplace_back();
      for (int64_t i = 0; i < n; ++i) segments.back().push_back(static_cast<float>(grads[at + i]));
      at += n;
    }
    spec::ControlStep({spec::SumOfSquares(segments)},
                      {.loss_scale = {.window = control.loss_scale.window,
                                      .hysteresis = control.loss_scale.hysteresis},
                       .clip = control.max_grad_norm},
                      state);
    if (state.skip) return;
    const float lr = spec::LearningRate({1e-2f, 5e-3f}, state);
    const spec::GroupStep group = spec::MakeGroupStep(0.9, 0.999, lr, state.step);
    for (size_t i = 0; i < master.size(); ++i) {
      const spec::AdamElement x =
          spec::AdamUpdate({master[i], m[i], v[i]}, static_cast<float>(grads[i]), state.multiplier,
                           {.weight_decay = 0.01}, group);
      master[i] = x.param;
      m[i] = x.m;
      v[i] = x.v;
      copy[i] = spec::Round(spec::Format::kFloat16, x.param);
    }
  }
};

TEST(MixedPrecisionStepTest, GivesTheSpecificationsBitsWithoutAHostWaitOrAnAllocation) {
  auto context = device::Context::Create({.compute_threads = 2, .checks = false}).value();
  Trainer trainer(*context);
  const int64_t size = Trainer::TotalSize();
  std::mt19937 random(71);
  Specified wanted;
  for (int64_t i = 0; i < size; ++i) {
    trainer.master[i] = TypicalValue(random);
    trainer.m[i] = trainer.v[i] = 0.0f;
    trainer.copy[i] = Half(trainer.master[i]);
    wanted.master.push_back(trainer.master[i]);
    wanted.copy.push_back(static_cast<float>(trainer.copy[i]));
  }
  wanted.m = wanted.v = std::vector<float>(size, 0.0f);
  wanted.state.loss_scale = 1024.0f;
  wanted.state.hysteresis = 1;
  std::normal_distribution<float> normal;
  for (int step = 0; step < kSteps; ++step) {
    for (int64_t i = 0; i < size; ++i) trainer.grads[step][i] = Half(30.0f * normal(random));
    // Overflows of each kind on the way.
    if (step % 7 == 3) trainer.grads[step][random() % size] = Half(step % 2 ? kInfinity : NAN);
  }

  // The queue and the scratch lists grow to what they need. A closed gate makes it the most they can need.
  auto blocker = context->NewStream("blocker").value();
  auto event = context->NewEvent("gate").value();
  std::atomic<bool> open{false};
  const auto close = [&] {
    open = false;
    ASSERT_OK(blocker->Enqueue({"gate", {}}, [&open](device::ThreadPool&) {
      while (!open) std::this_thread::yield();
      return absl::OkStatus();
    }));
    ASSERT_OK(blocker->Record(*event));
    ASSERT_OK(trainer.stream->Wait(*event));
  };
  close();
  for (int step = 0; step < kSteps; ++step) ASSERT_OK(trainer.Step(step));
  open = true;
  ASSERT_OK(trainer.stream->Synchronize());

  // From the beginning again.
  for (int64_t i = 0; i < size; ++i) {
    trainer.master[i] = wanted.master[i];
    trainer.m[i] = trainer.v[i] = 0.0f;
    trainer.copy[i] = Half(wanted.copy[i]);
  }
  *trainer.state = InitialStepState(trainer.control.loss_scale);
  close();
  const int64_t waits = context->host_waits();
  const int64_t allocations = brigade::testing::CountedAllocations();
  absl::Status status;
  for (int step = 0; step < kSteps; ++step) status.Update(trainer.Step(step));
  EXPECT_EQ(context->host_waits() - waits, 0);
  EXPECT_EQ(brigade::testing::CountedAllocations() - allocations, 0);
  ASSERT_OK(status);
  open = true;
  ASSERT_OK(trainer.stream->Synchronize());

  for (int step = 0; step < kSteps; ++step) wanted.Step(trainer.grads[step], trainer.control);
  EXPECT_GT(wanted.state.step, 10);
  EXPECT_LT(wanted.state.step, kSteps);
  EXPECT_EQ(trainer.state->step, wanted.state.step);
  EXPECT_EQ(trainer.state->loss_scale, wanted.state.loss_scale);
  for (int64_t i = 0; i < size; ++i) {
    ASSERT_TRUE(SameBits(trainer.master[i], wanted.master[i])) << i;
    ASSERT_TRUE(SameBits(trainer.m[i], wanted.m[i])) << i;
    ASSERT_TRUE(SameBits(trainer.v[i], wanted.v[i])) << i;
    ASSERT_TRUE(SameBits(static_cast<float>(trainer.copy[i]), wanted.copy[i])) << i;
  }
}

TEST(MixedPrecisionStepTest, IsFreeOfRacesInTheCheckersEyes) {
  device::RaceChecker checker;
  auto context =
      device::Context::Create({.compute_threads = 1, .checks = true, .race_checker = &checker})
          .value();
  {
    Trainer trainer(*context);
    for (int step = 0; step < 3; ++step) ASSERT_OK(trainer.Step(step));
    ASSERT_OK(trainer.stream->Synchronize());
    // On a stream of its own and without a wait, the update races with the step before. Here an atomic
    // flag keeps the two apart, which the checker cannot know, so that only it reports.
    std::atomic<bool> stepped{false};
    ASSERT_OK(trainer.Step(3));
    ASSERT_OK(trainer.stream->Enqueue({"flag", {}}, [&stepped](device::ThreadPool&) {
      stepped = true;
      return absl::OkStatus();
    }));
    auto other = context->NewStream("other").value();
    ASSERT_OK(other->Enqueue({"await flag", {}}, [&stepped](device::ThreadPool&) {
      while (!stepped) std::this_thread::yield();
      return absl::OkStatus();
    }));
    ASSERT_OK(Adam(trainer.adam_segments, trainer.adam, *other));
    EXPECT_THAT(other->Synchronize(),
                brigade::testing::StatusIs(absl::StatusCode::kFailedPrecondition,
                                           ::testing::HasSubstr("\"adam\"")));
    ASSERT_OK(other->Reset());
    (void)trainer.stream->Reset();
  }
  EXPECT_FALSE(checker.reports().empty());
}

}  // namespace
}  // namespace brigade::kernels
