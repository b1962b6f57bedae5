// Two groups that hold half of a model each, embedding on the first and head on the last, with the
// tied weights in both: the bits of one group that has all of it.

#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "brigade/collectives/communicator.h"
#include "brigade/device/status_macros.h"
#include "brigade/optim/step_controller.h"
#include "brigade/tests/collectives/ranks.h"
#include "brigade/tests/testing/status_matchers.h"
#include "brigade/tests/zero/captured_state.h"
#include "brigade/tests/zero/toy_model.h"
#include "brigade/zero/plan/memory_model.h"
#include "brigade/zero/plan/traffic.h"
#include "brigade/zero/zero_optimizer.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::zero {
namespace {

using ::brigade::testing::StatusIs;
using collectives::OnThreads;
using collectives::Rank;
using precision::DType;
using ::testing::HasSubstr;

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
constexpr int kStagesOfPipeline = 2, kSteps = 5;

const UnitSpec kEmbedding = {"embedding", {{"wte", 150}, {"wpe", 5}}, {}};
const UnitSpec kFirst = {"h.0", {{"h.0.w", 300}}, {}};
const UnitSpec kSecond = {"h.1", {{"h.1.w", 200}, {"h.1.b", 1}}, {}};

ModelSpec WholeModel() { return {kEmbedding, kFirst, kSecond, {"head", {{"ln", 65}}, {"wte"}}}; }
// The first stage counts the tied weights.
ModelSpec StageOfModel(int stage) {
  ModelSpec model = {kEmbedding, kFirst};
  if (stage == 1) model = {kSecond, {"head", {{"ln", 65}, {"wte", 150}}, {}}};
  ParameterSpec& tied = stage == 0 ? model[0].parameters[0] : model[1].parameters[1];
  tied.tied_outside = true;
  tied.counted = stage == 0;
  return model;
}

// By names, so that it is the same wherever a unit is. Whole numbers of at most 2^10: their squares
// and sums are exact, so that the norm does not depend on the order. The two parts of the tied
// gradient are of different sizes, so that their sum rounds in 16 bits. It depends on the weights.
struct At {
  int replica, micro_batch, step;
  std::string unit, parameter;
};
float GradientOf(const At& at, int64_t i, float weight) {
  uint64_t seed = 14695981039346656037u;
  for (const char c : absl::StrCat(at.replica, " ", at.micro_batch, " ", at.step, " ", at.unit, " ",
                                   at.parameter, " ", i)) {
    seed = (seed ^ static_cast<unsigned char>(c)) * 1099511628211u;
  }
  const int small = static_cast<int>(seed >> 40) % 8;
  const int large = at.unit == "embedding" ? 256 * (1 + static_cast<int>(seed >> 50) % 3) : 0;
  return static_cast<float>(large + small + (weight > 0 ? 1 : 0));
}

// A step in which a gradient is infinite, on one rank of the stage that has the unit.
struct Overflow {
  int step;
  const char* unit;
};
constexpr Overflow kOverflows[] = {{1, "head"}, {3, "h.0"}};

absl::Status Backward(ZeroOptimizer& zero, device::Stream& stream, int micro_batch, int step) {
  for (int unit = static_cast<int>(zero.plan().units().size()); unit-- > 0;) {
    BRIGADE_RETURN_IF_ERROR(zero.Acquire(unit, Pass::kBackward));
    for (const int p : zero.plan().unit(unit).parameters) {
      const ParameterSpec& spec = zero.plan().parameter(p).spec;
      BRIGADE_ASSIGN_OR_RETURN(const GradientTarget target, zero.Gradient(unit, p));
      BRIGADE_ASSIGN_OR_RETURN(const void* const weights, zero.Weights(p));
      EXPECT_FALSE(target.accumulate);
      const At at = {zero.rank(), micro_batch, step, zero.plan().unit(unit).name, spec.name};
      const DType dtype = *spec.dtype;
      const int64_t bytes = spec.size * precision::SizeOf(dtype);
      BRIGADE_RETURN_IF_ERROR(stream.Enqueue(
          {"gradient", {device::Writes(target.data, bytes), device::Reads(weights, bytes)}},
          [=, size = spec.size](device::ThreadPool&) {
            for (int64_t i = 0; i < size; ++i) {
              float value = GradientOf(at, i, Load(weights, dtype, i));
              for (const Overflow& each : kOverflows) {
                if (i == 0 && at.replica == 0 && at.step == each.step && at.unit == each.unit) {
                  value = std::numeric_limits<float>::infinity();
                }
              }
              Store(target.data, dtype, i, value);
            }
            return absl::OkStatus();
          }));
    }
    BRIGADE_RETURN_IF_ERROR(zero.Release(unit));
    BRIGADE_RETURN_IF_ERROR(zero.GradientsReady(unit));
  }
  return zero.FinishBackward();
}

// Parameters by name, and the state after each step.
struct Result {
  std::map<std::string, std::vector<float>> parameters;
  std::vector<kernels::StepState> states;
};

absl::Status Initialize(ZeroOptimizer& zero) {
  return zero.InitializeParameters([&](int p, absl::Span<float> values) {
    const std::string& name = zero.plan().parameter(p).spec.name;
    for (size_t i = 0; i < values.size(); ++i) {
      values[i] = std::sin(static_cast<float>(i * i + name.size()));
    }
    return absl::OkStatus();
  });
}

absl::Status TrainOn(ZeroOptimizer& zero, Rank& self, Result& result, int first = 0) {
  if (first == 0) BRIGADE_RETURN_IF_ERROR(Initialize(zero));
  for (int step = first; step < kSteps; ++step) {
    for (int micro = 0; micro < zero.options().micro_batches; ++micro) {
      BRIGADE_RETURN_IF_ERROR(Backward(zero, *self.stream, micro, step));
    }
    BRIGADE_RETURN_IF_ERROR(zero.Step());
    BRIGADE_ASSIGN_OR_RETURN(const kernels::StepState state,
                             zero.controller().SaveState(zero.step_stream()));
    result.states.push_back(state);
  }
  return zero.ExportParameters([&](int p, absl::Span<const float> values) {
    result.parameters[zero.plan().parameter(p).spec.name].assign(values.begin(), values.end());
    return absl::OkStatus();
  });
}

struct Case {
  int replicas;
  DType dtype;
  int stage;
  int micro_batches;
  Accumulation accumulation = Accumulation::kEveryMicroBatch;
  OffloadOptions offload = {};
  std::optional<DType> wire = {};
};

ZeroOptions OptionsOf(const Case& c) {
  ZeroOptions options;
  options.stage = c.stage;
  options.dtype = c.dtype;
  options.micro_batches = c.micro_batches;
  options.accumulation = c.accumulation;
  options.communication_dtype = c.wire;
  options.offload = c.offload;
  options.tied_apart = true;
  options.optimizer.groups[0].lr = 0.125;
  options.loss_scaler = optim::LossScaler::Dynamic();
  options.loss_scaler.initial_scale_power = 4;
  options.loss_scaler.hysteresis = 1;
  options.max_grad_norm = 1.0;
  return options;
}

std::vector<Case> Cases() {
  std::vector<Case> cases;
  const OffloadOptions host = {.optimizer_state = device::Tier::kHost};
  const OffloadOptions half = {.optimizer_state = device::Tier::kHost, .host_share = 0.5};
  // From the second step on.
  const OffloadOptions late = {
      .optimizer_state = device::Tier::kHost, .delay_update = true, .delay_warm_up = 1};
  for (const int replicas : {1, 2}) {
    for (int stage = 0; stage < kStages; ++stage) {
      for (const int micro_batches : {1, 3}) {
        for (const Accumulation accumulation :
             {Accumulation::kEveryMicroBatch, Accumulation::kAtBoundary}) {
          for (const OffloadOptions& offload :
               {OffloadOptions(), host, half, late, InFile(device::Tier::kDevice),
                InFile(device::Tier::kFile)}) {
            Case c = {replicas, DType::kBFloat16, stage, micro_batches, accumulation, offload};
            if (Validate(OptionsOf(c)).ok()) cases.push_back(c);
          }
        }
      }
      cases.push_back({replicas, DType::kFloat16, stage, 1});
      cases.push_back({replicas, DType::kFloat32, stage, 1});
      for (const DType wire : {DType::kBFloat16, DType::kFloat16}) {
        for (const int micro_batches : {1, 3}) {
          cases.push_back({replicas,
                           DType::kFloat32,
                           stage,
                           micro_batches,
                           Accumulation::kEveryMicroBatch,
                           {},
                           wire});
        }
      }
    }
  }
  return cases;
}

std::string NameOf(const Case& c) {
  return absl::StrCat("replicas_", c.replicas, "_", precision::Name(c.dtype), "_stage_", c.stage,
                      "_micro_", c.micro_batches,
                      c.accumulation == Accumulation::kAtBoundary ? "_at_boundary" : "",
                      c.offload.enabled() ? absl::StrCat("_", ToString(c.offload)) : "",
                      c.offload.delay_update ? "_delayed" : "",
                      c.wire.has_value() ? absl::StrCat("_over_", precision::Name(*c.wire)) : "");
}

// Rank = stage of the pipeline + 2 * replica. What a rank of a stage needs beside its model.
struct Groups {
  std::unique_ptr<collectives::Communicator> replicas, tied;

