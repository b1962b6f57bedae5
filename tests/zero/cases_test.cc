// Cases whose answer is known without the specification, and models that are out of the ordinary.

#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "brigade/tests/collectives/ranks.h"
#include "brigade/tests/testing/status_matchers.h"
#include "brigade/tests/zero/toy_model.h"
#include "gtest/gtest.h"

namespace brigade::zero {
namespace {

using collectives::OnThreads;
using collectives::Rank;
using precision::DType;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Writes values as the gradient of each parameter, and steps.
absl::Status StepWith(ZeroOptimizer& zero, device::Stream& compute,
                      const std::function<float(int parameter, int64_t i)>& gradient) {
  for (int unit = static_cast<int>(zero.plan().units().size()); unit-- > 0;) {
    for (const int p : zero.plan().unit(unit).parameters) {
      const ParameterSpec& spec = zero.plan().parameter(p).spec;
      if (!spec.trainable) continue;
      const auto target = zero.Gradient(unit, p);
      if (!target.ok()) return target.status();
      const absl::Status status = compute.Enqueue(
          {"gradient", {device::Writes(target->data, spec.size * precision::SizeOf(*spec.dtype))}},
          [&gradient, target = *target, p, size = spec.size,
           dtype = *spec.dtype](device::ThreadPool&) {
            for (int64_t i = 0; i < size; ++i) Store(target.data, dtype, i, gradient(p, i));
            return absl::OkStatus();
          });
      if (!status.ok()) return status;
    }
    if (absl::Status status = zero.GradientsReady(unit); !status.ok()) return status;
  }
  absl::Status status = zero.FinishBackward();
  status.Update(zero.Step());
  status.Update(compute.Synchronize());
  status.Update(zero.step_stream().Synchronize());
  return status;
}

kernels::StepState StateOf(ZeroOptimizer& zero) {
  return zero.controller().SaveState(zero.step_stream()).value();
}

TEST(CasesTest, MeanAndSumOverRanksAreWhatTheyAre) {
  // Two ranks, w = 0, learning rate 1, loss = sum of w x on each with x = [1, 2].
  for (int stage = 0; stage < kStages; ++stage) {
    for (const bool average : {true, false}) {
      OnThreads({.size = 2}, [&](Rank& self) {
        ZeroOptions options;
        options.stage = stage;
        options.dtype = DType::kFloat32;
        options.optimizer.kind = optim::OptimizerKind::kSgd;
        options.optimizer.groups[0].lr = 1.0;
        options.average_gradients = average;
        auto zero = CreateZero({{"linear", {{"w", 2}}}}, options, self).value();
        ASSERT_OK(StepWith(*zero, *self.stream, [](int, int64_t i) { return i + 1.0f; }));
        const float times = average ? 1.0f : 2.0f;
        EXPECT_EQ(Exported(*zero).value()[0], (std::vector<float>{-times, -2 * times}));
      });
    }
  }
}

TEST(CasesTest, AnOverflowOnOneRankIsSeenByAll) {
  for (int stage = 0; stage < kStages; ++stage) {
    for (const float bad : {kInfinity, -kInfinity, std::numeric_limits<float>::quiet_NaN()}) {
      OnThreads({.size = 3}, [&](Rank& self) {
        ZeroOptions options;
        options.stage = stage;
        options.dtype = DType::kFloat16;
        options.loss_scaler = optim::LossScaler::Dynamic();
        options.loss_scaler.hysteresis = 1;
        auto zero = CreateZero({{"linear", {{"w", 1000}}}}, options, self).value();
        const auto before = Exported(*zero).value();
        ASSERT_OK(StepWith(*zero, *self.stream, [&](int, int64_t i) {
          return self.rank == 1 && i == 999 ? bad : 1.0f;
        }));
        EXPECT_EQ(StateOf(*zero).skip, 1);
        EXPECT_EQ(StateOf(*zero).step, 0);
        EXPECT_EQ(StateOf(*zero).loss_scale, 32768.0f);
        EXPECT_EQ(Exported(*zero).value(), before);
        ASSERT_OK(StepWith(*zero, *self.stream, [](int, int64_t) { return 1.0f; }));
        EXPECT_EQ(StateOf(*zero).step, 1);
        EXPECT_NE(Exported(*zero).value(), before);
      });
    }
  }
}

TEST(CasesTest, WhatLayInMemoryNeverReachesAResult) {
  // Gradient memory that is reused holds another bucket's gradients, here 7777: neither the padding
  // nor a gradient that no unit writes must show it.
  std::vector<std::vector<float>> wanted;
  for (int stage = 0; stage < kStages; ++stage) {
    OnThreads({.size = 2}, [&](Rank& self) {
      ModelSpec model;
      // Buckets of one size but other paddings, so that they share slots.
      for (int u = 0; u < 6; ++u) {
        const std::string name = absl::StrCat("u", u);
        model.push_back({name, {{name + ".a", 100 + u}, {name + ".b", 130 - u}}});
      }
      ZeroOptions options;
      options.stage = stage;
      options.dtype = DType::kFloat32;
      options.optimizer.kind = optim::OptimizerKind::kSgd;
      auto zero = CreateZero(model, options, self).value();
      const auto gradient = [](int p, int64_t i) { return i % 3 == 0 ? 7777.0f : 0.5f * p; };
      for (int step = 0; step < 3; ++step) ASSERT_OK(StepWith(*zero, *self.stream, gradient));
      double squares = 0;
      for (size_t p = 0; p < zero->plan().parameters().size(); ++p) {
        for (int64_t i = 0; i < zero->plan().parameters()[p].spec.size; ++i) {
          const double g = gradient(static_cast<int>(p), i);
          squares += g * g;
        }
      }
      EXPECT_NEAR(StateOf(*zero).grad_norm, std::sqrt(squares), 1e-9 * std::sqrt(squares));
      const auto exported = Exported(*zero).value();
      if (self.rank != 0) return;
      if (stage == 0) wanted = exported;
      EXPECT_EQ(exported, wanted) << "stage " << stage;
    });
  }
}

// Groups with rates of their own, types mixed, a world larger than some parameters.
ModelSpec MixedModel() {
  return {{"embedding", {{"wte", 500, {}, 0}, {"scale", 1, DType::kFloat32, 1}}},
          {"h.0", {{"w", 900, {}, 0}, {"b", 3, {}, 1}, {"norm", 30, DType::kFloat32, 1}}},
          {"head", {{"out", 77, DType::kFloat16, 0}}, {"wte"}}};
}

TEST(CasesTest, StagesAgreeOnMixedTypesAndGroups) {
  for (const int ranks : {1, 3, 8}) {
    std::vector<std::vector<float>> wanted;
    double norm = 0;
    for (int stage = 0; stage < kStages; ++stage) {
      for (const int64_t threshold : {0, 600}) {
        if (threshold > 0 && stage < 3) continue;
        OnThreads({.size = ranks}, [&](Rank& self) {
          ZeroOptions options;
          options.stage = stage;
          options.persistence_threshold = threshold;
          options.optimizer.groups = {{.lr = 0.01, .weight_decay = 0.1},
                                      {.lr = 0.001, .beta1 = 0.8, .beta2 = 0.9}};
          options.max_grad_norm = 1.0;
          auto zero = CreateZero(MixedModel(), options, self);
          ASSERT_OK(zero);
          ASSERT_OK(InitializeToy(**zero));
          ToyTrainer trainer(**zero, self);
          for (int step = 0; step < 10; ++step) ASSERT_OK(trainer.Step());
          ASSERT_OK(self.stream->Synchronize());
          const auto exported = Exported(**zero);
          ASSERT_OK(exported);
          const double grad_norm = StateOf(**zero).grad_norm;
          if (self.rank != 0) return;
          if (stage == 0) wanted = *exported, norm = grad_norm;
          EXPECT_EQ(*exported, wanted) << "stage " << stage << ", ranks " << ranks;
          EXPECT_EQ(grad_norm, norm);
        });
      }
    }
    EXPECT_GT(norm, 0);
  }
}

size_t IndexOf(const std::string& name, const Plan& plan) {
  size_t index = 0;
  while (plan.parameters()[index].spec.name != name) ++index;
  return index;
}

TEST(CasesTest, FrozenParametersStayAndUnusedOnesOnlyDecay) {
  for (int stage = 0; stage < kStages; ++stage) {
    OnThreads({.size = 2}, [&](Rank& self) {
      ZeroOptions options;
      options.stage = stage;
      options.dtype = DType::kFloat32;
      options.optimizer.groups[0] = {.lr = 0.5, .weight_decay = 0.5};
      auto zero = CreateZero(ToyModel(), options, self).value();
      ASSERT_OK(InitializeToy(*zero));
      const auto before = Exported(*zero).value();
      ToyTrainer trainer(*zero, self);
      ASSERT_OK(trainer.Step());
      ASSERT_OK(self.stream->Synchronize());
      const auto after = Exported(*zero).value();
      const size_t frozen = IndexOf("h.0.frozen", zero->plan());
      EXPECT_EQ(after[frozen], before[frozen]);
      for (const char* name : {"h.1.unused", "idle.w"}) {
        const size_t p = IndexOf(name, zero->plan());
        for (size_t i = 0; i < after[p].size(); ++i) {
          EXPECT_EQ(after[p][i], before[p][i] * 0.75f) << name;  // 1 - lr * decay, and no update
        }
      }
      const size_t trained = IndexOf("h.0.w", zero->plan());
      EXPECT_NE(after[trained], before[trained]);
    });
  }
}

TEST(CasesTest, GroupsInOneBucketHaveTheirOwnRates) {
  for (int stage = 0; stage < kStages; ++stage) {
    OnThreads({.size = 3}, [&](Rank& self) {
      ZeroOptions options;
      options.stage = stage;
      options.dtype = DType::kFloat32;
      options.optimizer.kind = optim::OptimizerKind::kSgd;
      options.optimizer.groups = {{.lr = 1.0}, {.lr = 0.25}};
      const ModelSpec model = {
          {"unit", {{"a", 3}, {"b", 100, {}, 1}, {"c", 50, {}, 1}, {"d", 200}}}};
      auto zero = CreateZero(model, options, self).value();
      ASSERT_EQ(zero->plan().buckets().size(), 1u);
      ASSERT_OK(StepWith(*zero, *self.stream, [](int, int64_t) { return 1.0f; }));
      const auto exported = Exported(*zero).value();
      for (size_t p = 0; p < exported.size(); ++p) {
        const float wanted = p == 1 || p == 2 ? -0.25f : -1.0f;
        EXPECT_EQ(exported[p], std::vector<float>(exported[p].size(), wanted)) << "parameter " << p;
      }
    });
  }
}

TEST(CasesTest, WhatWasGatheredAheadIsGatheredAgainAfterTheUpdate) {
  // The backward pass of the first unit needs no weights and does not acquire it, but the unit is
  // gathered ahead.
  std::vector<std::vector<float>> wanted;
  for (const int stage : {0, 1, 2, 3}) {
    OnThreads({.size = 2}, [&](Rank& self) {
      ZeroOptions options;
      options.stage = stage;
      options.optimizer.groups[0].lr = 0.1;
      auto zero =
          CreateZero({{"embedding", {{"wte", 100}}}, {"head", {{"out", 100}}}}, options, self)
              .value();
      ASSERT_OK(InitializeToy(*zero));
      std::vector<float> seen;
      for (int step = 0; step < 3; ++step) {
        UnitScope scope(*zero, 0, Pass::kForward);
        const void* const weights = scope.weights(0);
        ASSERT_OK(scope.status());
        ASSERT_OK(self.stream->Enqueue({"read", {device::Reads(weights, 200)}},
                                       [&seen, weights](device::ThreadPool&) {
                                         seen.push_back(Load(weights, DType::kBFloat16, 7));
                                         return absl::OkStatus();
                                       }));
        ASSERT_OK(scope.Release());
        ASSERT_OK(zero->Acquire(1, Pass::kBackward));
        ASSERT_OK(zero->Release(1));
        ASSERT_OK(StepWith(*zero, *self.stream, [](int, int64_t) { return 1.0f; }));
      }
      if (self.rank != 0) return;
      if (stage == 0) wanted = {seen};
      EXPECT_NE(seen[0], seen[1]);
      EXPECT_NE(seen[1], seen[2]);
      EXPECT_EQ(seen, wanted[0]) << "stage " << stage;
    });
  }
}

TEST(CasesTest, TheLearningRateCanBeChangedAtRunTime) {
  for (int stage = 0; stage < kStages; ++stage) {
    OnThreads({.size = 2}, [&](Rank& self) {
      ZeroOptions options;
      options.stage = stage;
      options.dtype = DType::kFloat32;
      options.optimizer.kind = optim::OptimizerKind::kSgd;
      options.optimizer.groups[0].lr = 1.0;
      auto zero = CreateZero({{"linear", {{"w", 1}}}}, options, self).value();
      const auto one = [](int, int64_t) { return 1.0f; };
      ASSERT_OK(StepWith(*zero, *self.stream, one));
      ASSERT_OK(zero->controller().SetLearningRate(0, 0.25, zero->step_stream()));
      ASSERT_OK(StepWith(*zero, *self.stream, one));
      EXPECT_EQ(Exported(*zero).value()[0][0], -1.25f);
    });
  }
}

}  // namespace
}  // namespace brigade::zero
