// Trainings of a models::Model whose units are the stages of a pipeline: the bits of a training
// without one.

#include <barrier>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "brigade/models/adapter_files.h"
#include "brigade/models/decoder.h"
#include "brigade/tests/collectives/ranks.h"
#include "brigade/tests/testing/status_matchers.h"
#include "brigade/tests/train/delayed_training.h"
#include "brigade/tests/train/on_ranks.h"
#include "brigade/tests/train/trainings.h"
#include "brigade/train/decoder_model.h"
#include "brigade/train/observers/history.h"
#include "brigade/train/trainer.h"
#include "brigade/train/training.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::train {
namespace {

using ::brigade::testing::StatusIs;
using ::testing::HasSubstr;

constexpr const char* kSchedules[] = {"gpipe", "1f1b", "interleaved:2", "zb-h1", "zb-v"};

// The case, beside one of as many data ranks that have the whole model, in stage 0 and without
// recomputation.
void ExpectBitsOfWhole(const Case& of, const ModelFactory& model, bool apart = false) {
  SCOPED_TRACE(Config(of));
  const Case whole = {
      .data = of.data, .type = of.type, .more = of.more, .micro_batch = of.micro_batch};
  ExpectSame(TrainAll(Make(of, model, DataOf(apart)), of.ranks()),
             TrainAll(Make(whole, model, DataOf(apart)), whole.ranks()));
}

// There was an overflow, and not always: some steps are skipped.
void ExpectSomeOverflows(const Ran& ran) {
  EXPECT_THAT(ran.norms, ::testing::Contains(::testing::Gt(1e30)));
  EXPECT_THAT(ran.norms, ::testing::Contains(::testing::Lt(1e3)));
}

// Stages of ZeRO, types and recomputation by turns.
void ForSomeOfEach(const ModelFactory& model, int most_data, int turn) {
  constexpr const char* kTypes[] = {"fp32", "bf16", "fp16"};
  for (int data = 1; data <= most_data; data *= 2) {
    for (const int pipeline : {2, 4}) {
      for (const char* const schedule : kSchedules) {
        ExpectBitsOfWhole({.data = data,
                           .pipeline = pipeline,
                           .schedule = schedule,
                           .stage = turn % 4,
                           .type = kTypes[turn % 3],
                           .recompute = turn % 2 == 1},
                          model);
        ++turn;
      }
    }
  }
}

TEST(PipelineTest, LlamaHasTheBitsOfATrainingWithoutAPipeline) {
  ForSomeOfEach(DecoderModel(TinyLlama()), 1, 0);
}

TEST(PipelineTest, Gpt2HasTheBitsOfATrainingWithoutAPipeline) {
  ForSomeOfEach(DecoderModel(TinyGpt2()), 1, 5);
}

TEST(PipelineTest, AdaptersHaveTheBitsOfATrainingWithoutAPipeline) {
  ForSomeOfEach(DecoderModel(TinyGpt2(), Adapters()), 1, 3);
}

// Its embedding is not tied: only data ranks can have what others have, and in stage 3 none has.
TEST(PipelineTest, StagesThatHaveNothingAlikeAreNotCompared) {
  const std::string of_model =
      "tensor ranks and stages of the pipeline share no parameter of this model";
  const auto status_of = [](const Case& of) {
    Training training = Make(of, DecoderModel(TinyLlama()), DataOf());
    training.job.digests.verify_every = 1;
    return TrainAll(training, of.ranks()).status;
  };
  const std::string nothing = "--verify_replicas is 1, but no rank has what another one has: ";
  EXPECT_THAT(status_of({.pipeline = 2, .stage = 1}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(nothing + of_model)));
  EXPECT_THAT(status_of({.data = 2, .pipeline = 2, .stage = 3}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr(nothing +
                                 "stage 3 keeps one copy of everything, unless groups have a "
                                 "whole state each (--shard_ranks); " +
                                 of_model)));
  EXPECT_OK(status_of({.data = 2, .pipeline = 2, .stage = 1}));
}

// The embedding alone, and the head alone, have nothing that is trained.
TEST(PipelineTest, StagesMayHaveNothingThatIsTrained) {
  DecoderModelOptions options;
  options.lora = models::LoraOptions{.rank = 2, .targets = {"q_proj"}};
  for (const int stage : {0, 1, 3}) {
    ExpectBitsOfWhole({.pipeline = 3, .stage = stage, .partition = "0,1,7,8"},
                      DecoderModel(TinyLlama(/*tied=*/true), options));
  }
}

TEST(PipelineTest, ABaseOfCodesLiesInStages) {
  DecoderModelOptions options = Adapters();
  options.lora->base = models::BaseFormat::kInt8Blocks;
  for (const char* const schedule : {"1f1b", "zb-v"}) {
    ExpectBitsOfWhole({.pipeline = 2, .schedule = schedule, .stage = 3, .type = "bf16"},
                      DecoderModel(TinyGpt2(), options));
  }
}

TEST(PipelineTest, ABaseOfCodesIsCutAsThatOfNumbers) {
  // Embedding and head, which have no codes, have more numbers than a block has words.
  models::DecoderConfig config = TinyLlama();
  config.vocabulary = 160;
  const auto boundary = [&](models::BaseFormat base, const std::string& partition) {
    DecoderModelOptions options;
    options.lora = models::LoraOptions{.rank = 2, .targets = {"q_proj"}, .base = base};
    const Case of = {.pipeline = 4, .type = "bf16", .partition = partition};
    const Ran ran = TrainAll(Make(of, DecoderModel(config, options), DataOf()), 4);
    EXPECT_OK(ran.status);
    std::vector<int64_t> parameters;
    for (const RankSummary& rank : ran.outcome.ranks) parameters.push_back(rank.parameters);
    return parameters;
  };
  const auto as_model = boundary(models::BaseFormat::kAsModel, "parameters");
  EXPECT_EQ(as_model, boundary(models::BaseFormat::kAsModel, "0,2,4,6,8"));
  EXPECT_EQ(boundary(models::BaseFormat::kInt8Blocks, "parameters"),
            boundary(models::BaseFormat::kInt8Blocks, "0,2,4,6,8"));
}

TEST(PipelineTest, DataRanksShareEachStage) {
  ExpectBitsOfWhole({.data = 2, .pipeline = 2, .schedule = "zb-v", .stage = 3},
                    DecoderModel(TinyLlama(/*tied=*/true)));
  ExpectBitsOfWhole({.data = 2, .pipeline = 2, .stage = 2, .type = "bf16", .recompute = true},
                    DecoderModel(TinyGpt2(), Adapters()));
}

TEST(PipelineTest, DocumentsInASampleCrossWithIt) {
  for (const char* const schedule : {"1f1b", "zb-h1"}) {
    ExpectBitsOfWhole({.pipeline = 4, .schedule = schedule, .stage = 1}, DecoderModel(TinyGpt2()),
                      /*apart=*/true);
    ExpectBitsOfWhole({.pipeline = 2, .schedule = schedule, .stage = 1}, DecoderModel(TinyLlama()),
                      /*apart=*/true);
  }
}

TEST(PipelineTest, PartsAreThoseOfThePartition) {
  for (const char* const partition : {"parameters", "flops", "0,1,2,8", "0,6,7,8"}) {
    ExpectBitsOfWhole({.pipeline = 3, .stage = 1, .partition = partition},
                      DecoderModel(TinyLlama()));
  }
  // What each rank says that it has.
  const Case given = {.pipeline = 3, .partition = "0,6,7,8"};
  const Ran ran = TrainAll(Make(given, DecoderModel(TinyLlama()), DataOf()), 3);
  ASSERT_OK(ran.status);
  ASSERT_EQ(ran.outcome.ranks.size(), 3u);
  const int64_t block = 16 * 32 + 16 * 16 + 3 * 16 * 24 + 2 * 16;
  EXPECT_EQ(ran.outcome.ranks[0].parameters, 16 * 16 + 5 * block);
  EXPECT_EQ(ran.outcome.ranks[1].parameters, block);
  EXPECT_EQ(ran.outcome.ranks[2].parameters, 16 + 16 * 16);
}

TEST(PipelineTest, AStepThatOverflowsIsSkippedByAllStages) {
  for (const ModelFactory& model : {DecoderModel(TinyLlama()), DecoderModel(TinyGpt2())}) {
    const Ran whole = TrainAll(Make({.type = "fp16"}, model, DataOf()), 1);
    ExpectSomeOverflows(whole);
    for (const char* const schedule : {"1f1b", "zb-v"}) {
      const Case of = {.pipeline = 2, .schedule = schedule, .stage = 2, .type = "fp16"};
      ExpectSame(TrainAll(Make(of, model, DataOf()), 2), whole);
    }
  }
}

TEST(PipelineTest, DelaysChangeNoBitAndNothingIsUnordered) {
  int turn = 0;
  for (const ModelFactory& model :
       {DecoderModel(TinyLlama(/*tied=*/true)), DecoderModel(TinyGpt2(), Adapters())}) {
    const Ran whole = TrainAll(Make({}, model, DataOf()), 1);
    for (const char* const schedule : kSchedules) {
      const Case of = {
          .pipeline = 2, .schedule = schedule, .stage = turn % 4, .recompute = turn % 2 == 0};
      SCOPED_TRACE(Config(of));
      ExpectOrdered(Make(of, model, DataOf()), of.ranks(), 101 + static_cast<uint64_t>(turn),
                    whole);
      ++turn;
    }
  }
}

TEST(PipelineTest, ClippingAndOffloadAreAsWithoutAPipeline) {
  // The norm, by which gradients are clipped, is a sum in another order.
  const std::string clipping = R"(, "gradient_clipping": 0.2)";
  const ModelFactory tied = DecoderModel(TinyLlama(/*tied=*/true));
  const Ran clipped = TrainAll(Make({.more = clipping}, tied, DataOf()), 1);
  EXPECT_THAT(clipped.norms, ::testing::Each(::testing::Gt(0.2)));
  const Ran of_stages =
      TrainAll(Make({.pipeline = 2, .stage = 1, .more = clipping}, tied, DataOf()), 2);
  ASSERT_OK(clipped.status);
  ASSERT_OK(of_stages.status);
  ASSERT_FALSE(clipped.losses.empty());
  ASSERT_EQ(of_stages.losses.size(), clipped.losses.size());
  for (size_t step = 0; step < clipped.losses.size(); ++step) {
    EXPECT_NEAR(of_stages.losses[step], clipped.losses[step], 1e-6 * clipped.losses[step]);
  }

  Case offload = {.pipeline = 2, .schedule = "interleaved:2", .stage = 2};
  const Ran whole = TrainAll(Make({}, DecoderModel(TinyGpt2()), DataOf()), 1);
  std::string config = Config(offload);
  config.replace(config.find("\"stage\": 2}"), std::strlen("\"stage\": 2}"),
                 R"("stage": 2, "offload_optimizer": {"device": "cpu"}})");
  Training training = Make(offload, DecoderModel(TinyGpt2()), DataOf());
  training.job.config = ParseConfig(config, 2).value();
  ExpectSame(TrainAll(training, 2), whole);
}

TEST(PipelineSoakTest, EveryScheduleStageTypeAndRecomputationHasTheSameBits) {
  const ModelFactory models[] = {DecoderModel(TinyLlama()), DecoderModel(TinyGpt2()),
                                 DecoderModel(TinyLlama(true), Adapters())};
  for (const ModelFactory& model : models) {
    for (const char* const type : {"fp32", "bf16", "fp16"}) {
      for (const int data : {1, 2}) {
        const Ran whole = TrainAll(Make({.data = data, .type = type}, model, DataOf()), data);
        for (const int pipeline : {2, 4}) {
          for (const char* const schedule : kSchedules) {
            for (int stage = 0; stage < 4; ++stage) {
              for (const bool recompute : {false, true}) {
                const Case of = {.data = data,
                                 .pipeline = pipeline,
                                 .schedule = schedule,
                                 .stage = stage,
                                 .type = type,
                                 .recompute = recompute};
                SCOPED_TRACE(Config(of));
                ExpectSame(TrainAll(Make(of, model, DataOf()), of.ranks()), whole);
              }
            }
          }
        }
      }
    }
  }
}

// 3 steps an epoch: step 4 is inside the second.
TEST(PipelineTest, GoesOnInsideAnEpochOnAnyGrid) {
  for (const ModelFactory& model :
       {DecoderModel(TinyLlama(/*tied=*/true)), DecoderModel(TinyGpt2(), Adapters())}) {
    const Ran whole = TrainAll(Make({}, model, DataOf()), 1);
    const std::string folder = Folder("resume"), of_one = Folder("resume_of_one");
    Training alone = Make({.stage = 1}, model, DataOf());
    alone.job.steps = 4;
    alone.job.checkpoints.save = of_one;
    ASSERT_OK(TrainAll(alone, 1).status);
    Training begin =
        Make({.pipeline = 2, .schedule = "interleaved:2", .stage = 1}, model, DataOf());
    begin.job.steps = 4;
    begin.job.checkpoints.save = folder;
    ASSERT_OK(TrainAll(begin, 2).status);
    // A checkpoint has the same bytes, whoever saves it.
    int files = 0;
    for (const auto& file : std::filesystem::recursive_directory_iterator(of_one)) {
      if (file.path().extension() != ".safetensors") continue;
      ++files;
      EXPECT_EQ(BytesOf(folder + file.path().string().substr(of_one.size())),
                BytesOf(file.path().string()))
          << file.path();
    }
    EXPECT_GT(files, 0);
    const std::vector<double> rest(whole.losses.begin() + 4, whole.losses.end());
    for (const Case& of : {Case{}, Case{.pipeline = 2, .stage = 3},
                           Case{.pipeline = 4, .schedule = "zb-h1", .stage = 2}}) {
      SCOPED_TRACE(Config(of));
      Training training = Make(of, model, DataOf());
      training.job.checkpoints.resume = folder;
      const Ran ran = TrainAll(training, of.ranks());
      ASSERT_OK(ran.status);
      EXPECT_EQ(ran.losses, rest);
      EXPECT_EQ(ran.held_out.back(), whole.held_out.back());
    }
    // A checkpoint is one of weights, too: of a new training, by any grid.
    std::vector<double> first;
    for (const Case& of : {Case{}, Case{.pipeline = 4}}) {
      Training training = Make(of, model, DataOf());
      training.job.checkpoints.weights = absl::StrCat(folder, "/step-00000004");
      const Ran ran = TrainAll(training, of.ranks());
      ASSERT_OK(ran.status);
      if (first.empty()) first = ran.losses;
      EXPECT_EQ(ran.losses, first);
      EXPECT_NE(ran.losses, whole.losses);
    }
  }
}

// The adapters that are saved, which are on several stages; and a pass alone, which a pipeline does
// not have.
TEST(PipelineTest, AdaptersOfAllStagesAreSavedInOneFile) {
  std::string files[2];
  for (const int pipeline : {1, 2}) {
    const std::string folder = Folder(absl::StrCat("adapter", pipeline));
    OnRanks(pipeline, [&](const collectives::LaunchInfo& launch_info, TrainerOptions options) {
      const Case of = {.pipeline = pipeline, .stage = 1};
      auto made =
          Trainer::Create({.config = ParseConfig(Config(of), pipeline).value()},
                          DecoderModel(TinyGpt2(), Adapters()), DataOf(), launch_info, options);
      ASSERT_OK(made);
      Trainer& trainer = **made;
      ASSERT_OK(trainer.Fit());
      ASSERT_OK(trainer.WithModel([&](auto& model, auto& zero, auto& ranks) {
        return models::SaveAdapter(folder, static_cast<models::Decoder&>(model), zero, ranks);
      }));
    });
    files[pipeline - 1] = BytesOf(folder + "/adapter_model.safetensors");
  }
  EXPECT_FALSE(files[0].empty());
  EXPECT_EQ(files[0], files[1]);

  History history;
  // The first error ends the group, also for a rank that is not yet behind Create.
  std::barrier both_are_made(2);
  OnRanks(2, [&](const collectives::LaunchInfo& launch_info, TrainerOptions options) {
    options.observer = &history;
    auto made = Trainer::Create({.config = ParseConfig(Config({.pipeline = 2}), 2).value()},
                                DecoderModel(TinyLlama()), DataOf(), launch_info, options);
    both_are_made.arrive_and_wait();
    ASSERT_OK(made);
    EXPECT_THAT((*made)->Batch(), StatusIs(absl::StatusCode::kFailedPrecondition,
                                           HasSubstr("a pass alone, with a pipeline")));
  });
  // Nothing has begun: not the evaluation before the first step.
  EXPECT_TRUE(history.evaluations().empty());
}

TEST(PipelineTest, AProfileHasTheUnitsOfAllStages) {
  for (const char* const schedule : {"1f1b", "zb-h1"}) {
    const Case of = {
        .pipeline = 2,
        .schedule = schedule,
        .recompute = true,
        .more = R"(, "flops_profiler": {"enabled": true, "profile_step": 2, "module_depth": 1})"};
    const Training training = Make(of, DecoderModel(TinyLlama()), DataOf());
    Profiles profiles;
    ASSERT_OK(TrainOnThreads(training.job, *training.task, 2, {.observer = &profiles}));
    ASSERT_EQ(profiles.events.size(), 1u);
    const profile::StepProfile& step = profiles.events[0].profile;
    constexpr double kBlock = 16 * 32 + 16 * 16 + 3 * 16 * 24;
    const double weights = 6 * kBlock + 16 * 16;
    EXPECT_DOUBLE_EQ(step.training.flops_per_token, 6 * weights + 12 * 6 * 16 * 8);
    EXPECT_EQ(step.training.tokens_of_step, 64);
    ASSERT_GE(step.units.size(), 8u);
    for (size_t unit = 1; unit < 7; ++unit) {
      EXPECT_EQ(step.units[unit].name, absl::StrCat("model.layers.", unit - 1));
      EXPECT_DOUBLE_EQ(step.units[unit].flops[0].products, 2 * 64 * kBlock) << unit;
      EXPECT_DOUBLE_EQ(step.units[unit].flops[1].products, 4 * 64 * kBlock) << unit;
      for (size_t pass = 0; pass < 3; ++pass) {
        EXPECT_GT(step.units[unit].seconds[pass], 0) << unit << " " << pass;
      }
    }
  }
}

}  // namespace
}  // namespace brigade::train
