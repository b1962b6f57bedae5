// Trainings of a decoder whose matrices tensor ranks share: with the same shards the bits of one
// rank.

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "brigade/data/samples.h"
#include "brigade/examples/mlp.h"
#include "brigade/models/adapter_files.h"
#include "brigade/models/decoder.h"
#include "brigade/models/parameter_arrays.h"
#include "brigade/models/weights.h"
#include "brigade/parallel/grid.h"
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
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr absl::StatusCode kInvalid = absl::StatusCode::kInvalidArgument;
constexpr auto kTensor = static_cast<size_t>(parallel::GridGroup::kTensor);

// Sizes that four shards divide.
models::DecoderConfig ShardedLlama(bool tied = false) {
  return {.vocabulary = 16,
          .layers = 2,
          .width = 12,
          .heads = 8,
          .key_value_heads = 4,
          .head_width = 4,
          .inner = 20,
          .positions = 8,
          .tied = tied,
          .attention_bias = !tied,
          .mlp_bias = !tied};
}
models::DecoderConfig ShardedGpt2(int64_t vocabulary = 16) {
  return {.architecture = models::Architecture::kGpt2,
          .vocabulary = vocabulary,
          .layers = 2,
          .width = 16,
          .heads = 4,
          .key_value_heads = 4,
          .head_width = 4,
          .inner = 32,
          // More than a sample has.
          .positions = 12,
          .tied = true};
}

DecoderModelOptions AllAdapters(models::BaseFormat base = models::BaseFormat::kAsModel) {
  DecoderModelOptions options = Adapters();
  options.lora->pattern = ".*";
  options.lora->base = base;
  return options;
}

// With a head of its own, with tied tables, with tables that four shards do not divide, and with
// adapters.
std::vector<ModelFactory> Models() {
  return {DecoderModel(ShardedLlama()),
          DecoderModel(ShardedLlama(/*tied=*/true)),
          DecoderModel(ShardedGpt2()),
          DecoderModel(ShardedGpt2(/*vocabulary=*/18)),
          DecoderModel(ShardedLlama(), AllAdapters()),
          DecoderModel(ShardedGpt2(), AllAdapters(models::BaseFormat::kInt8Blocks))};
}

// Those that stages can share as well: not with tables that both ends have whole on all ranks.
std::vector<ModelFactory> ModelsOfStages() {
  std::vector<ModelFactory> models = Models();
  models.erase(models.begin() + 3);
  return models;
}

// Of four shards and in micro-batches of 2, unless the case says otherwise.
Case Cut(Case of) {
  if (of.shards == 0) of.shards = 4;
  if (of.micro_batch == 0) of.micro_batch = 2;
  return of;
}

Ran TrainAll(const Case& of, const ModelFactory& model, bool apart = false, int64_t size = 19) {
  return TrainAll(Make(Cut(of), model, DataOf(apart, size)), of.ranks());
}

// As many data ranks with one tensor rank, in stage 0, without a pipeline and recomputation.
Case WholeOf(const Case& of) {
  return {.shards = of.shards,
          .data = of.data,
          .type = of.type,
          .pieces = of.pieces,
          .more = of.more,
          .micro_batch = of.micro_batch};
}
void ExpectBitsOfOneRank(const Case& of, const ModelFactory& model, bool apart = false) {
  SCOPED_TRACE(Config(of));
  ExpectSame(TrainAll(of, model, apart), TrainAll(WholeOf(of), model, apart));
}

// Stages of ZeRO, types, data ranks and recomputation by turns.
TEST(TensorTest, AnyNumberOfRanksHasTheBitsOfOne) {
  constexpr const char* kTypes[] = {"fp32", "bf16", "fp16"};
  int turn = 0;
  for (const ModelFactory& model : Models()) {
    const Case one = {.data = turn / 2 % 2 + 1, .type = kTypes[turn / 2 % 3]};
    const Ran whole = TrainAll(one, model);
    for (const int tensor : {2, 4}) {
      Case of = one;
      of.tensor = tensor;
      of.stage = turn % 4;
      of.recompute = turn / 2 % 3 == 1;
      SCOPED_TRACE(Config(of));
      ExpectSame(TrainAll(of, model), whole);
      // Of each type another stage comes first.
      turn += turn % 6 == 5 ? 2 : 1;
    }
  }
}

