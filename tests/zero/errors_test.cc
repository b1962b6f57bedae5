// Bad settings and calls out of turn: an error that names what is wrong, on all ranks where all
// must know, and a ZeroOptimizer that goes on.

#include <barrier>
#include <cmath>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "brigade/tests/collectives/ranks.h"
#include "brigade/tests/device/testing.h"
#include "brigade/tests/testing/status_matchers.h"
#include "brigade/tests/zero/captured_state.h"
#include "brigade/tests/zero/toy_model.h"
#include "brigade/zero/plan/memory_model.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::zero {
namespace {

using ::brigade::testing::StatusIs;
using collectives::OnThreads;
using collectives::Rank;
using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
constexpr auto kPrecondition = absl::StatusCode::kFailedPrecondition;

absl::Status Create(Rank& self, const ModelSpec& model, const ZeroOptions& options) {
  return CreateZero(model, options, self).status();
}

TEST(ErrorsTest, ContradictorySettingsAreNamed) {
  OnThreads({.size = 2}, [](Rank& self) {
    const auto refuses = [&](auto change, const char* text) {
      ZeroOptions options;
      change(options);
      EXPECT_THAT(Create(self, ToyModel(), options), StatusIs(kInvalid, HasSubstr(text)));
    };
    refuses([](ZeroOptions& o) { o.stage = 4; }, "stage is 4, not 0 to 3");
    refuses([](ZeroOptions& o) { o.dtype = precision::DType::kInt32; }, "dtype is int32");
    refuses([](ZeroOptions& o) { o.communication_dtype = precision::DType::kInt32; },
            "communication_dtype is int32; it must be fp32, fp16 or bf16");
    using kernels::QuantFormat;
    refuses([](ZeroOptions& o) { o.stage = 0, o.quantized_weights = QuantFormat::kInt8; },
            "quantized_weights is given, but stage 0 gathers no weights");
    refuses(
        [](ZeroOptions& o) { o.stage = 2, o.quantized_frozen_weights = QuantFormat::kInt8; },
        "quantized_frozen_weights is given, but stage 2 keeps all parameters; stage 3 does not");
    const auto compression = [](void (*change)(ZeroOptions&), const char* why) {
      ZeroOptions compressed;
      compressed.gradient_compression = CompressionOptions();
      change(compressed);
      EXPECT_THAT(Validate(compressed), StatusIs(kInvalid, HasSubstr(why)));
    };
    compression([](ZeroOptions& o) { o.gradient_compression->start_step = -1; },
                "gradient_compression.start_step is -1");
    compression(
        [](ZeroOptions& o) {
          o.gradient_compression->method = static_cast<GradientCompression>(7);
        },
        "gradient_compression.method is 7");
    compression(
        [](ZeroOptions& o) {
          o.gradient_compression = {.method = GradientCompression::kPowerSgd, .rank = 129};
        },
        "gradient_compression.rank is 129, must be 1 to 128");
    compression(
        [](ZeroOptions& o) {
          o.gradient_compression = {.method = GradientCompression::kPowerSgd, .iterations = 9};
        },
        "gradient_compression.iterations is 9, must be 1 to 8");
    for (const double density : {0.0, 1.5, std::nan("")}) {
      ZeroOptions sparse;
      sparse.gradient_compression = {.method = GradientCompression::kTopK, .density = density};
      EXPECT_THAT(Validate(sparse),
                  StatusIs(kInvalid, HasSubstr("must be more than 0 and at most 1")));
    }
    compression(
        [](ZeroOptions& o) {
          o.gradient_compression->method = GradientCompression::kPowerSgd, o.node_ranks = 2;
        },
        "node_ranks is 2, but gradient_compression is power_sgd");
    compression([](ZeroOptions& o) { o.stage = 3; },
                "gradient_compression is given, but stage 3 has no memory for whole gradients");
    compression([](ZeroOptions& o) { o.offload.optimizer_state = device::Tier::kHost; },
                "gradient_compression is given, but offload.optimizer_state is host");
    compression([](ZeroOptions& o) { o.optimizer.kind = optim::OptimizerKind::kLamb; },
                "gradient_compression is given, but the optimizer is LAMB");
    compression(
        [](ZeroOptions& o) {
          o.shard_ranks = 2, o.quantized_gradients = QuantFormat::kInt4, o.loco.emplace();
        },
        "gradient_compression is given, but loco is given; a state has the errors of one");
    compression([](ZeroOptions& o) { o.quantized_gradients = QuantFormat::kInt4; },
                "gradient_compression is given, but quantized_gradients is int4");
    const auto one_bit = optim::OptimizerKind::kOneBitAdam;
    refuses([&](ZeroOptions& o) { o.optimizer.kind = one_bit, o.stage = 3; },
            "the optimizer is OneBitAdam, but stage 3 has no memory for whole gradients");
    refuses([&](ZeroOptions& o) { o.optimizer.kind = one_bit, o.optimizer.freeze_step = -3; },
            "freeze_step is -3, must be 0 or more");
    refuses([&](ZeroOptions& o) { o.optimizer.kind = one_bit, o.gradient_compression.emplace(); },
            "the optimizer is OneBitAdam, but gradient_compression is given");
    const auto zero_one = [&](int stage, const optim::ZeroOneSchedule& schedule, const char* text) {
      refuses(
          [&](ZeroOptions& o) {
            o.optimizer.kind = optim::OptimizerKind::kZeroOneAdam, o.stage = stage;
            o.optimizer.zero_one = schedule;
          },
          text);
    };
    for (const int stage : {1, 2}) {
      zero_one(stage, {}, "the optimizer is ZeroOneAdam, but local_step_clipper is 16, and stage");
    }
    zero_one(3, {.local_step_clipper = 1},
             "the optimizer is ZeroOneAdam, but stage 3 has no memory for whole gradients");
    zero_one(0, {.var_freeze_step = 0}, "var_freeze_step is 0, must be 1 or more");
    zero_one(0, {.var_update_scaler = 0}, "var_update_scaler is 0, must be 1 or more");
    zero_one(0, {.local_step_scaler = -5}, "local_step_scaler is -5, must be 1 or more");
    zero_one(0, {.local_step_clipper = 0}, "local_step_clipper is 0, must be 1 or more");
    refuses([](ZeroOptions& o) { o.quantized_gradients = static_cast<QuantFormat>(9); },
            "ZeRO: quantized_gradients is 9, must be int8 or int4");
    refuses([](ZeroOptions& o) { o.node_ranks = 2; },
            "node_ranks is 2, but quantized_gradients is not given");
    refuses([](ZeroOptions& o) { o.loco.emplace(); },
            "loco is given, but quantized_gradients is not");
    const auto with_loco = [&](const LocoOptions& loco, const char* text) {
      refuses([&](ZeroOptions& o) { o.quantized_gradients = QuantFormat::kInt4, o.loco = loco; },
              text);
    };
    with_loco({.err_beta = 1.0}, "ZeRO: loco.err_beta is 1, must be in [0, 1)");
    with_loco({.reset_steps = 0}, "loco.reset_steps is 0, not 1 or more");
    refuses([](ZeroOptions& o) { o.micro_batches = 0; }, "micro_batches is 0");
    for (const int stage : {2, 3}) {
      refuses([&](ZeroOptions& o) { o.stage = stage, o.accumulation = Accumulation::kAtBoundary; },
              "needs whole gradients, which stage");
    }
    refuses([](ZeroOptions& o) { o.bucket_elements = 0; }, "bucket_elements is 0");
    refuses([](ZeroOptions& o) { o.live_units = 0; }, "live_units is 0");
    refuses([](ZeroOptions& o) { o.persistence_threshold = 5; },
            "persistence_threshold is 5, but stage 1 keeps all");
    refuses([](ZeroOptions& o) { o.algorithm = collectives::Algorithm::kRing; },
            "reduction is rounded_once, which does not exist with algorithm ring");
    refuses([](ZeroOptions& o) { o.max_grad_norm = 0; }, "max_grad_norm is 0");
    using device::Tier;
    refuses([](ZeroOptions& o) { o.stage = 0, o.offload.optimizer_state = Tier::kHost; },
            "offload.optimizer_state is host, but in stage 0 every rank updates everything");
    refuses([](ZeroOptions& o) { o.offload.parameters = Tier::kHost; },
            "offload.parameters is host, but the optimizer state is on the device");
    refuses(
        [](ZeroOptions& o) {
          o.offload = {Tier::kHost, 1, Tier::kHost};
        },
        "offload.parameters is host, but stage 1 keeps all parameters");
    refuses(
        [](ZeroOptions& o) {
          o.stage = 3, o.offload = {Tier::kHost, 0.5, Tier::kHost};
        },
        "offload.parameters is host with host_share 0.5");
    refuses([](ZeroOptions& o) { o.offload.host_share = 0.5; },
            "host_share is 0.5, but the optimizer state is on the device");
    refuses(
        [](ZeroOptions& o) {
          o.offload = {Tier::kHost, -0.1};
        },
        "host_share is -0.1, not 0 to 1");
    refuses([](ZeroOptions& o) { o.offload.delay_update = true; },
            "delay_update needs the whole optimizer state on the host");
    refuses(
        [](ZeroOptions& o) {
          o.offload = {.optimizer_state = Tier::kHost, .host_share = 0.5, .delay_update = true};
        },
        "delay_update needs the whole optimizer state on the host");
    refuses([](ZeroOptions& o) { o.offload.delay_warm_up = -1; }, "delay_warm_up is -1");
    const auto refuses_file = [&](int stage, Tier parameters,
                                  const std::function<void(OffloadOptions&)>& change,
                                  const char* text) {
      refuses(
          [&](ZeroOptions& o) {
            o.stage = stage;
            o.offload = InFile(parameters);
            change(o.offload);
          },
          text);
    };
    const auto keep = [](OffloadOptions&) {};
    refuses_file(0, Tier::kDevice, keep,
                 "offload.optimizer_state is file, but in stage 0 every rank updates everything");
    refuses_file(2, Tier::kFile, keep, "offload.parameters is file, but stage 2 keeps all");
    refuses_file(
        1, Tier::kDevice, [](OffloadOptions& o) { o.host_share = 0.5; },
        "offload.optimizer_state is file with host_share 0.5");
    refuses_file(
        1, Tier::kDevice, [](OffloadOptions& o) { o.chunk_elements = 0; }, "chunk_elements is 0");
    refuses_file(
        1, Tier::kDevice, [](OffloadOptions& o) { o.chunk_buffers = 1; },
        "chunk_buffers is 1, not 2 or more");
    refuses_file(
        1, Tier::kDevice, [](OffloadOptions& o) { o.file_limit_bytes = -1; },
        "file_limit_bytes is -1");
    refuses_file(
        1, Tier::kDevice, [](OffloadOptions& o) { o.file.directory = ""; }, "directory is empty");
    refuses_file(
        1, Tier::kDevice,
        [](OffloadOptions& o) { o.file.crash_safety = device::CrashSafety::kProcess; },
        "crash_safety is process; the file ends with the process");
    refuses_file(
        3, Tier::kFile, [](OffloadOptions& o) { o.optimizer_state = Tier::kHost; },
        "offload.parameters is file, but the optimizer state is on the host");
    refuses_file(
        3, Tier::kFile, [](OffloadOptions& o) { o.delay_update = true; },
        "delay_update needs parameters on the device or the host");
    refuses([](ZeroOptions& o) { o.optimizer.groups[0].eps = 0; }, "eps");
    refuses([](ZeroOptions& o) { o.loss_scaler.loss_scale = -1; }, "loss_scale");
    // The communicator is as good as before.
    EXPECT_OK(Create(self, ToyModel(), {}));
    EXPECT_THAT(Create(self, {{"u", {{"w", 1, {}, 3}}}}, {}),
                StatusIs(kInvalid, HasSubstr("parameter \"w\": group is 3, the optimizer has 1")));
  });
}

TEST(ErrorsTest, AMistakeOfOneRankIsAnErrorOnAll) {
  OnThreads({.size = 3}, [](Rank& self) {
    ZeroOptions options;
    if (self.rank == 1) options.live_units = -3;
    EXPECT_THAT(Create(self, ToyModel(), options),
                StatusIs(kInvalid, AllOf(HasSubstr("live_units is -3"),
                                         HasSubstr(self.rank == 1 ? "" : "rank 1: "))));
    EXPECT_OK(Create(self, ToyModel(), {}));
  });
}

TEST(ErrorsTest, ALackOfMemoryOnOneRankIsAnErrorOnAll) {
  collectives::RanksOptions options;
  const auto engines = collectives::ThreadEngines(options);
  collectives::OnRanks(options, engines, [](Rank& self) {
    // What is left of this rank's limit is not enough.
    auto limited =
        device::Context::Create({.memory_limit_bytes = self.rank == 1 ? 20000 : 0, .name = "small"})
            .value();
    auto stream = limited->CreateStream("compute").value();
    EXPECT_THAT(
        ZeroOptimizer::Create(ToyModel(), {}, *self.communicator, *limited, *stream).status(),
        StatusIs(absl::StatusCode::kResourceExhausted,
                 AllOf(HasSubstr("\"small\""), HasSubstr("20000"))));
  });
}

TEST(ErrorsTest, ALackOfTheHostsMemoryOnOneRankIsAnErrorOnAll) {
  collectives::RanksOptions options;
  const auto engines = collectives::ThreadEngines(options);
  collectives::OnRanks(options, engines, [](Rank& self) {
    auto limited = device::Context::Create(
                       {.host_memory_limit_bytes = self.rank == 1 ? 20000 : 0, .name = "small"})
                       .value();
    auto stream = limited->CreateStream("compute").value();
    ZeroOptions zero;
    zero.stage = 2;
    zero.offload.optimizer_state = device::Tier::kHost;
    EXPECT_THAT(
        ZeroOptimizer::Create(ToyModel(), zero, *self.communicator, *limited, *stream).status(),
        StatusIs(absl::StatusCode::kResourceExhausted,
                 AllOf(HasSubstr("bytes of the host ("), HasSubstr("moments 15360"),
                       HasSubstr("limit 20000"))));
  });
}

// What a rank tells the others needs no memory.
TEST(ErrorsTest, ALackOfMemoryForATransferIsAnErrorOnAll) {
  OnThreads({.size = 2}, [](Rank& self) {
    const ZeroOptions options;
    int64_t needed = 0;
    {
      auto zero = CreateZero(ToyModel(), options, self).value();
      needed =
          Total(MemoryOf(zero->plan(), options, *self.communicator).value(), device::Tier::kDevice);
    }
    self.AwaitOthers();
    auto limited = device::Context::Create(
                       {.memory_limit_bytes = self.rank == 1 ? needed : 0, .name = "small"})
                       .value();
    auto stream = limited->CreateStream("compute").value();
    auto zero = ZeroOptimizer::Create(ToyModel(), options, *self.communicator, *limited, *stream);
    ASSERT_OK(zero);
    const auto lacks = StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("\"small\""));
    EXPECT_THAT(InitializeToy(**zero), lacks);
    EXPECT_THAT(Exported(**zero).status(), lacks);
    EXPECT_OK(self.communicator->AllGatherHost({1}).status());
  });
}

