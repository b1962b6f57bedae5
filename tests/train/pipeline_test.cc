// Trainings of a models::Model whose units are the stages of a pipeline: the bits of a training
// without one.

#include <atomic>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "brigade/collectives/engines/threads/thread_group.h"
#include "brigade/data/dataset.h"
#include "brigade/data/samples.h"
#include "brigade/device/race_checker/race_checker.h"
#include "brigade/device/threads/mutex.h"
#include "brigade/examples/mlp.h"
#include "brigade/models/adapter_files.h"
#include "brigade/models/decoder.h"
#include "brigade/nn/random.h"
#include "brigade/parallel/grid.h"
#include "brigade/tests/collectives/ranks.h"
#include "brigade/tests/testing/status_matchers.h"
#include "brigade/train/decoder_model.h"
#include "brigade/train/observers/history.h"
#include "brigade/train/rank_trainer.h"
#include "brigade/train/times/recorder.h"
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
constexpr const char* kSchedules[] = {"gpipe", "1f1b", "interleaved:2", "zb-h1", "zb-v"};

// Texts of 8 tokens of 16, of which the last sample % 7 + 1 count; apart they are two documents
// each.
class Tokens final : public data::Samples {
 public:
  explicit Tokens(int64_t size, bool apart = false) : size_(size), apart_(apart) {}

  int64_t size() const override { return size_; }
  int64_t input_bytes() const override { return (apart_ ? 3 : 1) * target_bytes(); }
  int64_t target_bytes() const override { return 8 * sizeof(int32_t); }
  int64_t positions() const override { return 8; }
  int64_t CountedLosses(int64_t sample) const override { return sample % 7 + 1; }
  absl::Status Read(int64_t sample, void* input, void* target) const override {
    int32_t ids[9], labels[8];
    nn::Random random(3, static_cast<uint64_t>(sample));
    ids[0] = static_cast<int32_t>(random.Next() % 16);
    for (int i = 1; i < 9; ++i) ids[i] = (5 * ids[i - 1] + 3) % 16;
    for (int i = 0; i < 8; ++i) labels[i] = 8 - i <= sample % 7 + 1 ? ids[i + 1] : data::kIgnored;
    std::memcpy(input, ids, sizeof(labels));
    std::memcpy(target, labels, sizeof(labels));
    if (!apart_) return absl::OkStatus();
    // Positions and ends of documents of 3 and 5 tokens.
    const int32_t documents[] = {0, 1, 2, 0, 1, 2, 3, 4, 3, 3, 3, 8, 8, 8, 8, 8};
    std::memcpy(static_cast<char*>(input) + sizeof(labels), documents, sizeof(documents));
    return absl::OkStatus();
  }

 private:
  const int64_t size_;
  const bool apart_;
};

models::DecoderConfig TinyLlama(bool tied = false) {
  return {.vocabulary = 16,
          .layers = 6,
          .width = 16,
          .heads = 2,
          .key_value_heads = 1,
          .head_width = 8,
          .inner = 24,
          .positions = 8,
          .tied = tied};
}
models::DecoderConfig TinyGpt2() {
  return {.architecture = models::Architecture::kGpt2,
          .vocabulary = 16,
          .layers = 6,
          .width = 16,
          .heads = 2,
          .key_value_heads = 2,
          .head_width = 8,
          .inner = 32,
          // More than a sample has.
          .positions = 12,
          .tied = true};
}
DecoderModelOptions Adapters() {
  DecoderModelOptions options;
  options.lora = models::LoraOptions{
      .rank = 2, .alpha = 4, .dropout = 0.1, .pattern = ".*(attn|proj|fc|wte|wpe|embed_tokens).*"};
  return options;
}

// A batch of 8 in micro-batches of `micro_batch`, of ranks that share the model and others.
struct Case {
  int pipeline = 1;
  int data = 1;
  std::string schedule = {};
  int stage = 0;
  std::string type = "fp32";
  bool recompute = false;
  std::string partition = {};
  std::string more = {};
  int micro_batch = 1;

  int ranks() const { return pipeline * data; }
};