TEST(TensorTest, StagesOfAPipelineAreCutToo) {
  int turn = 0;
  for (const ModelFactory& model : ModelsOfStages()) {
    for (const char* const schedule : {"1f1b", "interleaved:2", "zb-h1"}) {
      ExpectBitsOfOneRank({.tensor = 2,
                           .data = turn % 3 == 0 ? 2 : 1,
                           .pipeline = 2,
                           .schedule = schedule,
                           .stage = turn % 4,
                           .type = turn % 2 == 0 ? "fp32" : "bf16",
                           .recompute = turn % 4 < 2},
                          model);
      ++turn;
    }
  }
}

TEST(TensorTest, MicroBatchesAndDocumentsAreAsOnOneRank) {
  for (const int micro_batch : {1, 4, 8}) {
    ExpectBitsOfOneRank({.tensor = 4, .stage = 2, .micro_batch = micro_batch}, Models()[0]);
    ExpectBitsOfOneRank({.tensor = 2, .stage = 3, .micro_batch = micro_batch}, Models()[2],
                        /*apart=*/true);
  }
  ExpectBitsOfOneRank({.tensor = 4, .stage = 1}, Models()[3], /*apart=*/true);
  ExpectBitsOfOneRank({.tensor = 2, .stage = 1, .type = "bf16"}, Models()[1], /*apart=*/true);
}

// Three shards, one for each rank.
TEST(TensorTest, ShardsMayBeNoPowerOfTwo) {
  models::DecoderConfig config = ShardedGpt2(/*vocabulary=*/18);
  config.width = 12;
  config.heads = config.key_value_heads = 6;
  config.head_width = 2;
  config.inner = 24;
  const Ran three = TrainAll({.tensor = 3, .shards = 3, .stage = 2}, DecoderModel(config));
  const Ran one = TrainAll({.shards = 1}, DecoderModel(config));
  ExpectModelledMemory(three);
  ExpectModelledTraffic(three, /*are_whole=*/false);
  ASSERT_OK(one.status);
  ASSERT_EQ(three.losses.size(), one.losses.size());
  for (size_t step = 0; step < one.losses.size(); ++step) {
    EXPECT_NEAR(three.losses[step], one.losses[step], 1e-4 * one.losses[step]) << step;
  }
}

TEST(TensorTest, ShardsChangeLossesByRoundingAlone) {
  bool differ = false;
  for (int number = 0; number < 4; ++number) {
    const ModelFactory model = Models()[static_cast<size_t>(number)];
    const Ran one = TrainAll({.shards = 1}, model);
    const Ran four = TrainAll({.tensor = 2}, model);
    ASSERT_OK(one.status);
    ASSERT_EQ(four.losses.size(), one.losses.size());
    differ |= four.norms != one.norms;
    for (size_t step = 0; step < one.losses.size(); ++step) {
      EXPECT_NEAR(four.losses[step], one.losses[step], 1e-4 * one.losses[step]) << step;
      EXPECT_NEAR(four.norms[step], one.norms[step], 1e-3 * one.norms[step]) << step;
    }
  }
  EXPECT_TRUE(differ);
}

TEST(TensorTest, WhatIsSentIsByFormula) {
  size_t turn = 0;
  for (const ModelFactory& model : ModelsOfStages()) {
    for (const Case& of : {Case{.tensor = 2, .data = 2, .stage = 2}, Case{.tensor = 4},
                           Case{.tensor = 2, .stage = 3, .type = "bf16", .recompute = true},
                           Case{.tensor = 2, .pipeline = 2, .schedule = "zb-h1", .stage = 1},
                           Case{.tensor = 2, .pieces = 3, .overlap = true},
                           Case{.tensor = 4, .type = "bf16", .sums = "model"}}) {
      // Of each model a third of them.
      if (turn++ % 3 != 0) continue;
      SCOPED_TRACE(Config(of));
      const Ran ran = TrainAll(of, model, /*apart=*/false, /*size=*/16);
      ExpectModelledMemory(ran);
      ExpectModelledTraffic(ran, /*are_whole=*/true);
      ASSERT_FALSE(ran.outcome.ranks.empty());
      for (const RankSummary& rank : ran.outcome.ranks) EXPECT_GT(rank.sent[kTensor], 0);
    }
  }
}

