// Gradients with NaN and infinities through grad_check, step_control and adam on a GPU, against the
// same calls on the CPU.

#include <cstring>
#include <limits>
#include <vector>

#include "brigade/kernels/adam/adam.h"
#include "brigade/kernels/grad_check/grad_check.h"
#include "brigade/kernels/step_control/step_control.h"
#include "brigade/tests/kernels/gpu/both_devices.h"
#include "gtest/gtest.h"

namespace brigade::kernels {
namespace {

using precision::BFloat16;
using precision::DType;
using precision::Half;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
const std::vector<int64_t> kSizes = {33, 0, 20000, 7, 100003};

struct BadValue {
  size_t segment;
  int64_t element;
  float value;
};
// At the ends of segments, of grad_check's tiles and of a warp's rows, and somewhere between.
const std::vector<BadValue> kBadValues = {
    {0, 0, kNan},    {0, 32, kInfinity},    {2, 8191, -kInfinity},
    {2, 8192, kNan}, {2, 19999, kInfinity}, {3, 6, -kInfinity},
    {4, 255, -kNan}, {4, 50001, kInfinity}, {4, 100002, kNan},
};

// Gradients of several steps and everything that the steps touch, at the same places on every
// device.
template <typename Grad>
struct Training {
  Training(char* base, size_t steps) {
    Layout layout(base);
    const StepMemory step(layout);
    state = step.state;
    group_steps = step.group_steps;
    lr_table = layout.Take<float>(1);
    stats = layout.Take<GradStats>(1);
    workspace = absl::MakeSpan(layout.Take<double>(100), 100);
    history = layout.Take<StepState>(steps);
    for (size_t i = 0; i < steps; ++i) {
      grads.emplace_back();
      for (const int64_t n : kSizes) {
        grads.back().push_back(layout.Take<Grad>(n, grads.back().size() % 9));
      }
    }
    first = layout.Take<char>(0);
    for (const int64_t n : kSizes) {
      const int64_t o = segments.size() % 9;
      float* const param = layout.Take<float>(n, o);
      float* const m = layout.Take<float>(n, o);
      float* const v = layout.Take<float>(n, o);
      segments.push_back({param, m, v, nullptr, layout.Take<Half>(n, o), n, 0});
    }
    bytes = layout.Take<char>(0) - first;
    snapshot = layout.Take<char>(bytes);
  }

  void Prepare() {
    *state = InitialStepState({});
    *lr_table = 1e-3f;
    for (size_t step = 0; step < grads.size(); ++step) {
      for (size_t i = 0; i < kSizes.size(); ++i) {
        FillFloats(grads[step][i], precision::kDType<Grad>, kSizes[i], 10 + step);
      }
    }
    for (const AdamSegment& s : segments) {
      FillFloats(s.param, DType::kFloat32, s.size, 1);
      FillFloats(s.m, DType::kFloat32, s.size, 2);
      FillFloats(s.v, DType::kFloat32, s.size, 3);
      for (int64_t i = 0; i < s.size; ++i) s.v[i] = std::fabs(s.v[i]);
    }
  }

  void Spoil(size_t step, const BadValue& bad) {
    grads[step][bad.segment][bad.element] = Grad(bad.value);
  }

  absl::Status Step(size_t step, bool check_overflow, device::Stream& stream) {
    std::vector<GradSegment> list;
    for (size_t i = 0; i < kSizes.size(); ++i) {
      list.push_back({grads[step][i], kSizes[i]});
      segments[i].grad = grads[step][i];
    }
    const std::vector<StepBetas> betas = {{0.9, 0.999}};
    const std::vector<AdamGroup> groups = {{0.9, 0.999, 1e-8, 0.01}};
    StepControlOptions control;
    control.check_overflow = check_overflow;
    control.betas = betas;
    control.lr_table = lr_table;
    control.lr_table_size = 1;
    AdamOptions adam;
    adam.grad_dtype = precision::kDType<Grad>;
    adam.copy_dtype = DType::kFloat16;
    adam.groups = groups;
    adam.state = state;
    adam.group_steps = group_steps;
    absl::Status status = GradCheck(list, adam.grad_dtype, workspace, stats, stream);
    status.Update(StepControl(absl::MakeConstSpan(stats, 1), control, state, group_steps, stream));
    status.Update(Adam(segments, adam, stream));
    status.Update(stream.Copy(history + step, state, sizeof(StepState)));
    return status;
  }