std::string Config(const Case& of) {
  std::vector<std::string> brigade;
  if (!of.schedule.empty()) brigade.push_back(absl::StrCat("\"schedule\": \"", of.schedule, "\""));
  if (of.recompute) brigade.push_back("\"recompute\": \"block\"");
  if (!of.partition.empty()) {
    brigade.push_back(absl::StrCat("\"partition\": \"", of.partition, "\""));
  }
  std::string more = of.more;
  if (of.type != "fp32") {
    absl::StrAppend(&more, ", \"", of.type, "\": {\"enabled\": true",
                    of.type == "fp16" ? R"(, "initial_scale_power": 18, "loss_scale_window": 4,
                        "hysteresis": 1)"
                                      : "",
                    "}");
  }
  if (of.pipeline > 1) absl::StrAppend(&more, ", \"pipeline\": {\"stages\": ", of.pipeline, "}");
  if (!brigade.empty()) {
    absl::StrAppend(&more, ", \"brigade\": {", absl::StrJoin(brigade, ", "), "}");
  }
  return absl::StrFormat(R"({"train_batch_size": 8, "train_micro_batch_size_per_gpu": %d,
      "optimizer": {"type": "AdamW", "params": {"lr": 0.01, "weight_decay": 0.1}},
      "zero_optimization": {"stage": %d}%s})",
                         of.micro_batch, of.stage, more);
}

struct Ran {
  absl::Status status;
  std::vector<double> losses, norms, held_out;
  Outcome outcome;
};

TrainingData DataOf(bool apart = false) {
  // 19 samples: each epoch ends with a step of 3, in which some micro-batches have none.
  return {.training = std::make_shared<Tokens>(19, apart),
          .held_out = std::make_shared<Tokens>(9, apart),
          .epochs = 2};
}

struct Training {
  Job job;
  std::unique_ptr<ModelTask> task;
};

Training Make(const Case& of, ModelFactory model, TrainingData data) {
  Training made;
  made.job.config = ParseConfig(Config(of), of.ranks()).value();
  made.job.steps = data.Steps(8).value();
  made.task = ModelTask::Create(std::move(model), std::move(data)).value();
  return made;
}

Ran TrainAll(const Training& training, int ranks) {
  History history;
  Ran ran;
  const auto outcome = TrainOnThreads(training.job, *training.task, ranks, {.observer = &history});
  ran.status = outcome.status();
  if (outcome.ok()) ran.outcome = *outcome;
  for (const StepMetrics& step : history.steps()) {
    ran.losses.push_back(step.loss);
    ran.norms.push_back(step.grad_norm);
  }
  for (const Evaluation& evaluation : history.evaluations()) {
    ran.held_out.push_back(evaluation.held_out_loss);
  }
  return ran;
}