TEST(TensorTest, AStepThatOverflowsIsSkippedByAllRanks) {
  for (const ModelFactory& model : ModelsOfStages()) {
    const Ran whole = TrainAll({.type = "fp16"}, model);
    EXPECT_THAT(whole.norms, ::testing::Contains(::testing::Gt(1e30)));
    EXPECT_THAT(whole.norms, ::testing::Contains(::testing::Lt(1e3)));
    for (const Case& of : {Case{.tensor = 2, .stage = 2, .type = "fp16"},
                           Case{.tensor = 2, .pipeline = 2, .stage = 1, .type = "fp16"}}) {
      ExpectSame(TrainAll(of, model), whole);
    }
  }
}

// The norm, by which gradients are clipped, counts each parameter once, whoever has it.
TEST(TensorTest, ClippingIsAsOnOneRank) {
  const std::string clipping = R"(, "gradient_clipping": 0.2)";
  for (const ModelFactory& model : ModelsOfStages()) {
    const Ran whole = TrainAll({.more = clipping}, model);
    EXPECT_THAT(whole.norms, ::testing::Each(::testing::Gt(0.2)));
    for (const Case& of : {Case{.tensor = 2, .stage = 1, .more = clipping},
                           Case{.tensor = 2, .data = 1, .pipeline = 2, .more = clipping},
                           Case{.tensor = 4, .stage = 3, .more = clipping}}) {
      SCOPED_TRACE(Config(of));
      const Ran ran = TrainAll(of, model);
      ASSERT_OK(ran.status);
      ASSERT_EQ(ran.losses.size(), whole.losses.size());
      for (size_t step = 0; step < whole.losses.size(); ++step) {
        EXPECT_NEAR(ran.norms[step], whole.norms[step], 1e-6 * whole.norms[step]);
        EXPECT_NEAR(ran.losses[step], whole.losses[step], 1e-6 * whole.losses[step]);
      }
    }
  }
}

TEST(TensorTest, DelaysAndOverlapChangeNoBitAndNothingIsUnordered) {
  int turn = 0;
  for (const ModelFactory& model : {Models()[0], Models()[5]}) {
    for (const bool overlap : {false, true}) {
      const Case of = {.tensor = 2,
                       .data = turn == 1 ? 2 : 1,
                       .stage = turn % 4,
                       .recompute = turn % 2 == 1,
                       .pieces = overlap ? 3 : 1,
                       .overlap = overlap};
      SCOPED_TRACE(Config(of));
      const Ran whole = TrainAll(WholeOf(of), model);
      ExpectOrdered(Make(Cut(of), model, DataOf()), of.ranks(), 101 + static_cast<uint64_t>(turn),
                    whole);
      ++turn;
    }
  }
}

TEST(TensorSoakTest, EveryGridStageTypeAndRecomputationHasTheSameBits) {
  for (size_t number = 0; number < Models().size(); ++number) {
    const ModelFactory model = Models()[number];
    for (const char* const type : {"fp32", "bf16", "fp16"}) {
      for (const int data : {1, 2}) {
        const Ran whole = TrainAll({.data = data, .type = type}, model);
        for (const int tensor : {1, 2, 4}) {
          for (const int pipeline : {1, 2}) {
            for (int stage = 0; stage < 4; ++stage) {
              for (const bool recompute : {false, true}) {
                if (number == 3 && pipeline > 1) continue;
                const Case of = {.tensor = tensor,
                                 .data = data,
                                 .pipeline = pipeline,
                                 .schedule = pipeline > 1 && stage % 2 == 1 ? "zb-h1" : "",
                                 .stage = stage,
                                 .type = type,
                                 .recompute = recompute};
                SCOPED_TRACE(Config(of));
                ExpectSame(TrainAll(of, model), whole);
              }
            }
          }
        }
      }
    }
  }
}