TEST(ErrorsTest, RanksThatDisagreeAreToldTheFirstDifference) {
  OnThreads({.size = 3}, [](Rank& self) {
    ModelSpec model = ToyModel();
    if (self.rank == 2) model[1].parameters[0].size = 1501;
    EXPECT_THAT(Create(self, model, {}),
                StatusIs(kInvalid, AllOf(HasSubstr("rank 0 has parameter 2, h.0.w [1500]"),
                                         HasSubstr("rank 2 has parameter 2, h.0.w [1501]"))));
    ZeroOptions sparse;
    sparse.gradient_compression = {.method = GradientCompression::kTopK,
                                   .density = self.rank == 1 ? 0.02 : 0.01};
    EXPECT_THAT(
        Create(self, ToyModel(), sparse),
        StatusIs(kInvalid, HasSubstr("rank 0 has gradient_compression top_k from step 0, density "
                                     "0.01; rank 1 has gradient_compression top_k from step 0, "
                                     "density 0.02")));
    model = ToyModel();
    if (self.rank == 1) model.pop_back();
    EXPECT_THAT(Create(self, model, {}), StatusIs(kInvalid, HasSubstr("rank 1 has")));
    model = ToyModel();
    if (self.rank == 1) std::swap(model[1].parameters[0], model[1].parameters[1]);
    EXPECT_THAT(Create(self, model, {}),
                StatusIs(kInvalid, AllOf(HasSubstr("rank 0 has parameter 2, h.0.w"),
                                         HasSubstr("rank 1 has parameter 2, h.0.b"))));
    model = ToyModel();
    if (self.rank == 1) model[3].name = "idler";
    EXPECT_THAT(Create(self, model, {}), StatusIs(kInvalid, HasSubstr("unit \"idler\"")));
    const auto differ = [&](auto change, const char* text) {
      ZeroOptions options;
      if (self.rank == 2) change(options);
      EXPECT_THAT(Create(self, ToyModel(), options),
                  StatusIs(kInvalid, AllOf(HasSubstr("rank 2 has"), HasSubstr(text))));
    };
    differ([](ZeroOptions& o) { o.micro_batches = 2; }, "micro_batches 2");
    differ([](ZeroOptions& o) { o.loss_scaler = optim::LossScaler::Dynamic(); }, "loss_scale 0");
    differ([](ZeroOptions& o) { o.optimizer.groups[0].lr *= 1 + 1e-12; },
           "group 0: lr 0.00100000000");
    differ([](ZeroOptions& o) { o.optimizer.groups[0].schedule = optim::WarmupLR(); },
           "schedule of");
    ZeroOptions lamb;
    lamb.optimizer.kind = optim::OptimizerKind::kLamb;
    if (self.rank == 2) lamb.optimizer.groups[0].max_trust = 5.0;
    EXPECT_THAT(Create(self, ToyModel(), lamb),
                StatusIs(kInvalid, AllOf(HasSubstr("rank 0 has group 0: lr 0.001"),
                                         ContainsRegex("trust from 0[.]01.* to 10, "),
                                         ContainsRegex("trust from 0[.]01.* to 5, "))));
    EXPECT_OK(Create(self, ToyModel(), {}));
  });
}