void ExpectSame(const Ran& ran, const Ran& whole) {
  ASSERT_OK(ran.status);
  ASSERT_OK(whole.status);
  ASSERT_FALSE(ran.losses.empty());
  EXPECT_EQ(ran.losses, whole.losses);
  EXPECT_EQ(ran.held_out, whole.held_out);
  ASSERT_EQ(ran.norms.size(), whole.norms.size());
  for (size_t step = 0; step < ran.norms.size(); ++step) {
    // Summed in another order, in double; both infinite where a step is skipped.
    if (ran.norms[step] == whole.norms[step]) continue;
    EXPECT_NEAR(ran.norms[step], whole.norms[step], 1e-12 * whole.norms[step]);
  }
  for (const RankSummary& rank : ran.outcome.ranks) {
    for (int p = 0; p < device::kPurposes; ++p) {
      EXPECT_EQ(rank.memory[p], rank.memory_model[p]) << p;
      EXPECT_EQ(rank.host_memory[p], rank.host_memory_model[p]) << p << " of the host";
    }
    for (size_t g = 0; g < rank.sent.size(); ++g) {
      EXPECT_EQ(rank.sent[g], rank.steps * rank.sent_of_step[g]) << g;
    }
  }
}

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
        ExpectBitsOfWhole({.pipeline = pipeline,
                           .data = data,
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
  ExpectBitsOfWhole({.pipeline = 2, .data = 2, .schedule = "zb-v", .stage = 3},
                    DecoderModel(TinyLlama(/*tied=*/true)));
  ExpectBitsOfWhole({.pipeline = 2, .data = 2, .stage = 2, .type = "bf16", .recompute = true},
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
  const std::atomic<bool> stop = false;
  int turn = 0;
  for (const ModelFactory& model :
       {DecoderModel(TinyLlama(/*tied=*/true)), DecoderModel(TinyGpt2(), Adapters())}) {
    const Ran whole = TrainAll(Make({}, model, DataOf()), 1);
    for (const char* const schedule : kSchedules) {
      const Case of = {
          .pipeline = 2, .schedule = schedule, .stage = turn % 4, .recompute = turn % 2 == 0};
      SCOPED_TRACE(Config(of));
      const Training training = Make(of, model, DataOf());
      History history;
      Recorder recorder(nullptr);
      device::RaceChecker checker;
      const collectives::RanksOptions options = {
          .size = 2,
          .random_delay = {.seed = 100 + static_cast<uint64_t>(++turn), .max_delay_us = 50},
          .race_checker = &checker,
          .tracer = &recorder.tracer()};
      collectives::OnThreads(options, [&](collectives::Rank& self) {
        const auto grid = parallel::Grid::Create(training.job.config.grid, *self.communicator);
        ASSERT_OK(grid);
        const auto ranks = RankTrainer::Create(training.job, *training.task, **grid, *self.context,
                                               *self.stream, recorder);
        ASSERT_OK(ranks);
        ASSERT_OK((*ranks)->Train(self.rank == 0 ? &history : nullptr, stop));
        self.AwaitOthers();
      });
      for (const device::Race& race : checker.reports()) ADD_FAILURE() << race.message;
      ASSERT_EQ(history.steps().size(), whole.losses.size());
      for (size_t step = 0; step < whole.losses.size(); ++step) {
        EXPECT_EQ(history.steps()[step].loss, whole.losses[step]);
      }
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
                const Case of = {.pipeline = pipeline,
                                 .data = data,
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

std::string Folder(const std::string& name) {
  const std::string folder = absl::StrCat(::testing::TempDir(), "/", name);
  std::filesystem::remove_all(folder);
  return folder;
}

std::string BytesOf(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream bytes;
  bytes << file.rdbuf();
  return bytes.str();
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

// All ranks of a group call it.
void OnRanks(
    int ranks,
    const std::function<void(const collectives::LaunchInfo&, const TrainerOptions&)>& call) {
  const auto group = collectives::ThreadGroup::Create({.size = ranks}).value();
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      collectives::LaunchInfo launch_info;
      launch_info.rank = rank;
      launch_info.size = ranks;
      call(launch_info, {.group = group});
    });
  }
  for (std::thread& thread : threads) thread.join();
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
  OnRanks(2, [&](const collectives::LaunchInfo& launch_info, TrainerOptions options) {
    options.observer = &history;
    auto made = Trainer::Create({.config = ParseConfig(Config({.pipeline = 2}), 2).value()},
                                DecoderModel(TinyLlama()), DataOf(), launch_info, options);
    ASSERT_OK(made);
    EXPECT_THAT((*made)->Batch(), StatusIs(absl::StatusCode::kFailedPrecondition,
                                           HasSubstr("a pass alone, with a pipeline")));
  });
  // Nothing has begun: not the evaluation before the first step.
  EXPECT_TRUE(history.evaluations().empty());
}

// Images of 4 numbers in 3 classes.
class Points final : public data::Samples {
 public:
  int64_t size() const override { return 19; }
  int64_t input_bytes() const override { return 4 * sizeof(float); }
  int64_t target_bytes() const override { return sizeof(int32_t); }
  absl::Status Read(int64_t sample, void* input, void* target) const override {
    nn::Random random(7, static_cast<uint64_t>(sample));
    float image[4];
    for (float& value : image) value = static_cast<float>(random.Uniform());
    const int32_t label = image[0] > image[1] ? 0 : image[2] > image[3] ? 1 : 2;
    std::memcpy(input, image, sizeof(image));
    std::memcpy(target, &label, sizeof(label));
    return absl::OkStatus();
  }
};

ModelFactory Classifier() {
  return [](const ModelPlace& place) {
    // What crosses is of several widths.
    return examples::Mlp::Create(place, {4, 9, 5, 7, 3}, examples::Loss::kCrossEntropy);
  };
}

TrainingData Images() {
  return {
      .training = std::make_shared<Points>(), .held_out = std::make_shared<Points>(), .epochs = 2};
}

TEST(PipelineTest, AModelOfOnesOwnIsCutBetweenItsUnits) {
  for (const Case& of : {Case{.pipeline = 2, .schedule = "gpipe"},
                         Case{.pipeline = 2, .schedule = "interleaved:2", .stage = 3},
                         Case{.pipeline = 4, .stage = 1, .partition = "flops"},
                         Case{.pipeline = 2, .data = 2, .stage = 2}}) {
    SCOPED_TRACE(Config(of));
    ExpectSame(TrainAll(Make(of, Classifier(), Images()), of.ranks()),
               TrainAll(Make({.data = of.data}, Classifier(), Images()), of.data));
  }
}

// What only tells what it would be has no memory.
TEST(PipelineTest, AModelOfOnesOwnWithoutUnitsAllocatesNothing) {
  const auto context = device::Context::Create({}).value();
  const TrainConfig config = ParseConfig(Config({.pipeline = 2}), 2).value();
  const int64_t before = context->memory_stats().current_bytes();
  const auto model = Classifier()({.config = config,
                                   .context = *context,
                                   .samples = 4,
                                   .input_bytes = 4 * sizeof(float),
                                   .stage = models::StageUnits()});
  ASSERT_OK(model);
  EXPECT_EQ(context->memory_stats().current_bytes(), before);
  EXPECT_EQ((*model)->bytes().activations + (*model)->bytes().scratch, 0);
  EXPECT_EQ((*model)->spec().size(), 4u);
}

TEST(PipelineTest, RefusesAModelThatIsNotWhatTheStageNeeds) {
  const auto refused = [](const Case& of, const ModelFactory& model, const TrainingData& data,
                          const auto& text) {
    SCOPED_TRACE(Config(of));
    EXPECT_THAT(TrainAll(Make(of, model, data), of.ranks()).status, StatusIs(kInvalid, text));
  };
  // Of micro-batches in flight one is kept; and nothing between halves.
  const auto with = [](const ModelFactory& model, int slots, int deferred) -> ModelFactory {
    return [=](const ModelPlace& place) {
      ModelPlace few = place;
      if (few.stage.has_value() && few.stage->slots > 0) few.stage->slots = slots;
      if (few.stage.has_value()) few.stage->deferred = deferred;
      return model(few);
    };
  };
  refused({.pipeline = 2, .schedule = "gpipe"}, with(Classifier(), 1, 0), Images(),
          AllOf(HasSubstr("keeps 1 passes"), HasSubstr("\"gpipe\" needs 8 and 0"),
                HasSubstr("Model::slots")));
  refused({.pipeline = 2, .schedule = "zb-h1"}, with(DecoderModel(TinyLlama()), 8, 0), DataOf(),
          AllOf(HasSubstr("0 halves"), HasSubstr("\"zb-h1\" needs"), HasSubstr("Model::deferred")));
  // The units of the stage alone, as if they were a model; and another model.
  const auto of_stage = [](std::vector<int64_t> widths) -> ModelFactory {
    return [=](const ModelPlace& place) {
      const bool has_units = place.stage.has_value() && !place.stage->chunks.empty();
      return has_units ? examples::Mlp::Create(place, widths, examples::Loss::kCrossEntropy)
                       : Classifier()(place);
    };
  };
  refused({.pipeline = 2}, of_stage({4, 9, 5}), Images(), HasSubstr("it has 2 units, not 4"));
  refused({.pipeline = 2}, of_stage({4, 9, 6, 7, 3}), Images(),
          HasSubstr("54 elements, not 45, in the parameter \"layers.1.weight\""));
}

// An Mlp that is on one rank as a whole, or has `alive` as long as it is there.
class WholeModel final : public models::Model {
 public:
  explicit WholeModel(std::unique_ptr<models::Model> model,
                      std::shared_ptr<const int> alive = nullptr)
      : Model(model->spec()), model_(std::move(model)), alive_(std::move(alive)) {}

  std::optional<models::Boundary> BoundaryOf(const models::Batch& batch) const override {
    return alive_ == nullptr ? std::nullopt : model_->BoundaryOf(batch);
  }
  int slots() const override { return model_->slots(); }
  int64_t LossesOf(const models::Batch& batch) const override { return model_->LossesOf(batch); }
  void Initialize(int parameter, uint64_t seed, absl::Span<float> values) const override {
    model_->Initialize(parameter, seed, values);
  }
  absl::Status ForwardUnit(int unit, const models::Batch& batch, void* losses,
                           models::UnitParameters& parameters, device::Stream& stream) override {
    return model_->ForwardUnit(unit, batch, losses, parameters, stream);
  }
  absl::Status BackwardUnit(int unit, const models::Batch& batch, const float* seed,
                            models::UnitParameters& parameters, device::Stream& stream) override {
    return model_->BackwardUnit(unit, batch, seed, parameters, stream);
  }

 private:
  const std::unique_ptr<models::Model> model_;
  const std::shared_ptr<const int> alive_;
};

// A model that has all its memory, whatever its place is, would not be there twice.
TEST(PipelineTest, ARankHasOneModelAtATime) {
  device::Mutex mutex;
  std::map<const device::Context*, std::weak_ptr<const int>> of_rank;
  int second = 0;
  const ModelFactory model =
      [&](const ModelPlace& place) -> absl::StatusOr<std::unique_ptr<models::Model>> {
    auto alive = std::make_shared<const int>(0);
    {
      device::MutexLock lock(mutex);
      const auto [one, is_first] = of_rank.try_emplace(&place.context, alive);
      if (!is_first) {
        ++second;
        EXPECT_TRUE(one->second.expired());
      }
    }
    auto made = Classifier()(place);
    if (!made.ok()) return made.status();
    return std::make_unique<WholeModel>(*std::move(made), std::move(alive));
  };
  ASSERT_OK(TrainAll(Make({.pipeline = 2}, model, Images()), 2).status);
  EXPECT_EQ(second, 2);
}

TEST(PipelineTest, RefusesWhatAModelDoesNotDoAllAtOnce) {
  const auto refused = [&](const std::string& config, int ranks, const ModelFactory& model,
                           const TrainingData& data, const auto& text) {
    Training training = Make({}, model, data);
    training.job.config = ParseConfig(config, ranks).value();
    EXPECT_THAT(TrainAll(training, ranks).status, StatusIs(kInvalid, text));
  };
  const ModelFactory whole =
      [](const ModelPlace& place) -> absl::StatusOr<std::unique_ptr<models::Model>> {
    auto model = Classifier()(place);
    if (!model.ok()) return model.status();
    return std::make_unique<WholeModel>(*std::move(model));
  };
  refused(Config({.pipeline = 2}), 2, whole, Images(), HasSubstr("by Model::BoundaryOf"));
  refused(
      Config({.pipeline = 2, .schedule = "zb-h1", .partition = "time"}), 2, Classifier(), Images(),
      AllOf(HasSubstr("zb-h1"), HasSubstr("no halves"), HasSubstr("brigade.partition \"time\"")));
  refused(Config({.pipeline = 4, .schedule = "interleaved:2"}), 4, Classifier(), Images(),
          HasSubstr("into 8 parts, but its units are only 4"));
  refused(Config({.pipeline = 2, .partition = "0,3,6"}), 2, DecoderModel(TinyLlama()), DataOf(),
          HasSubstr("brigade.partition"));
}

// The profile of each stage has its own units.
class Profiles final : public Observer {
 public:
  absl::Status OnStep(const StepMetrics& /*step*/) override { return absl::OkStatus(); }
  absl::Status OnEvaluation(const Evaluation& /*evaluation*/) override { return absl::OkStatus(); }
  absl::Status OnProfile(const ProfileEvent& event) override {
    events.push_back(event);
    return absl::OkStatus();
  }
  std::vector<ProfileEvent> events;
};

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