// 3 steps an epoch: step 4 is inside the second.
TEST(TensorTest, GoesOnInsideAnEpochOnAnyGrid) {
  for (const size_t number : {0, 3, 4, 5}) {
    const ModelFactory model = Models()[number];
    const Ran whole = TrainAll({}, model);
    const std::string of_one = Folder("of_one"), folder = Folder("of_two");
    for (const auto& [of, to] : {std::pair(Case{.stage = 1}, of_one),
                                 std::pair(Case{.tensor = 2, .data = 1, .stage = 1}, folder)}) {
      Training begin = Make(Cut(of), model, DataOf());
      begin.job.steps = 4;
      begin.job.checkpoints.save = to;
      ASSERT_OK(TrainAll(begin, of.ranks()).status);
    }
    // A checkpoint has whole parameters: the same bytes, whoever saves it.
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
    for (const Case& of : {Case{}, Case{.tensor = 4, .stage = 3}, Case{.tensor = 2, .stage = 2},
                           Case{.tensor = 2, .pipeline = 2, .schedule = "zb-h1", .stage = 1}}) {
      if (number == 3 && of.pipeline > 1) continue;
      SCOPED_TRACE(Config(of));
      Training training = Make(Cut(of), model, DataOf());
      training.job.checkpoints.resume = folder;
      const Ran ran = TrainAll(training, of.ranks());
      ASSERT_OK(ran.status);
      EXPECT_EQ(ran.losses, rest);
      EXPECT_EQ(ran.held_out.back(), whole.held_out.back());
    }
    // Another number of shards is another training, unless one says that it may be; of codes it has
    // others.
    Training other = Make(Cut({.shards = 1}), model, DataOf());
    other.job.checkpoints.resume = folder;
    EXPECT_THAT(TrainAll(other, 1).status,
                StatusIs(kInvalid, HasSubstr(number == 5 ? "int8_blocks" : "tensor_shards")));
    if (number != 5) {
      other.job.checkpoints.may_differ = {"tensor_shards"};
      const Ran ran = TrainAll(other, 1);
      ASSERT_OK(ran.status);
      ASSERT_EQ(ran.losses.size(), rest.size());
      // Dropout's masks are those of shards.
      const double bound = number == 4 ? 0.05 : 1e-4;
      for (size_t step = 0; step < rest.size(); ++step) {
        EXPECT_NEAR(ran.losses[step], rest[step], bound * rest[step]);
      }
    }
    // A checkpoint is one of weights, too: of a new training, by any grid.
    std::vector<double> first;
    for (const Case& of : {Case{}, Case{.tensor = 4, .stage = 2}}) {
      Training training = Make(Cut(of), model, DataOf());
      training.job.checkpoints.weights = absl::StrCat(folder, "/step-00000004");
      const Ran from = TrainAll(training, of.ranks());
      ASSERT_OK(from.status);
      if (first.empty()) first = from.losses;
      EXPECT_EQ(from.losses, first);
      EXPECT_NE(from.losses, whole.losses);
    }
  }
}

