// Groups that hold parts of one model: whether a step overflows, its norm and its scale are those
// of the world, to which each element counts once.

#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "brigade/collectives/communicator.h"
#include "brigade/optim/step_controller.h"
#include "brigade/tests/collectives/ranks.h"
#include "brigade/zero/plan/memory_model.h"
#include "brigade/zero/plan/traffic.h"
#include "brigade/zero/zero_optimizer.h"
#include "gmock/gmock.h"

namespace brigade::zero {
namespace {

using ::brigade::testing::StatusIs;
using collectives::OnThreads;
using collectives::Rank;
using precision::DType;
using ::testing::HasSubstr;

// Two model ranks with two replicas each: rank = model rank + 2 * replica.
constexpr int kModelRanks = 2, kReplicas = 2, kWorld = kModelRanks * kReplicas;
constexpr int64_t kOwn = 100, kShared = 40;

enum Parameter { kOwnPart, kSharedByAll };

// Each model rank has a part of its own, and what both have: the first one counts it.
ModelSpec PartOfModel(int model_rank) {
  ParameterSpec shared = {"shared", kShared};
  shared.counted = model_rank == 0;
  return {{"unit", {{absl::StrCat("own.", model_rank), kOwn}, shared}}};
}
// All of it, for a group that is the world.
ModelSpec WholeModel() {
  return {{"unit", {{"own.0", kOwn}, {"own.1", kOwn}, {"shared", kShared}}}};
}

ZeroOptions Options(int stage, DType dtype, device::Tier state = device::Tier::kDevice) {
  ZeroOptions options;
  options.offload.optimizer_state = state;
  if (state == device::Tier::kFile) options.offload.file.directory = ::testing::TempDir();
  options.stage = stage;
  options.dtype = dtype;
  options.optimizer.groups[0].lr = 0.125;
  options.loss_scaler = optim::LossScaler::Dynamic();
  options.loss_scaler.initial_scale_power = 4;
  options.loss_scaler.hysteresis = 1;
  options.max_grad_norm = 1.0;
  return options;
}

// Powers of two, whose squares and sums are exact in any order: the same norm on every grid.
float GradientOf(int parameter_of_whole, int64_t i, int step) {
  return std::ldexp(i % 2 == 0 ? 1.0f : -1.0f, 4 + (parameter_of_whole + step) % 3);
}

// One step, in which write(parameter, target) enqueues each gradient.
void TakeStep(ZeroOptimizer& zero,
              const std::function<absl::Status(int parameter, void* target)>& write) {
  ASSERT_OK(zero.Acquire(0, Pass::kForward));
  ASSERT_OK(zero.Release(0));
  ASSERT_OK(zero.Acquire(0, Pass::kBackward));
  ASSERT_OK(zero.Release(0));
  for (int p = 0; p < static_cast<int>(zero.plan().parameters().size()); ++p) {
    ASSERT_OK(write(p, zero.Gradient(0, p).value().data));
  }
  ASSERT_OK(zero.GradientsReady(0));
  ASSERT_OK(zero.FinishBackward());
  ASSERT_OK(zero.Step());
}

// With the gradients of the whole model's parameters `numbers`, by the optimizer's own;
// `overflows`: one of them is infinite.
void Step(ZeroOptimizer& zero, device::Stream& stream, const std::vector<int>& numbers, int step,
          bool overflows) {
  TakeStep(zero, [&](int parameter, void* target) {
    const int64_t size = zero.plan().parameter(parameter).spec.size;
    const DType dtype = zero.TypeOf(parameter);
    const int number = numbers[static_cast<size_t>(parameter)];
    return stream.Enqueue({"gradient", {device::Writes(target, size * precision::SizeOf(dtype))}},
                          [=](device::ThreadPool&) {
                            precision::VisitFloat(dtype, [&](auto tag) {
                              using T = decltype(tag);
                              for (int64_t i = 0; i < size; ++i) {
                                static_cast<T*>(target)[i] =
                                    T(overflows && i == 1 ? std::numeric_limits<float>::infinity()
                                                          : GradientOf(number, i, step));
                              }
                            });
                            return absl::OkStatus();
                          });
  });
}

struct Result {
  std::vector<float> own, shared;
  std::vector<kernels::StepState> states;
};

constexpr int kSteps = 4;
// In which one gradient of one rank's part overflows: nobody takes the step.
constexpr int kOverflow = 2;

absl::Status Initialize(ZeroOptimizer& zero) {
  return zero.InitializeParameters([](int, absl::Span<float> values) {
    for (size_t i = 0; i < values.size(); ++i) values[i] = 1.0f / static_cast<float>(i + 1);
    return absl::OkStatus();
  });
}

void TakeStates(ZeroOptimizer& zero, Result& result) {
  ASSERT_OK(zero.controller().RequestState(zero.step_stream()));
  ASSERT_OK(zero.step_stream().Synchronize());
  const auto state = zero.controller().TakeState();
  ASSERT_OK(state);
  ASSERT_TRUE(state->has_value());
  result.states.push_back(**state);
}

// A step with gradients of one element each.
void ExpectNorm(ZeroOptimizer& zero, Rank& self, const std::vector<float>& gradients, double norm) {
  TakeStep(zero, [&](int parameter, void* target) {
    return self.stream->Copy(target, &gradients[static_cast<size_t>(parameter)], sizeof(float));
  });
  ASSERT_OK(self.stream->Synchronize());
  Result result;
  TakeStates(zero, result);
  EXPECT_EQ(result.states[0].grad_norm, norm);
}

class WorldTest : public ::testing::TestWithParam<std::tuple<int, DType, device::Tier>> {};
INSTANTIATE_TEST_SUITE_P(
    Stages, WorldTest,
    ::testing::Combine(::testing::Range(0, kStages),
                       ::testing::Values(DType::kFloat32, DType::kFloat16, DType::kBFloat16),
                       ::testing::Values(device::Tier::kDevice, device::Tier::kHost,
                                         device::Tier::kFile)),
    [](const auto& info) {
      return absl::StrCat("stage_", std::get<0>(info.param), "_",
                          precision::Name(std::get<1>(info.param)), "_on_",
                          device::ToString(std::get<2>(info.param)));
    });

TEST_P(WorldTest, GroupsWithPartsTrainAsOneWithTheWhole) {
  const auto& [stage, dtype, state] = GetParam();
  const ZeroOptions options = Options(stage, dtype, state);
  if (!Validate(options).ok()) GTEST_SKIP() << "this stage has no offload";
  // The oracle: the same training with all parameters in one group of as many replicas.
  Result whole;
  std::vector<std::vector<float>> wanted(3);
  OnThreads({.size = kReplicas}, [&](Rank& self) {
    auto zero = ZeroOptimizer::Create(WholeModel(), options, *self.communicator, *self.context,
                                      *self.stream)
                    .value();
    ASSERT_OK(Initialize(*zero));
    Result mine;
    for (int step = 0; step < kSteps; ++step) {
      Step(*zero, *self.stream, {0, 1, 2}, step, step == kOverflow && self.rank == 1);
      TakeStates(*zero, mine);
    }
    ASSERT_OK(zero->ExportParameters([&](int parameter, absl::Span<const float> values) {
      if (self.rank == 0) {
        wanted[static_cast<size_t>(parameter)].assign(values.begin(), values.end());
      }
      return absl::OkStatus();
    }));
    if (self.rank == 0) whole = mine;
  });
  ASSERT_EQ(whole.states[kOverflow].skip, 1);

  std::vector<Result> results(kWorld);
  OnThreads({.size = kWorld}, [&](Rank& self) {
    const int model_rank = self.rank % kModelRanks;
    ZeroOptions of_parts = options;
    of_parts.model_ranks = kModelRanks;
    auto group = self.communicator->Split(model_rank, self.rank).value();
    auto zero = ZeroOptimizer::Create(PartOfModel(model_rank), of_parts, *group, *self.context,
                                      *self.stream, {self.communicator.get()})
                    .value();
    ASSERT_OK(Initialize(*zero));
    Result& mine = results[static_cast<size_t>(self.rank)];
    const Traffic before = zero->traffic();
    for (int step = 0; step < kSteps; ++step) {
      // On one rank of one group alone.
      Step(*zero, *self.stream, {model_rank, 2}, step, step == kOverflow && self.rank == 3);
      TakeStates(*zero, mine);
    }
    const Traffic of_step =
        TrafficOfStep(zero->plan(), of_parts, *group, {self.communicator.get()}).value();
    EXPECT_EQ(zero->traffic().scalars - before.scalars, kSteps * of_step.scalars);
    EXPECT_EQ(of_step.scalars, 16 * (kWorld - 1));
    EXPECT_EQ(zero->traffic().gradients - before.gradients, kSteps * of_step.gradients);
    const auto terms = MemoryOf(zero->plan(), of_parts, *group, {self.communicator.get()}).value();
    EXPECT_EQ(self.context->memory_stats().current_bytes(), Total(terms, device::Tier::kDevice));
    ASSERT_OK(zero->ExportParameters([&](int parameter, absl::Span<const float> values) {
      (parameter == kOwnPart ? mine.own : mine.shared).assign(values.begin(), values.end());
      return absl::OkStatus();
    }));
    self.AwaitOthers();
  });
  for (int rank = 0; rank < kWorld; ++rank) {
    SCOPED_TRACE(rank);
    const Result& mine = results[static_cast<size_t>(rank)];
    EXPECT_EQ(mine.own, wanted[static_cast<size_t>(rank % kModelRanks)]);
    EXPECT_EQ(mine.shared, wanted[2]);
    ASSERT_EQ(mine.states.size(), whole.states.size());
    for (size_t s = 0; s < mine.states.size(); ++s) {
      EXPECT_EQ(mine.states[s].step, whole.states[s].step) << s;
      EXPECT_EQ(mine.states[s].skip, whole.states[s].skip) << s;
      EXPECT_EQ(mine.states[s].loss_scale, whole.states[s].loss_scale) << s;
      EXPECT_EQ(mine.states[s].grad_multiplier, whole.states[s].grad_multiplier) << s;
      if (mine.states[s].skip == 0) {
        EXPECT_EQ(mine.states[s].grad_norm, whole.states[s].grad_norm) << s;
      }
    }
  }
}

// A group that counts nothing has statistics all the same: 4 | 3 that is counted.
TEST(WorldNormTest, AGroupMayCountNothing) {
  OnThreads({.size = 2}, [](Rank& self) {
    ParameterSpec shared = {"shared", 1};
    shared.counted = self.rank == 0;
    UnitSpec unit = {"unit", {shared}};
    if (self.rank == 0) unit.parameters.push_back({"own", 1});
    ZeroOptions options;
    options.dtype = DType::kFloat32;
    options.model_ranks = 2;
    auto group = self.communicator->Split(self.rank, 0).value();
    auto zero = ZeroOptimizer::Create({unit}, options, *group, *self.context, *self.stream,
                                      {self.communicator.get()})
                    .value();
    ASSERT_OK(Initialize(*zero));
    ExpectNorm(*zero, self, {4.0f, 3.0f}, 5.0);
    self.AwaitOthers();
  });
}

// Cut gradients 3 | 4 and one of 12 that both ranks have: 13, not 17.69.
TEST(WorldNormTest, IsTheKnownAnswer) {
  OnThreads({.size = 2}, [](Rank& self) {
    ParameterSpec shared = {"shared", 1};
    shared.counted = self.rank == 0;
    ZeroOptions options;
    options.dtype = DType::kFloat32;
    options.model_ranks = 2;
    auto group = self.communicator->Split(self.rank, 0).value();
    auto zero = ZeroOptimizer::Create({{"unit", {{"own", 1}, shared}}}, options, *group,
                                      *self.context, *self.stream, {self.communicator.get()})
                    .value();
    ASSERT_OK(Initialize(*zero));
    ExpectNorm(*zero, self, {self.rank == 0 ? 3.0f : 4.0f, 12.0f}, 13.0);
    self.AwaitOthers();
  });
}

TEST(WorldErrorTest, WrongUsesAreNamedOnAllRanks) {
  OnThreads({.size = 4}, [](Rank& self) {
    auto group = self.communicator->Split(self.rank % 2, self.rank).value();
    const auto create = [&](const ZeroOptions& options, const ModelSpec& model,
                            collectives::Communicator* world) {
      return ZeroOptimizer::Create(model, options, *group, *self.context, *self.stream, {world})
          .status();
    };
    const ModelSpec model = PartOfModel(self.rank % 2);
    ZeroOptions options;
    EXPECT_THAT(create(options, model, self.communicator.get()),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         HasSubstr("model_ranks is 1, but groups of 2 ranks are parts of a world "
                                   "of 4")));
    options.model_ranks = 2;
    EXPECT_THAT(create(options, model, nullptr),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("a world of 2")));
    options.model_ranks = 0;
    EXPECT_THAT(create(options, model, self.communicator.get()),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("model_ranks is 0")));
    // Groups that agree inside, and not with each other.
    options.model_ranks = 2;
    ZeroOptions odd = options;
    if (self.rank % 2 == 1) odd.max_grad_norm = 2;
    EXPECT_THAT(create(odd, model, self.communicator.get()),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         HasSubstr("ranks disagree: rank 0 has max_grad_norm")));
    ModelSpec other_types = model;
    if (self.rank % 2 == 1) other_types[0].parameters[0].dtype = DType::kFloat32;
    EXPECT_THAT(create(options, other_types, self.communicator.get()),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         HasSubstr("rank 0 has gradients of 1 types; rank 1 has gradients of 2 "
                                   "types")));
    // Inside one group alone: told to the other one.
    ModelSpec larger = model;
    if (self.rank == 3) larger[0].parameters[0].size = 2 * kOwn;
    EXPECT_THAT(create(options, larger, self.communicator.get()),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("ranks disagree: ")));
    EXPECT_OK(create(options, model, self.communicator.get()));
    self.AwaitOthers();
  });
}

}  // namespace
}  // namespace brigade::zero