class CallsTest : public ::testing::TestWithParam<Home> {};

TEST_P(CallsTest, OutOfTurnAreNamedAndTrainingGoesOn) {
  std::vector<std::vector<float>> wanted;
  for (const bool wrong : {false, true}) {
    OnThreads({.size = 2}, [&](Rank& self) {
      ZeroOptions options;
      GetParam().Set(options);
      auto zero = CreateZero(ToyModel(), options, self).value();
      ASSERT_OK(InitializeToy(*zero));
      ToyTrainer trainer(*zero, self);
      ASSERT_OK(trainer.Step());
      if (wrong) {
        const auto out_of_turn = [](const char* text) {
          return StatusIs(kPrecondition, HasSubstr(text));
        };
        const std::string stage = absl::StrCat("stage ", GetParam().stage);
        EXPECT_THAT(zero->Step(), out_of_turn("0 of 1 micro-batches have finished"));
        EXPECT_THAT(
            zero->Release(1),
            StatusIs(kPrecondition, AllOf(HasSubstr("Release of unit \"h.0\""), HasSubstr(stage))));
        ASSERT_OK(zero->Acquire(1, Pass::kForward));
        EXPECT_THAT(zero->Acquire(1, Pass::kForward),
                    out_of_turn("Acquire of unit \"h.0\": it is"));
        EXPECT_THAT(zero->Weights(5).status(), out_of_turn("\"h.1.w\" is read while"));
        EXPECT_OK(zero->Weights(2).status());
        EXPECT_THAT(zero->LendState(*self.stream), out_of_turn("in the middle of a step"));
        ASSERT_OK(zero->Release(1));
        EXPECT_THAT(zero->Acquire(9, Pass::kForward), StatusIs(kInvalid, HasSubstr("unit 9 of 5")));
        EXPECT_THAT(zero->Weights(-1).status(), StatusIs(kInvalid, HasSubstr("parameter -1 of")));
        EXPECT_THAT(zero->Gradient(1, 0).status(),
                    StatusIs(kInvalid, AllOf(HasSubstr("unit \"h.0\""), HasSubstr("\"wte\""),
                                             HasSubstr("does not use it"))));
        EXPECT_THAT(zero->Gradient(1, 4).status(),
                    StatusIs(kInvalid, HasSubstr("\"h.0.frozen\": it is frozen")));
        ASSERT_OK(zero->Gradient(4, 10).status());
        EXPECT_THAT(zero->FinishBackward(),
                    out_of_turn("unit \"head\" has gradients that were not"));
        ASSERT_OK(zero->GradientsReady(4));
        EXPECT_THAT(
            zero->GradientsReady(4),
            out_of_turn("GradientsReady of unit \"head\": its gradients are reported twice"));
        EXPECT_THAT(zero->Gradient(4, 10).status(), out_of_turn("have been reported"));
        EXPECT_THAT(
            zero->ExportParameters([](int, absl::Span<const float>) { return absl::OkStatus(); }),
            out_of_turn("in the middle of a step"));
        ASSERT_OK(zero->FinishBackward());
        EXPECT_THAT(zero->FinishBackward(), out_of_turn("all 1 micro-batches are done"));
        EXPECT_THAT(zero->Gradient(4, 10).status(), out_of_turn("Step comes first"));
        EXPECT_THAT(zero->GradientsReady(1), out_of_turn("Step comes first"));
        ASSERT_OK(zero->Acquire(1, Pass::kForward));
        EXPECT_THAT(zero->Step(), out_of_turn("1 units are acquired"));
        ASSERT_OK(zero->CancelStep());
      }
      ASSERT_OK(trainer.Step());
      ASSERT_OK(self.stream->Synchronize());
      auto exported = Exported(*zero);
      ASSERT_OK(exported);
      if (self.rank != 0) return;
      if (!wrong) wanted = *exported;
      EXPECT_EQ(*exported, wanted);
    });
  }
}