// Of Hugging Face's files each rank takes its part; and steps can be made one by one.
TEST(TensorTest, WeightsOfFilesAreCutForRanks) {
  for (const models::DecoderConfig& config :
       {ShardedLlama(), ShardedGpt2(), ShardedGpt2(/*vocabulary=*/18)}) {
    const std::string folder = Folder("weights");
    {
      const auto context = device::Context::Create({}).value();
      const models::DecoderOptions options = {.dtype = precision::DType::kFloat32,
                                              .samples = 1,
                                              .positions = 8,
                                              .stage = models::StageUnits()};
      const auto model = models::Decoder::Create(config, options, *context).value();
      auto arrays =
          models::ParameterArrays::Create(model->spec(), {.dtype = options.dtype}, *context)
              .value();
      for (int p = 0; p < arrays.size(); ++p) {
        const absl::Span<float> values(static_cast<float*>(arrays.weights(p)),
                                       static_cast<size_t>(arrays.size_of(p)));
        model->Initialize(p, 77, values);
        for (size_t i = 0; i < values.size(); ++i) values[i] += 0.01f * static_cast<float>(i % 5);
      }
      ASSERT_OK(models::SaveWeights(folder, *model, arrays, *context));
    }
    std::vector<double> losses;
    for (const Case& of : {Case{}, Case{.tensor = 2, .stage = 3}, Case{.tensor = 4},
                           Case{.tensor = 2, .pipeline = 2, .stage = 1}}) {
      if (config.vocabulary == 18 && of.pipeline > 1) continue;
      SCOPED_TRACE(Config(of));
      History history;
      double before = 0;
      OnRanks(of.ranks(), [&](const collectives::LaunchInfo& launch_info, TrainerOptions options) {
        if (launch_info.rank == 0) options.observer = &history;
        auto made = Trainer::Create({.config = ParseConfig(Config(Cut(of)), of.ranks()).value()},
                                    DecoderModel(config), DataOf(), launch_info, options);
        ASSERT_OK(made);
        Trainer& trainer = **made;
        ASSERT_OK(trainer.WithModel([&](auto& model, auto& zero, auto& ranks) {
          return models::LoadWeights(folder, static_cast<models::Decoder&>(model), zero, ranks);
        }));
        const auto loss = trainer.Evaluate();
        ASSERT_OK(loss);
        if (launch_info.rank == 0) before = *loss;
        if (of.pipeline > 1) {
          ASSERT_OK(trainer.Fit());
          return;
        }
        while (*trainer.Batch()) {
          ASSERT_OK(trainer.Backward());
          ASSERT_OK(trainer.Step());
        }
        ASSERT_OK(trainer.Finish());
      });
      std::vector<double> found = {before};
      for (const StepMetrics& step : history.steps()) found.push_back(step.loss);
      EXPECT_EQ(found.size(), 7u);
      if (losses.empty()) losses = found;
      EXPECT_EQ(found, losses);
    }
    // They are not those of a new training.
    const Ran fresh = TrainAll({}, DecoderModel(config));
    ASSERT_OK(fresh.status);
    EXPECT_NE(fresh.losses[0], losses[1]);
  }
}

// Of the parts of all ranks, in one file; which others take their parts of.
TEST(TensorTest, AdaptersOfAllRanksAreSavedInOneFile) {
  for (const models::DecoderConfig& config : {ShardedLlama(), ShardedGpt2()}) {
    std::string first;
    std::vector<double> held_out;
    for (const Case& of : {Case{}, Case{.tensor = 2, .stage = 2}, Case{.tensor = 4, .stage = 3},
                           Case{.tensor = 2, .pipeline = 2, .stage = 1}}) {
      SCOPED_TRACE(Config(of));
      const std::string folder = Folder("adapter"), base = Folder("base");
      {
        const auto context = device::Context::Create({}).value();
        const models::DecoderOptions options = {
            .dtype = precision::DType::kFloat32, .positions = 8, .stage = models::StageUnits()};
        const auto model = models::Decoder::Create(config, options, *context).value();
        auto arrays =
            models::ParameterArrays::Create(model->spec(), {.dtype = options.dtype}, *context)
                .value();
        for (int p = 0; p < arrays.size(); ++p) {
          model->Initialize(
              p, 1,
              {static_cast<float*>(arrays.weights(p)), static_cast<size_t>(arrays.size_of(p))});
        }
        ASSERT_OK(models::SaveWeights(base, *model, arrays, *context));
      }
      OnRanks(of.ranks(), [&](const collectives::LaunchInfo& launch_info, TrainerOptions options) {
        auto made =
            Trainer::Create({.config = ParseConfig(Config(Cut(of)), of.ranks()).value()},
                            DecoderModel(config, AllAdapters()), DataOf(), launch_info, options);
        ASSERT_OK(made);
        ASSERT_OK((*made)->WithModel([&](auto& model, auto& zero, auto& ranks) {
          return models::LoadWeights(base, static_cast<models::Decoder&>(model), zero, ranks);
        }));
        ASSERT_OK((*made)->Fit());
        ASSERT_OK((*made)->WithModel([&](auto& model, auto& zero, auto& ranks) {
          return models::SaveAdapter(folder, static_cast<models::Decoder&>(model), zero, ranks);
        }));
      });
      const std::string bytes = BytesOf(folder + "/adapter_model.safetensors");
      EXPECT_FALSE(bytes.empty());
      if (first.empty()) first = bytes;
      EXPECT_EQ(bytes, first);
      OnRanks(of.ranks(), [&](const collectives::LaunchInfo& launch_info, TrainerOptions options) {
        auto made =
            Trainer::Create({.config = ParseConfig(Config(Cut(of)), of.ranks()).value()},
                            DecoderModel(config, AllAdapters()), DataOf(), launch_info, options);
        ASSERT_OK(made);
        ASSERT_OK((*made)->WithModel([&](auto& model, auto& zero, auto& ranks) {
          return models::LoadWeights(base, static_cast<models::Decoder&>(model), zero, ranks,
                                     device::SystemCalls::Real(), {.folder = folder});
        }));
        const auto loss = (*made)->Evaluate();
        ASSERT_OK(loss);
        if (launch_info.rank == 0) held_out.push_back(*loss);
        ASSERT_OK((*made)->Finish());
      });
      EXPECT_EQ(held_out.back(), held_out.front());
    }
  }
}