  StepState* state;
  GroupStep* group_steps;
  float* lr_table;
  GradStats* stats;
  absl::Span<double> workspace;
  StepState* history;  // the state after each step
  std::vector<std::vector<Grad*>> grads;
  std::vector<AdamSegment> segments;
  // Of the `bytes` that hold parameters, moments and copy.
  char* first;
  int64_t bytes;
  char* snapshot;  // for another `bytes`
};

template <typename Grad>
class BadGradientsGpuTest : public ::testing::Test {};
using Grads = ::testing::Types<float, Half, BFloat16>;
TYPED_TEST_SUITE(BadGradientsGpuTest, Grads);

// A good step, one with each bad value, a good one.
TYPED_TEST(BadGradientsGpuTest, SkipsEveryStepWithABadValueAsTheCpuDoes) {
  const size_t steps = kBadValues.size() + 2;
  const auto prepare = [&](char* base) {
    Training<TypeParam> training(base, steps);
    training.Prepare();
    for (size_t i = 0; i < kBadValues.size(); ++i) training.Spoil(1 + i, kBadValues[i]);
  };
  BeforeAndAfter memory = ExpectSameOnBoth(
      "training", prepare, [&](char* base, device::Stream& stream) -> absl::Status {
        Training<TypeParam> training(base, steps);
        absl::Status status;
        for (size_t step = 0; step < steps; ++step) {
          // All skipped steps are behind it, so what they left must be what the first one made.
          if (step == steps - 1) {
            status.Update(stream.Copy(training.snapshot, training.first, training.bytes));
          }
          status.Update(training.Step(step, true, stream));
        }
        return status;
      });
  const Training<TypeParam> training(memory.after.data(), steps);
  for (size_t step = 0; step < steps; ++step) {
    EXPECT_EQ(training.history[step].skip, step == 0 || step == steps - 1 ? 0 : 1) << step;
  }
  EXPECT_EQ(training.state->step, 2);

  BeforeAndAfter once =
      ExpectSameOnBoth("its first step", prepare, [&](char* base, device::Stream& stream) {
        return Training<TypeParam>(base, steps).Step(0, true, stream);
      });
  const Training<TypeParam> wanted(once.after.data(), steps);
  EXPECT_EQ(std::memcmp(training.snapshot, wanted.first, training.bytes), 0)
      << "a skipped step changed something";
  EXPECT_NE(std::memcmp(training.snapshot, training.first, training.bytes), 0)
      << "the last step changed nothing";
}

// Where overflows are not looked at, a bad value spoils its own element and no other.
TYPED_TEST(BadGradientsGpuTest, LetsBadValuesThroughWhereNotToldToCheck) {
  const auto prepare = [&](char* base) {
    Training<TypeParam> training(base, 1);
    training.Prepare();
    for (const BadValue& bad : kBadValues) training.Spoil(0, bad);
  };
  const auto run = [&](char* base, device::Stream& stream) {
    return Training<TypeParam>(base, 1).Step(0, false, stream);
  };
  std::vector<char> on_cpu = RunOn(device::Cpu(), Prepared(prepare), run);
  std::vector<char> on_gpu = RunOn(device::Cuda(), Prepared(prepare), run);
  const Training<TypeParam> cpu(on_cpu.data(), 1);
  const Training<TypeParam> gpu(on_gpu.data(), 1);
  EXPECT_EQ(std::memcmp(gpu.history, cpu.history, sizeof(StepState)), 0);
  for (size_t i = 0; i < kSizes.size(); ++i) {
    const AdamSegment& c = cpu.segments[i];
    const AdamSegment& g = gpu.segments[i];
    for (int64_t j = 0; j < kSizes[i]; ++j) {
      ASSERT_TRUE(SameBits(g.param[j], c.param[j])) << i << ", " << j;
      ASSERT_TRUE(SameBits(g.m[j], c.m[j])) << i << ", " << j;
      ASSERT_TRUE(SameBits(g.v[j], c.v[j])) << i << ", " << j;
      // Narrowing has one NaN.
      ASSERT_EQ(static_cast<const Half*>(g.param_copy)[j].bits,
                static_cast<const Half*>(c.param_copy)[j].bits);
      bool bad = false;
      for (const BadValue& b : kBadValues) {
        bad = bad || (b.segment == i && b.element == j);
      }
      ASSERT_EQ(std::isnan(g.param[j]), bad) << i << ", " << j;
    }
  }
}

}  // namespace
}  // namespace brigade::kernels