// A step in which work on all ranks' compute streams fails, and its end.
void FailAStep(ZeroOptimizer& zero, ToyTrainer& trainer, Rank& self, std::barrier<>& meet,
               device::Gate& gate) {
  // All is enqueued before anything fails, so that no collective is refused.
  ASSERT_OK(device::Block(*self.stream, gate));
  ASSERT_OK(self.stream->Enqueue(
      {"mistake"}, [](device::ThreadPool&) { return absl::DataLossError("a bad batch"); }));
  ASSERT_OK(trainer.MicroBatch(0));
  ASSERT_OK(zero.Step());
  meet.arrive_and_wait();
  gate.Open();
  EXPECT_THAT(zero.step_stream().Synchronize(),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("a bad batch")));
  ASSERT_OK(zero.CancelStep());
  meet.arrive_and_wait();
}

// Of a unit that is gathered once a step, behind the failure: its weights are those of the step
// before.
TEST(ErrorsTest, APersistentUnitThatWasNotGatheredIsGatheredAfterCancelStep) {
  ModelSpec model;
  for (const char* name : {"a", "b", "c"}) model.push_back({name, {{name, 1000}}});
  model.push_back({"persistent", {{"d", 100}}});
  std::vector<std::vector<float>> wanted;
  for (const bool fails : {false, true}) {
    device::Gate gates[2];
    std::barrier meet(2);
    OnThreads({.size = 2}, [&](Rank& self) {
      ZeroOptions options = {.stage = 3, .persistence_threshold = 100};
      auto zero = CreateZero(model, options, self).value();
      ASSERT_OK(InitializeToy(*zero));
      ToyTrainer trainer(*zero, self);
      ASSERT_OK(trainer.Step());
      if (fails) {
        device::Gate& gate = gates[self.rank];
        ASSERT_OK(device::Block(*self.stream, gate));
        ASSERT_OK(self.stream->Enqueue(
            {"mistake"}, [](device::ThreadPool&) { return absl::DataLossError("a bad batch"); }));
        ASSERT_OK(trainer.Forward());
        meet.arrive_and_wait();
        gate.Open();
        EXPECT_FALSE(zero->step_stream().Synchronize().ok());
        ASSERT_OK(zero->CancelStep());
        meet.arrive_and_wait();
      }
      ASSERT_OK(trainer.Step());
      auto exported = Exported(*zero).value();
      if (self.rank != 0) return;
      if (!fails) wanted = exported;
      EXPECT_EQ(exported, wanted);
    });
  }
}