// Vectors of 4 numbers in 3 classes.
class Points final : public data::Samples {
 public:
  int64_t size() const override { return 16; }
  int64_t input_bytes() const override { return 4 * sizeof(float); }
  int64_t target_bytes() const override { return sizeof(int32_t); }
  absl::Status Read(int64_t /*sample*/, void* input, void* target) const override {
    std::memset(input, 0, 4 * sizeof(float));
    std::memset(target, 0, sizeof(int32_t));
    return absl::OkStatus();
  }
};

TEST(TensorTest, WhatIsNotSharedIsRefusedByName) {
  const auto refused = [](const Case& of, const ModelFactory& model, TrainingData data,
                          const auto& text) {
    SCOPED_TRACE(Config(of));
    EXPECT_THAT(TrainAll(Make(Cut(of), model, std::move(data)), of.ranks()).status,
                StatusIs(kInvalid, text));
  };
  const ModelFactory classifier = [](const ModelPlace& place) {
    return examples::Mlp::Create(place, {4, 9, 3}, examples::Loss::kCrossEntropy);
  };
  const TrainingData points = {.training = std::make_shared<Points>(), .epochs = 1};
  refused({.tensor = 2}, classifier, points,
          HasSubstr("does not say how it is cut into 4 shards, by Model::cut"));
  refused({}, classifier, points, HasSubstr("by Model::cut"));
  refused({.tensor = 2, .pipeline = 2}, classifier, points, HasSubstr("by Model::cut"));
  models::DecoderConfig config = ShardedLlama();
  config.key_value_heads = 2;
  refused({.tensor = 4}, DecoderModel(config), DataOf(), HasSubstr("2 heads of keys and values"));
  refused(
      {.tensor = 2, .pipeline = 2}, DecoderModel(ShardedGpt2(/*vocabulary=*/18)), DataOf(),
      AllOf(HasSubstr("share \"transformer.wte.weight\""), HasSubstr("4 shards do not divide")));
  // Made for other shards than the place says.
  const ModelFactory other = [](const ModelPlace& place) {
    ModelPlace alone = place;
    alone.tensor = {};
    return DecoderModel(ShardedLlama())(alone);
  };
  refused({.tensor = 2}, other, DataOf(),
          AllOf(HasSubstr("of 1 tensor shards"), HasSubstr("ModelPlace::tensor has 4")));
  // And one whose stage is another rank's.
  const ModelFactory of_first = [](const ModelPlace& place) {
    ModelPlace first = place;
    if (!place.stage->chunks.empty()) first.tensor = {.shards = {2, 1, 0}};
    return DecoderModel(ShardedLlama())(first);
  };
  refused({.tensor = 2, .pipeline = 2}, of_first, DataOf(), HasSubstr("the factory has made"));
  Training training = Make(Cut({.tensor = 2}), DecoderModel(ShardedLlama()), DataOf());
  training.job.config.sequence_parallel = true;
  EXPECT_THAT(TrainAll(training, 2).status,
              StatusIs(kInvalid, HasSubstr("brigade.sequence_parallel")));
}