  explicit Groups(Rank& self)
      : replicas(self.communicator->Split(self.rank % kStagesOfPipeline, self.rank).value()),
        tied(self.communicator->Split(self.rank / kStagesOfPipeline, self.rank).value()) {}
};

class TiedOutsideTest : public ::testing::TestWithParam<Case> {};

TEST_P(TiedOutsideTest, TwoStagesTrainAsOneGroupWithTheWhole) {
  const Case& c = GetParam();
  const ZeroOptions options = OptionsOf(c);
  std::vector<Result> wanted(static_cast<size_t>(c.replicas));
  OnThreads({.size = c.replicas}, [&](Rank& self) {
    auto zero = CreateZero(WholeModel(), options, self).value();
    ASSERT_OK(TrainOn(*zero, self, wanted[static_cast<size_t>(self.rank)]));
  });
  const Result& whole = wanted[0];
  for (int step = 0; step < kSteps; ++step) {
    const kernels::StepState& state = whole.states[static_cast<size_t>(step)];
    EXPECT_EQ(state.skip != 0, step == 1 || step == 3) << step;
    // Clipped.
    if (state.skip == 0) {
      EXPECT_GT(state.grad_norm, 1.0) << step;
    }
  }

  const int world = kStagesOfPipeline * c.replicas;
  std::vector<Result> results(static_cast<size_t>(world));
  device::RaceChecker checker;
  OnThreads({.size = world, .race_checker = &checker}, [&](Rank& self) {
    ZeroOptions of_stage = options;
    of_stage.model_ranks = kStagesOfPipeline;
    Groups groups(self);
    const OuterGroups outer = {self.communicator.get(), groups.tied.get()};
    const auto sent = [&] {
      int64_t bytes = 0;
      for (const collectives::Communicator* const each :
           {groups.replicas.get(), groups.tied.get(), self.communicator.get()}) {
        for (int to = 0; to < each->size(); ++to) bytes += each->sent_bytes(to);
      }
      return bytes;
    };
    const int64_t sent_before = sent();
    auto zero = ZeroOptimizer::Create(StageOfModel(self.rank % kStagesOfPipeline), of_stage,
                                      *groups.replicas, *self.context, *self.stream, outer)
                    .value();
    ASSERT_OK(TrainOn(*zero, self, results[static_cast<size_t>(self.rank)]));
    const Traffic traffic = zero->traffic();
    const Traffic of_step = TrafficOfStep(zero->plan(), of_stage, *groups.replicas, outer).value();
    EXPECT_EQ(traffic.tied, kSteps * of_step.tied);
    EXPECT_EQ(traffic.gradients, kSteps * of_step.gradients);
    EXPECT_EQ(traffic.scalars, kSteps * of_step.scalars);
    EXPECT_EQ(sent() - sent_before, traffic.total());
    // Half of the slice there, and half back: of all of it in stage 0.
    const Bucket& tied = zero->plan().bucket(
        zero->plan().parameter(self.rank % kStagesOfPipeline == 0 ? 0 : 3).bucket);
    const int64_t elements = c.stage == 0 ? tied.size : zero->plan().slice(tied);
    EXPECT_TRUE(tied.tied_outside);
    EXPECT_EQ(of_step.tied, elements * (c.micro_batches > 1 ? 4 : precision::SizeOf(c.dtype)));
    const auto terms = MemoryOf(zero->plan(), of_stage, *groups.replicas, outer).value();
    EXPECT_EQ(self.context->memory_stats().current_bytes(), Total(terms, device::Tier::kDevice));
    EXPECT_EQ(self.context->host_memory_stats().current_bytes(), Total(terms, device::Tier::kHost));
    self.AwaitOthers();
  });
  EXPECT_TRUE(checker.reports().empty());
  for (int rank = 0; rank < world; ++rank) {
    SCOPED_TRACE(absl::StrCat("rank ", rank));
    const Result& mine = results[static_cast<size_t>(rank)];
    // With those of both copies of the tied weights.
    for (const auto& [name, values] : mine.parameters) {
      EXPECT_EQ(values, whole.parameters.at(name)) << name;
    }
    for (size_t s = 0; s < mine.states.size(); ++s) {
      EXPECT_EQ(mine.states[s].skip, whole.states[s].skip) << s;
      EXPECT_EQ(mine.states[s].loss_scale, whole.states[s].loss_scale) << s;
      EXPECT_EQ(mine.states[s].step, whole.states[s].step) << s;
      if (mine.states[s].skip == 0) {
        EXPECT_EQ(mine.states[s].grad_norm, whole.states[s].grad_norm) << s;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, TiedOutsideTest, ::testing::ValuesIn(Cases()),
                         [](const auto& info) { return NameOf(info.param); });

// A checkpoint has the errors of codes of one copy: what both copies' add up to.
TEST(TiedOutsideErrorsTest, BothCopiesGoOnFromWhatOneSaves) {
  constexpr int kWorld = 4, kSaved = 2;
  // Behind master and moments.
  constexpr size_t kErrors = 3;
  for (int stage = 0; stage < kStages; ++stage) {
    std::vector<Result> results(kWorld), resumed(kWorld);
    std::vector<CapturedState> saved(kWorld);
    std::vector<size_t> bucket_of(kWorld);
    OnThreads({.size = kWorld}, [&](Rank& self) {
      const auto me = static_cast<size_t>(self.rank);
      ZeroOptions options = OptionsOf({2, DType::kBFloat16, stage, 1});
      options.model_ranks = kStagesOfPipeline;
      options.quantized_gradients = kernels::QuantFormat::kInt4;
      options.loco.emplace();
      Groups groups(self);
      const OuterGroups outer = {self.communicator.get(), groups.tied.get()};
      const auto create = [&] {
        return ZeroOptimizer::Create(StageOfModel(self.rank % kStagesOfPipeline), options,
                                     *groups.replicas, *self.context, *self.stream, outer)
            .value();
      };
      auto zero = create();
      ASSERT_OK(Initialize(*zero));
      for (int step = 0; step < kSaved; ++step) {
        ASSERT_OK(Backward(*zero, *self.stream, 0, step));
        ASSERT_OK(zero->Step());
      }
      saved[me] = Capture(*zero, self).value();
      bucket_of[me] = static_cast<size_t>(
          zero->plan().parameter(self.rank % kStagesOfPipeline == 0 ? 0 : 3).bucket);
      self.AwaitOthers();
      const size_t tied = bucket_of[me];
      // Of the first stage's, which is counted.
      const size_t first = me - me % kStagesOfPipeline;
      const std::vector<std::string>& counted = saved[first].arrays[bucket_of[first]];
      EXPECT_TRUE(saved[me].arrays[tied][kErrors] == counted[kErrors]);
      EXPECT_TRUE(counted[kErrors] != std::string(counted[kErrors].size(), '\0'));
      ASSERT_OK(TrainOn(*zero, self, results[me], kSaved));

      auto other = create();
      CapturedState state = saved[me];
      state.arrays[tied] = counted;
      ASSERT_OK(LoadCaptured(*other, state));
      ASSERT_OK(TrainOn(*other, self, resumed[me], kSaved));
      EXPECT_EQ(resumed[me].parameters, results[me].parameters) << "stage " << stage;
      self.AwaitOthers();
    });
    // Both copies stay the same.
    EXPECT_EQ(results[0].parameters.at("wte"), results[1].parameters.at("wte"));
  }
}

// 3 | 4 on the two copies, of which one is counted: 7 on both, by whichever accumulates. The two
// ranks may be the world.
TEST(TiedOutsideSumTest, IsTheKnownAnswer) {
  for (int stage = 0; stage < kStages; ++stage) {
    for (const bool of_world : {false, true}) {
      OnThreads({.size = 2}, [&](Rank& self) {
        ParameterSpec shared = {"shared", 1};
        shared.counted = self.rank == 0;
        shared.tied_outside = true;
        ZeroOptions options = {.stage = stage, .dtype = DType::kFloat32, .model_ranks = 2};
        options.optimizer = {.kind = optim::OptimizerKind::kSgd};
        options.optimizer.groups[0].lr = 1;
        options.tied_apart = true;
        auto group = self.communicator->Split(self.rank, 0).value();
        auto pair = self.communicator->Split(0, self.rank).value();
        const OuterGroups outer = {self.communicator.get(),
                                   of_world ? self.communicator.get() : pair.get()};
        auto zero = ZeroOptimizer::Create({{"unit", {shared}}}, options, *group, *self.context,
                                          *self.stream, outer)
                        .value();
        const auto terms = MemoryOf(zero->plan(), options, *group, outer).value();
        EXPECT_EQ(self.context->memory_stats().current_bytes(),
                  Total(terms, device::Tier::kDevice));
        const float part = self.rank == 0 ? 3.0f : 4.0f;
        ASSERT_OK(self.stream->Copy(zero->Gradient(0, 0).value().data, &part, sizeof(part)));
        ASSERT_OK(zero->GradientsReady(0));
        ASSERT_OK(zero->FinishBackward());
        ASSERT_OK(zero->Step());
        EXPECT_EQ(zero->controller().SaveState(zero->step_stream())->grad_norm, 7.0);
        EXPECT_EQ(Exported(*zero).value()[0], std::vector<float>{-7.0f});
        self.AwaitOthers();
      });
    }
  }
}

// The pair of replica 0 fails in Step; its ranks end the world, as parallel::Grid::Abort does.
TEST(TiedOutsideErrorTest, APairThatFailsEndsTheStepOfAllAndNoStateChanges) {
  for (int stage = 0; stage < kStages; ++stage) {
    for (const OffloadOptions& offload :
         {OffloadOptions(), OffloadOptions{.optimizer_state = device::Tier::kHost}}) {
      SCOPED_TRACE(absl::StrCat("stage ", stage, " ", ToString(offload)));
      const ZeroOptions options = [&] {
        ZeroOptions of_stage = OptionsOf({2, DType::kBFloat16, stage, 1});
        of_stage.offload = offload;
        of_stage.model_ranks = kStagesOfPipeline;
        return of_stage;
      }();
      if (!Validate(options).ok()) continue;
      OnThreads({.size = 4}, [&](Rank& self) {
        Groups groups(self);
        auto zero = ZeroOptimizer::Create(StageOfModel(self.rank % kStagesOfPipeline), options,
                                          *groups.replicas, *self.context, *self.stream,
                                          {self.communicator.get(), groups.tied.get()})
                        .value();
        ASSERT_OK(Backward(*zero, *self.stream, 0, 0));
        ASSERT_OK(zero->Step());
        ASSERT_OK(zero->step_stream().Synchronize());
        const CapturedState before = Capture(*zero, self).value();
        ASSERT_OK(Backward(*zero, *self.stream, 0, 2));
        self.AwaitOthers();
        if (self.rank == 0) groups.tied->Abort(absl::DataLossError("a pair is broken"));
        absl::Status status = zero->Step();
        if (status.ok()) status = zero->step_stream().Synchronize();
        EXPECT_THAT(status, StatusIs(absl::StatusCode::kDataLoss, HasSubstr("a pair is broken")));
        groups.replicas->Abort(status);
        self.communicator->Abort(status);
        ASSERT_OK(zero->CancelStep());
        const CapturedState after = Capture(*zero, self).value();
        EXPECT_EQ(after.step.step, before.step.step);
        EXPECT_EQ(after.arrays, before.arrays);
      });
    }
  }
}

TEST(TiedOutsideErrorTest, WrongUsesAreNamedOnAllRanks) {
  OnThreads({.size = 4}, [](Rank& self) {
    Groups groups(self);
    const int stage = self.rank % kStagesOfPipeline;
    const ZeroOptions right = {.model_ranks = 2, .tied_apart = true};
    const auto create = [&](const ModelSpec& model, const ZeroOptions& options,
                            collectives::Communicator* tied) {
      return ZeroOptimizer::Create(model, options, *groups.replicas, *self.context, *self.stream,
                                   {self.communicator.get(), tied})
          .status();
    };
    const ModelSpec model = StageOfModel(stage);
    const auto tied_of = [&](ModelSpec& of) -> ParameterSpec& {
      return stage == 0 ? of[0].parameters[0] : of[1].parameters[1];
    };
    EXPECT_THAT(create(model, {.model_ranks = 2}, groups.tied.get()),
                StatusIs(kInvalid, HasSubstr("parameter \"wte\": it is tied_outside, but "
                                             "tied_apart is not set")));
    // On one rank, told to all.
    EXPECT_THAT(create(model, right, self.rank == 3 ? nullptr : groups.tied.get()),
                StatusIs(kInvalid, HasSubstr("parameter \"wte\" is tied_outside, but "
                                             "OuterGroups::tied is not given")));
    EXPECT_THAT(create(model, right, self.communicator.get()),
                StatusIs(kInvalid, HasSubstr("OuterGroups::tied has 4 ranks, not 2")));
    EXPECT_THAT(
        create({kFirst}, right, groups.tied.get()),
        StatusIs(kInvalid, HasSubstr("OuterGroups::tied is given, but no trainable parameter "
                                     "is tied_outside")));
    ModelSpec other = model;
    if (stage == 1) tied_of(other).size = 151;
    EXPECT_THAT(
        create(other, right, groups.tied.get()),
        StatusIs(kInvalid, HasSubstr("ranks disagree: rank 0 has tied_outside parameter \"wte\" of "
                                     "150 bf16, group 0; rank 1 has tied_outside parameter "
                                     "\"wte\" of 151 bf16, group 0")));
    other = model;
    if (stage == 1) tied_of(other).dtype = DType::kFloat32;
    EXPECT_THAT(create(other, right, groups.tied.get()),
                StatusIs(kInvalid, HasSubstr("\"wte\" of 150 fp32")));
    other = model;
    if (stage == 1) tied_of(other).name = "wte.head";
    EXPECT_THAT(create(other, right, groups.tied.get()),
                StatusIs(kInvalid, HasSubstr("parameter \"wte\" is tied_outside on 2 ranks of the "
                                             "world, of which 2 count it")));
    for (const bool counted : {false, true}) {
      other = model;
      tied_of(other).counted = counted;
      EXPECT_THAT(create(other, right, groups.tied.get()),
                  StatusIs(kInvalid,
                           HasSubstr(absl::StrCat("tied_outside on 4 ranks of the world, of which ",
                                                  counted ? 4 : 0, " count it"))));
    }
    // Of one stage alone: it waits for nobody.
    other = model;
    if (stage == 1) tied_of(other).tied_outside = false;
    EXPECT_THAT(create(other, right, stage == 0 ? groups.tied.get() : nullptr),
                StatusIs(kInvalid, HasSubstr("tied_outside on 2 ranks of the world, of which 2 "
                                             "count it")));
    // Frozen weights have no gradients to add.
    tied_of(other).trainable = false;
    EXPECT_OK(create(other, right, nullptr));
    EXPECT_OK(create(model, right, groups.tied.get()));
    self.AwaitOthers();
  });
}

// Four groups of one rank, in pairs.
TEST(TiedOutsideErrorTest, PairsAreTold) {
  OnThreads({.size = 4}, [](Rank& self) {
    const ZeroOptions options = {.model_ranks = 4, .tied_apart = true};
    auto group = self.communicator->Split(self.rank, 0).value();
    auto tied = self.communicator->Split(self.rank / 2, self.rank).value();
    const auto create = [&](const ParameterSpec& shared, collectives::Communicator* world) {
      return ZeroOptimizer::Create({{"unit", {shared}}}, options, *group, *self.context,
                                   *self.stream, {world, tied.get()})
          .status();
    };
    ParameterSpec shared = {"shared", 10};
    shared.tied_outside = true;
    // One pair counts it twice, the other one not at all.
    shared.counted = self.rank < 2;
    EXPECT_THAT(create(shared, self.communicator.get()),
                StatusIs(kInvalid,
                         HasSubstr(absl::StrCat("\"shared\" is counted in ",
                                                self.rank < 2 ? "both groups" : "neither group"))));
    // Each counts one of its own.
    shared.counted = self.rank == 0 || self.rank == 3;
    shared.name = self.rank == 0 || self.rank == 2 ? "first" : "second";
    EXPECT_THAT(create(shared, self.communicator.get()),
                StatusIs(kInvalid, HasSubstr("rank 0 has tied_outside parameter \"first\"")));
    self.AwaitOthers();
  });
  OnThreads({.size = 1}, [](Rank& self) {
    ParameterSpec shared = {"shared", 10};
    shared.tied_outside = true;
    auto tied = self.communicator->Split(0, 0).value();
    EXPECT_THAT(
        ZeroOptimizer::Create({{"unit", {shared}}}, {.tied_apart = true}, *self.communicator,
                              *self.context, *self.stream, {nullptr, tied.get()}),
        StatusIs(kInvalid, HasSubstr("parameter \"shared\" is tied_outside, but "
                                     "OuterGroups::world is not given")));
  });
}

}  // namespace
}  // namespace brigade::zero