TEST_P(CallsTest, AStepWhoseOwnWorkFailsCanBeCancelled) {
  std::vector<std::vector<float>> wanted;
  for (const bool fails : {false, true}) {
    device::Gate gates[2];
    std::barrier meet(2);
    OnThreads({.size = 2}, [&](Rank& self) {
      ZeroOptions options;
      GetParam().Set(options);
      auto zero = CreateZero(ToyModel(), options, self).value();
      ASSERT_OK(InitializeToy(*zero));
      ToyTrainer trainer(*zero, self);
      // Before the first step, when no memory has been laid out, and before the second.
      for (int step = 0; step < 2; ++step) {
        if (fails) FailAStep(*zero, trainer, self, meet, gates[step]);
        ASSERT_OK(trainer.Step());
      }
      ASSERT_OK(self.stream->Synchronize());
      const auto exported = Exported(*zero);
      ASSERT_OK(exported);
      if (self.rank != 0) return;
      if (!fails) wanted = *exported;
      EXPECT_EQ(*exported, wanted);
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Homes, CallsTest, ::testing::ValuesIn(Homes()),
                         [](const auto& info) { return ToString(info.param); });

class LiveUnitsTest : public ::testing::TestWithParam<device::Tier> {};

// Wherever the slices of the weights are.
INSTANTIATE_TEST_SUITE_P(Parameters, LiveUnitsTest,
                         ::testing::Values(device::Tier::kDevice, device::Tier::kHost,
                                           device::Tier::kFile),
                         [](const auto& info) {
                           return std::string(device::ToString(info.param));
                         });

TEST_P(LiveUnitsTest, TooManyAreRefused) {
  device::RaceChecker checker;
  OnThreads({.size = 2, .race_checker = &checker}, [](Rank& self) {
    ModelSpec model;
    for (const char* name : {"a", "b", "c", "d"}) model.push_back({name, {{name, 1000}}});
    ZeroOptions options;
    options.stage = 3;
    if (GetParam() != device::Tier::kDevice) options.offload = InFile(GetParam());
    auto zero = CreateZero(model, options, self).value();
    ASSERT_OK(zero->Acquire(0, Pass::kForward));
    ASSERT_OK(zero->Acquire(2, Pass::kForward));  // takes the memory of what was gathered ahead
    EXPECT_THAT(zero->Acquire(3, Pass::kForward),
                StatusIs(kPrecondition, AllOf(HasSubstr("unit \"d\""), HasSubstr("live_units"))));
    ASSERT_OK(zero->Release(0));
    EXPECT_OK(zero->Acquire(3, Pass::kForward));
    ASSERT_OK(zero->Gradient(3, 3).status());
    ASSERT_OK(zero->Gradient(1, 1).status());
    EXPECT_THAT(zero->Gradient(0, 0).status(),
                StatusIs(kPrecondition, AllOf(HasSubstr("stage 3, Gradient of unit \"a\""),
                                              HasSubstr("it is the turn of unit \"d\""))));
    ASSERT_OK(zero->step_stream().Synchronize());
    ASSERT_OK(self.stream->Synchronize());
    ASSERT_OK(zero->CancelStep());
  });
  // No gather has come into another's memory.
  EXPECT_TRUE(checker.reports().empty());
}

TEST(ErrorsTest, AFileBeyondItsLimitIsRefusedOnAllRanks) {
  OnThreads({.size = 2}, [](Rank& self) {
    ZeroOptions options;
    options.stage = 2;
    options.offload = InFile(device::Tier::kDevice);
    if (self.rank == 1) options.offload.file_limit_bytes = 10'000;
    EXPECT_THAT(Create(self, ToyModel(), options),
                StatusIs(absl::StatusCode::kResourceExhausted,
                         AllOf(HasSubstr("bytes of the file (optimizer state, two slots "),
                               HasSubstr("limit 10000"))));
    if (self.rank == 1) options.offload.file.directory += "/missing";
    options.offload.file_limit_bytes = 0;
    EXPECT_THAT(Create(self, ToyModel(), options),
                StatusIs(absl::StatusCode::kNotFound, HasSubstr("/missing/brigade_rank_1_")));
  });
}

TEST(ErrorsTest, AUnitDoesNotMakeRoomForItselfWithItsOwnBuckets) {
  OnThreads({.size = 2}, [](Rank& self) {
    ModelSpec model;
    for (const std::string name : {"a", "b", "c", "d"}) {
      model.push_back({name, {{name + ".1", 1000}, {name + ".2", 1000}}});
    }
    ZeroOptions options;
    options.stage = 3;
    options.bucket_elements = 1000;
    auto zero = CreateZero(model, options, self).value();
    ASSERT_OK(zero->Acquire(0, Pass::kForward));  // and "b" ahead: all memory is taken
    ASSERT_OK(zero->Acquire(2, Pass::kForward));
    for (const int p : {0, 1, 4, 5}) EXPECT_OK(zero->Weights(p).status());
    EXPECT_THAT(zero->Acquire(1, Pass::kForward), StatusIs(kPrecondition, HasSubstr("live_units")));
    EXPECT_THAT(zero->Weights(2).status(), StatusIs(kPrecondition, HasSubstr("is read while")));
    ASSERT_OK(zero->Release(0));
    ASSERT_OK(zero->Acquire(1, Pass::kForward));
    for (const int p : {2, 3, 4, 5}) EXPECT_OK(zero->Weights(p).status());
  });
}

TEST(ErrorsTest, AUnitIsNotAcquiredIfTheNextOneCannotBeGathered) {
  OnThreads({.size = 2}, [](Rank& self) {
    ModelSpec model;
    for (const char* name : {"a", "b", "c"}) model.push_back({name, {{name, 1000}}});
    ZeroOptions options;
    options.stage = 3;
    auto zero = CreateZero(model, options, self).value();
    ASSERT_OK(zero->Acquire(0, Pass::kForward));  // and "b" ahead
    ASSERT_OK(zero->Release(0));
    self.AwaitOthers();
    self.communicator->Abort(absl::CancelledError("enough"));
    EXPECT_THAT(zero->Acquire(1, Pass::kForward),
                StatusIs(absl::StatusCode::kCancelled, HasSubstr("Acquire of unit \"b\"")));
    EXPECT_THAT(zero->Weights(1).status(), StatusIs(kPrecondition, HasSubstr("is read while")));
    EXPECT_THAT(zero->Release(1), StatusIs(kPrecondition, HasSubstr("it is not acquired")));
    EXPECT_OK(Capture(*zero, self).status()) << "no unit is acquired";
  });
}

TEST(ErrorsTest, GradientsReportedInAnyOrderComeToAnEnd) {
  OnThreads({.size = 2}, [](Rank& self) {
    ModelSpec model;
    for (const char* name : {"a", "b", "c", "d"}) model.push_back({name, {{name, 1000}}});
    ZeroOptions options;
    options.stage = 2;
    auto zero = CreateZero(model, options, self).value();
    ASSERT_OK(zero->Gradient(2, 2).status());
    // The other slot is kept for "d", which then needs none of its own: it has no gradients.
    EXPECT_THAT(zero->Gradient(1, 1).status(),
                StatusIs(kPrecondition, HasSubstr("it is the turn of unit \"d\"")));
    ASSERT_OK(zero->GradientsReady(2));
    ASSERT_OK(zero->GradientsReady(3));
    ASSERT_OK(zero->Gradient(1, 1).status());
    ASSERT_OK(zero->CancelStep());
  });
}

TEST(ErrorsTest, AMistakeInRank0sInitialValuesIsToldToAll) {
  OnThreads({.size = 2}, [](Rank& self) {
    auto zero = CreateZero(ToyModel(), {}, self).value();
    const auto fails = [](int parameter, absl::Span<float>) {
      return parameter == 2 ? absl::NotFoundError("no such tensor") : absl::OkStatus();
    };
    EXPECT_THAT(zero->InitializeParameters(fails),
                StatusIs(absl::StatusCode::kNotFound, HasSubstr("no such tensor")));
    EXPECT_OK(InitializeToy(*zero));
  });
}

}  // namespace
}  // namespace brigade::zero