// With a vocabulary that the shards divide, and with one that they do not: then each rank has the
// head whole, which the model computes once.
TEST(TensorTest, AProfileHasTheOperationsOfAllRanks) {
  for (const int64_t vocabulary : {16, 17}) {
    Profiles profiles[2];
    for (const int tensor : {1, 2}) {
      const Case of = {
          .tensor = tensor,
          .shards = 2,
          .recompute = true,
          .more = R"(, "flops_profiler": {"enabled": true, "profile_step": 2, "module_depth": 1})"};
      const Training training = Make(Cut(of), DecoderModel(ShardedGpt2(vocabulary)), DataOf());
      Profiles& seen = profiles[tensor - 1];
      ASSERT_OK(TrainOnThreads(training.job, *training.task, tensor, {.observer = &seen}));
      ASSERT_EQ(seen.events.size(), 1u);
    }
    const profile::StepProfile &one = profiles[0].events[0].profile,
                               &two = profiles[1].events[0].profile;
    EXPECT_EQ(two.training.parameters, one.training.parameters);
    EXPECT_DOUBLE_EQ(two.training.flops_per_token, one.training.flops_per_token);
    EXPECT_DOUBLE_EQ(two.training.causal_flops_per_token, one.training.causal_flops_per_token);
    // And what the ranks compute, all together.
    ASSERT_EQ(two.units.size(), one.units.size());
    for (size_t unit = 1; unit < 4; ++unit) {
      const bool is_whole = unit == 3 && vocabulary % 2 != 0;
      for (size_t pass = 0; pass < 3; ++pass) {
        const profile::Flops &shared = two.units[unit].flops[pass],
                             &whole = one.units[unit].flops[pass];
        EXPECT_DOUBLE_EQ(shared.products, (is_whole ? 2 : 1) * whole.products) << unit;
        EXPECT_DOUBLE_EQ(shared.attention, whole.attention) << unit;
        // Which each rank makes whole.
        EXPECT_DOUBLE_EQ(shared.norms, 2 * whole.norms) << unit;
      }
    }
  }
}

// Codes of a matrix in two parts are as many bytes as those of the whole, but others.
TEST(TensorTest, CodesOfOtherShardsAreRefused) {
  models::DecoderConfig config = ShardedGpt2();
  config.layers = 1;
  config.width = 128;
  config.head_width = 32;
  config.inner = 256;
  const ModelFactory model = DecoderModel(config, AllAdapters(models::BaseFormat::kInt8Blocks));
  for (const int shards : {1, 2}) {
    const std::string folder = Folder("codes");
    Training begin = Make(Cut({.shards = shards}), model, DataOf());
    begin.job.steps = 1;
    begin.job.checkpoints.save = folder;
    ASSERT_OK(TrainAll(begin, 1).status);
    for (const int others : {2, 4}) {
      if (others == shards) continue;
      SCOPED_TRACE(absl::StrCat(shards, " shards, then ", others));
      const Case of = Cut({.tensor = 2, .shards = others});
      Training resumed = Make(of, model, DataOf());
      resumed.job.checkpoints.resume = folder;
      resumed.job.checkpoints.may_differ = {"tensor_shards"};
      EXPECT_THAT(TrainAll(resumed, 2).status, StatusIs(kInvalid, HasSubstr("int8_blocks")));
      Training from = Make(of, model, DataOf());
      from.job.checkpoints.weights = absl::StrCat(folder, "/step-00000001");
      EXPECT_THAT(TrainAll(from, 2).status, StatusIs(kInvalid, HasSubstr("int8_blocks")));
    }
  }
}

}  // namespace
}  // namespace brigade::train
