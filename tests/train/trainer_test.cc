// Trainings of two models by train/: what a step weighs, in any stage and on any number of ranks,
// and where a training goes on.

#include "brigade/train/trainer.h"

#include <array>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "brigade/data/dataset.h"
#include "brigade/data/samples.h"
#include "brigade/device/status_macros.h"
#include "brigade/examples/mlp.h"
#include "brigade/models/decoder.h"
#include "brigade/nn/random.h"
#include "brigade/tests/testing/status_matchers.h"
#include "brigade/tests/train/on_ranks.h"
#include "brigade/tests/train/tokens.h"
#include "brigade/tests/train/wrapped_model.h"
#include "brigade/train/observers/history.h"
#include "brigade/train/training.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::train {
namespace {

using ::brigade::testing::StatusIs;
using examples::Loss;
using examples::Mlp;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr absl::StatusCode kInvalid = absl::StatusCode::kInvalidArgument;

// Two inputs, and a line of them as target. One may be bad.
class Points final : public data::Samples {
 public:
  explicit Points(int64_t size, int64_t bad = -1) : size_(size), bad_(bad) {}

  static std::pair<std::vector<float>, float> At(int64_t sample) {
    nn::Random random(7, static_cast<uint64_t>(sample));
    const float a = static_cast<float>(2 * random.Uniform() - 1);
    const float b = static_cast<float>(2 * random.Uniform() - 1);
    return {{a, b}, 3 * a - b + 0.5f};
  }
  int64_t size() const override { return size_; }
  int64_t input_bytes() const override { return 2 * sizeof(float); }
  int64_t target_bytes() const override { return sizeof(float); }
  absl::Status Read(int64_t sample, void* input, void* target) const override {
    if (sample == bad_) return absl::DataLossError(absl::StrCat("sample ", sample, " is bad"));
    const auto [x, y] = At(sample);
    std::memcpy(input, x.data(), 2 * sizeof(float));
    std::memcpy(target, &y, sizeof(float));
    return absl::OkStatus();
  }

 private:
  const int64_t size_, bad_;
};

ModelFactory OneLayer() {
  return [](const ModelPlace& place) { return Mlp::Create(place, {2, 1}, Loss::kSquaredError); };
}
ModelFactory TwoLayers() {
  return [](const ModelPlace& place) { return Mlp::Create(place, {2, 9, 1}, Loss::kSquaredError); };
}
ModelFactory TinyDecoder() {
  return [](const ModelPlace& place) -> absl::StatusOr<std::unique_ptr<models::Model>> {
    const models::DecoderConfig config = {.vocabulary = 16,
                                          .layers = 2,
                                          .width = 16,
                                          .heads = 2,
                                          .key_value_heads = 1,
                                          .head_width = 8,
                                          .inner = 24,
                                          .positions = 8};
    return models::Decoder::Create(
        config,
        {.dtype = place.config.zero.dtype,
         .samples = place.samples,
         .positions = place.positions,
         .recompute = place.config.recompute.kind != recompute::Policy::Kind::kNone},
        place.context);
  };
}

// An Mlp that does not tell its operations, perhaps with units and parameters of other names.
class SilentModel final : public WrappedModel {
 public:
  explicit SilentModel(std::unique_ptr<models::Model> model) : WrappedModel(std::move(model)) {}
  SilentModel(std::unique_ptr<models::Model> model, zero::ModelSpec spec)
      : WrappedModel(std::move(model), std::move(spec)), is_asked_(false) {}

  std::optional<models::UnitFlops> FlopsOf(int /*unit*/, const models::Batch&) const override {
    EXPECT_TRUE(is_asked_);
    return std::nullopt;
  }

 private:
  // For its operations.
  const bool is_asked_ = true;
};
ModelFactory Silent() {
  return [](const ModelPlace& place) -> absl::StatusOr<std::unique_ptr<models::Model>> {
    BRIGADE_ASSIGN_OR_RETURN(auto model, TwoLayers()(place));
    return std::make_unique<SilentModel>(std::move(model));
  };
}

std::string Config(int batch, int micro_batch, int stage, const std::string& more = "",
                   const std::string& zero = "") {
  return absl::StrFormat(R"({"train_batch_size": %d, "train_micro_batch_size_per_gpu": %d,
      "optimizer": {"type": "AdamW", "params": {"lr": 0.01, "weight_decay": 0.1}},
      "zero_optimization": {"stage": %d%s}%s})",
                         batch, micro_batch, stage, zero, more);
}

struct Ran {
  std::vector<StepMetrics> steps;
  std::vector<double> losses, norms, held_out;
  Outcome outcome;
};

struct Training {
  Job job;
  std::unique_ptr<ModelTask> task;
};

Training Make(const std::string& config, int ranks, ModelFactory model, TrainingData data,
              int64_t steps = 0) {
  Training made;
  made.job.config = ParseConfig(config, ranks).value();
  made.job.steps = steps;
  if (steps == 0) {
    made.job.steps = data.Steps(made.job.config.batch.train_batch_size).value();
  }
  made.task = ModelTask::Create(std::move(model), std::move(data)).value();
  return made;
}

Ran TrainAll(const Training& training, int ranks) {
  History history;
  Ran ran;
  const auto outcome = TrainOnThreads(training.job, *training.task, ranks, {.observer = &history});
  EXPECT_OK(outcome);
  if (outcome.ok()) ran.outcome = *outcome;
  ran.steps = history.steps();
  for (const StepMetrics& step : ran.steps) {
    ran.losses.push_back(step.loss);
    ran.norms.push_back(step.grad_norm);
  }
  for (const Evaluation& evaluation : history.evaluations()) {
    ran.held_out.push_back(evaluation.held_out_loss);
  }
  return ran;
}

void ExpectNear(const std::vector<double>& a, const std::vector<double>& b, double relative) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], relative * std::abs(b[i])) << i;
}

void ExpectModelled(const Ran& ran) {
  for (const RankSummary& rank : ran.outcome.ranks) {
    for (int p = 0; p < device::kPurposes; ++p) {
      EXPECT_EQ(rank.memory[p], rank.memory_model[p]) << p;
      EXPECT_EQ(rank.host_memory[p], rank.host_memory_model[p]) << p << " of the host";
    }
    EXPECT_EQ(rank.traffic.gradients, rank.steps * rank.traffic_of_step.gradients);
    EXPECT_EQ(rank.traffic.parameters, rank.steps * rank.traffic_of_step.parameters);
  }
}

// A line by stochastic gradient descent in double: the mean over a step's samples, whatever their
// number, ranks and micro-batches. With 10 samples and a batch of 4 each epoch ends with a step of
// 2, which on 4 ranks leaves some without a sample, and with 2 micro-batches one micro-batch too.
TEST(TrainerTest, AShortStepWeighsWhatItIs) {
  constexpr double kRate = 0.1;
  constexpr int64_t kSamples = 10, kEpochs = 4;
  const TrainingData data = {.training = std::make_shared<Points>(kSamples),
                             .held_out = std::make_shared<Points>(7),
                             .shuffle = false,
                             .epochs = kEpochs};
  const auto config = [&](int micro_batch) {
    return absl::StrFormat(R"({"train_batch_size": 4, "train_micro_batch_size_per_gpu": %d,
        "optimizer": {"type": "SGD", "params": {"lr": %g}}})",
                           micro_batch, kRate);
  };
  // The weights of the model's own beginning, which its first loss and the others follow from.
  float w[3] = {};
  {
    auto context = device::Context::Create({}).value();
    const TrainConfig parsed = ParseConfig(config(4), 1).value();
    const auto model = OneLayer()({.config = parsed, .context = *context, .samples = 4}).value();
    model->Initialize(0, Job().seed, absl::MakeSpan(w, 2));
    model->Initialize(1, Job().seed, absl::MakeSpan(w + 2, 1));
  }
  double a = w[0], b = w[1], c = w[2];
  const auto error = [&](int64_t sample) {
    const auto [x, y] = Points::At(sample);
    return std::pair(a * x[0] + b * x[1] + c - y, x);
  };
  const auto held_out = [&] {
    double sum = 0;
    for (int64_t i = 0; i < 7; ++i) sum += error(i).first * error(i).first;
    return sum / 7;
  };
  std::vector<double> losses, evaluations = {held_out()};
  for (int64_t epoch = 0; epoch < kEpochs; ++epoch) {
    for (int64_t first = 0; first < kSamples; first += 4) {
      const int64_t end = std::min(first + 4, kSamples);
      double loss = 0, da = 0, db = 0, dc = 0;
      for (int64_t i = first; i < end; ++i) {
        const auto [e, x] = error(i);
        loss += e * e;
        da += 2 * e * x[0];
        db += 2 * e * x[1];
        dc += 2 * e;
      }
      const auto n = static_cast<double>(end - first);
      losses.push_back(loss / n);
      a -= kRate * da / n;
      b -= kRate * db / n;
      c -= kRate * dc / n;
    }
  }
  evaluations.push_back(held_out());
  for (const auto& [ranks, micro_batch] :
       {std::pair(1, 4), {1, 2}, {1, 1}, {2, 2}, {2, 1}, {4, 1}}) {
    SCOPED_TRACE(absl::StrCat(ranks, " ranks, ", micro_batch));
    const Ran ran = TrainAll(Make(config(micro_batch), ranks, OneLayer(), data), ranks);
    ExpectNear(ran.losses, losses, 1e-5);
    ExpectNear(ran.held_out, evaluations, 1e-5);
    ExpectModelled(ran);
  }
}

// Of tokens: samples have 1 to 7 that count, so a mean of means would be another number.
TEST(TrainerTest, MeansAreOverTokensOnAnyRanks) {
  const TrainingData data = {.training = std::make_shared<Tokens>(22),
                             .held_out = std::make_shared<Tokens>(9),
                             .epochs = 3};
  const Ran alone = TrainAll(Make(Config(8, 8, 0), 1, TinyDecoder(), data), 1);
  ASSERT_EQ(alone.losses.size(), 9u);
  EXPECT_NEAR(alone.held_out[0], std::log(16), 0.2);
  EXPECT_LT(alone.held_out[1], 0.8 * alone.held_out[0]);
  for (const auto& [ranks, micro_batch] : {std::pair(1, 1), {2, 4}, {2, 1}, {4, 2}, {8, 1}}) {
    SCOPED_TRACE(absl::StrCat(ranks, " ranks, ", micro_batch));
    const Ran ran = TrainAll(Make(Config(8, micro_batch, 1), ranks, TinyDecoder(), data), ranks);
    ExpectNear(ran.losses, alone.losses, 2e-4);
    ExpectNear(ran.held_out, alone.held_out, 2e-4);
  }
}

// 20 samples in batches of 8: two whole ones, and a short one. By either way to start a training.
TEST(TrainerTest, TheConfigLeavesAShortStepOut) {
  const TrainingData data = {.training = std::make_shared<Points>(20), .epochs = 1};
  const auto created = [&](const std::string& more) -> int64_t {
    Job job = {.config = ParseConfig(Config(8, 4, 0, more), 1).value()};
    const auto trainer = Trainer::Create(job, TwoLayers(), data, {});
    EXPECT_OK(trainer);
    EXPECT_OK((*trainer)->Fit());
    return (*trainer)->step();
  };
  EXPECT_EQ(created(""), 3);
  EXPECT_EQ(created(R"(, "dataloader_drop_last": false)"), 3);
  constexpr char kDrops[] = R"(, "dataloader_drop_last": true)";
  EXPECT_EQ(created(kDrops), 2);
  // A task is made without the job: it hears of it in a training.
  const Training three = Make(Config(8, 4, 0, kDrops), 1, TwoLayers(), data, 3);
  EXPECT_THAT(TrainOnThreads(three.job, *three.task, 1, {}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("3 steps, but 1 epochs of the data have 2")));
  const TrainingData twice = {.training = data.training, .shuffle = false, .epochs = 2};
  const Training whole = Make(Config(8, 4, 0, kDrops), 1, TwoLayers(), twice, 4);
  const Ran dropped = TrainAll(whole, 1);
  TrainingData said = twice;
  said.drop_last = true;
  EXPECT_EQ(dropped.losses, TrainAll(Make(Config(8, 4, 0), 1, TwoLayers(), said, 4), 1).losses);
  EXPECT_NE(dropped.losses, TrainAll(Make(Config(8, 4, 0), 1, TwoLayers(), twice, 4), 1).losses);
}

TEST(TrainerTest, RatesGoByUpdates) {
  const TrainingData data = {.training = std::make_shared<Points>(40), .epochs = 2};
  const std::string schedule = R"(, "scheduler": {"type": "WarmupDecayLR", "params": {
      "warmup_num_steps": 3, "warmup_max_lr": 0.01, "total_num_steps": 10,
      "warmup_type": "linear"}})";
  std::vector<float> rates;
  for (const int ranks : {1, 2, 4}) {
    std::vector<float> mine;
    const Ran ran = TrainAll(Make(Config(8, 1, 1, schedule), ranks, TwoLayers(), data), ranks);
    for (const StepMetrics& step : ran.steps)
      mine.push_back(static_cast<float>(step.learning_rate));
    ASSERT_EQ(mine.size(), 10u);
    if (rates.empty()) rates = mine;
    EXPECT_EQ(mine, rates);
  }
  EXPECT_LT(rates[0], rates[2]);
  EXPECT_LT(rates[9], rates[5]);
}

// What is told is the rate that is used: Adafactor's own of the update's number, or the schedule's.
TEST(TrainerTest, AdafactorTellsTheRateThatItUses) {
  const auto rates = [](const std::string& more) {
    const std::string config = absl::StrFormat(
        R"({"train_batch_size": 8, "optimizer": {"type": "Adafactor", "params": {%s}},
            "zero_optimization": {"stage": 1}})",
        more);
    const TrainingData data = {.training = std::make_shared<Points>(40), .epochs = 2};
    std::vector<double> told;
    for (const StepMetrics& step : TrainAll(Make(config, 2, TwoLayers(), data), 2).steps) {
      told.push_back(step.learning_rate);
    }
    EXPECT_EQ(told.size(), 10u);
    return told;
  };
  std::vector<double> warm;
  for (int update = 1; update <= 10; ++update) warm.push_back(1e-6 * update);
  EXPECT_EQ(rates(""), std::vector<double>(10, 0.01));
  EXPECT_EQ(rates(R"("warmup_init": true)"), warm);
  EXPECT_EQ(rates(R"("relative_step": false, "lr": 0.25)"), std::vector<double>(10, 0.25));
}

struct Case {
  int stage;
  std::string type;
  bool offload;
  bool recompute;
  int ranks;
};

void ExpectSameBitsAsStage0(const Case& of) {
  SCOPED_TRACE(absl::StrCat("stage ", of.stage, " ", of.type, of.offload ? " offload" : "",
                            of.recompute ? " recompute" : "", ", ", of.ranks, " ranks"));
  const TrainingData data = {.training = std::make_shared<Tokens>(19),
                             .held_out = std::make_shared<Tokens>(5),
                             .epochs = 2};
  const std::string type =
      of.type == "fp32" ? "" : absl::StrCat(", \"", of.type, "\": {\"enabled\": true}");
  const auto run = [&](int stage, bool offload, bool recompute) {
    const std::string more =
        absl::StrCat(type, recompute ? R"(, "brigade": {"recompute": "block"})" : "");
    const std::string zero = offload ? R"(, "offload_optimizer": {"device": "cpu"})" : "";
    return TrainAll(Make(Config(8, 1, stage, more, zero), of.ranks, TinyDecoder(), data), of.ranks);
  };
  const Ran wanted = run(0, false, false);
  const Ran ran = run(of.stage, of.offload, of.recompute);
  EXPECT_EQ(ran.losses, wanted.losses);
  EXPECT_EQ(ran.norms, wanted.norms);
  EXPECT_EQ(ran.held_out, wanted.held_out);
  ExpectModelled(ran);
}

TEST(TrainerTest, StagesHaveTheSameBits) {
  for (int stage = 0; stage < 4; ++stage) {
    ExpectSameBitsAsStage0({stage, stage % 2 == 0 ? "bf16" : "fp16", stage > 1, stage == 3, 2});
  }
}

TEST(TrainerSoakTest, StagesTypesOffloadAndRecomputationHaveTheSameBits) {
  for (int stage = 0; stage < 4; ++stage) {
    for (const char* type : {"fp32", "bf16", "fp16"}) {
      for (const bool offload : {false, true}) {
        if (offload && stage == 0) continue;
        for (const bool recompute : {false, true}) {
          for (const int ranks : {1, 2, 4}) {
            ExpectSameBitsAsStage0({stage, type, offload, recompute, ranks});
          }
        }
      }
    }
  }
}

TEST(TrainerTest, OneByOneIsAsFit) {
  const TrainingData data = {.training = std::make_shared<Tokens>(19),
                             .held_out = std::make_shared<Tokens>(5),
                             .epochs = 2};
  for (const int stage : {0, 1, 3}) {
    SCOPED_TRACE(stage);
    const std::string config = Config(8, 2, stage, R"(, "bf16": {"enabled": true})");
    const Training fit = Make(config, 2, TinyDecoder(), data);
    const Ran whole = TrainAll(fit, 2);
    History history;
    OnRanks(2, [&](const collectives::LaunchInfo& launch_info, TrainerOptions options) {
      options.observer = &history;
      auto made = Trainer::Create({.config = ParseConfig(config, 2).value()}, TinyDecoder(), data,
                                  launch_info, options);
      ASSERT_OK(made);
      Trainer& trainer = **made;
      int64_t micro_batches = 0;
      while (true) {
        const auto has_batch = trainer.Batch();
        ASSERT_OK(has_batch);
        if (!*has_batch) break;
        ASSERT_OK(trainer.Backward());
        ASSERT_OK(trainer.Step());
        ++micro_batches;
        EXPECT_EQ(trainer.step(), micro_batches / 2);
      }
      EXPECT_EQ(micro_batches, 2 * fit.job.steps);
      ASSERT_OK_AND_ASSIGN(const double loss, trainer.Evaluate());
      ASSERT_OK_AND_ASSIGN(const Outcome outcome, trainer.Finish());
      EXPECT_EQ(loss, whole.held_out.back());
      EXPECT_EQ(outcome.ranks.size(), 2u);
    });
    std::vector<double> losses;
    for (const StepMetrics& step : history.steps()) losses.push_back(step.loss);
    EXPECT_EQ(losses, whole.losses);
  }
}

std::string Folder(const std::string& name) {
  const std::string folder = absl::StrCat(::testing::TempDir(), "/", name);
  std::filesystem::remove_all(folder);
  return folder;
}

// 19 samples and a batch of 4 are 5 steps an epoch: step 7 is inside the second.
TEST(TrainerTest, GoesOnInsideAnEpochWithTheSameData) {
  const TrainingData data = {.training = std::make_shared<Tokens>(19),
                             .held_out = std::make_shared<Tokens>(5),
                             .epochs = 3};
  for (const int stage : {1, 3}) {
    SCOPED_TRACE(stage);
    const std::string folder = Folder(absl::StrCat("resume", stage));
    Training training = Make(Config(4, 1, stage), 2, TinyDecoder(), data);
    const Ran whole = TrainAll(training, 2);
    training.job.steps = 7;
    training.job.checkpoints.save = folder;
    TrainAll(training, 2);
    training.job.steps = 15;
    training.job.checkpoints.resume = folder;
    training.job.checkpoints.save = Folder("elsewhere");
    const std::vector<double> rest(whole.losses.begin() + 7, whole.losses.end());
    EXPECT_EQ(TrainAll(training, 2).losses, rest);
    // In another stage, on other numbers of ranks.
    for (const int ranks : {1, 4}) {
      Training other = Make(Config(4, 1, 3 - stage), ranks, TinyDecoder(), data);
      other.job.checkpoints.resume = folder;
      ExpectNear(TrainAll(other, ranks).losses, rest, 2e-4);
    }
    // Other data are another training.
    Training other = Make(Config(4, 1, stage), 2, TinyDecoder(),
                          {.training = std::make_shared<Tokens>(20), .epochs = 3});
    other.job.checkpoints.resume = folder;
    EXPECT_THAT(TrainOnThreads(other.job, *other.task, 2, {}),
                StatusIs(kInvalid, AllOf(HasSubstr("data"), HasSubstr("19 samples"))));
  }
}

// The steps of the states that a training goes on from.
class Loads final : public Observer {
 public:
  absl::Status OnStep(const StepMetrics&) override { return absl::OkStatus(); }
  absl::Status OnEvaluation(const Evaluation&) override { return absl::OkStatus(); }
  absl::Status OnStart(const Start& start) override {
    steps.push_back(start.step);
    return absl::OkStatus();
  }
  absl::Status OnLoad(const Start& start) override {
    EXPECT_THAT(start.resumed, HasSubstr("step-"));
    steps.push_back(start.step);
    return absl::OkStatus();
  }

  std::vector<int64_t> steps;
};

TEST(TrainerTest, SavesAndLoadsOneByOne) {
  const TrainingData data = {.training = std::make_shared<Points>(19),
                             .held_out = std::make_shared<Points>(5),
                             .epochs = 2};
  const std::string folder = Folder("one_by_one");
  OnRanks(2, [&](const collectives::LaunchInfo& launch_info, const TrainerOptions& options) {
    const Job job = {.config = ParseConfig(Config(4, 2, 2), 2).value(),
                     .checkpoints = {.save = folder}};
    Loads loads;
    TrainerOptions observed = options;
    observed.observer = &loads;
    auto made = Trainer::Create(job, TwoLayers(), data, launch_info, observed);
    ASSERT_OK(made);
    Trainer& trainer = **made;
    const auto step = [&] {
      ASSERT_OK(trainer.Batch());
      ASSERT_OK(trainer.Backward());
      ASSERT_OK(trainer.Step());
    };
    for (int i = 0; i < 3; ++i) step();
    ASSERT_OK(trainer.Save());
    for (int i = 0; i < 2; ++i) step();
    ASSERT_OK_AND_ASSIGN(const double later, trainer.Evaluate());
    ASSERT_OK(trainer.Load(absl::StrCat(folder, "/step-00000003")));
    EXPECT_EQ(trainer.step(), 3);
    for (int i = 0; i < 2; ++i) step();
    ASSERT_OK_AND_ASSIGN(const double again, trainer.Evaluate());
    EXPECT_EQ(again, later);
    // Another state of the same step is saved in the place of the later one, which is set aside.
    ASSERT_OK(trainer.Save());
    ASSERT_OK(trainer.Load(absl::StrCat(folder, "/step-00000003")));
    for (int i = 0; i < 2; ++i) step();
    ASSERT_OK(trainer.Save());
    ASSERT_OK(trainer.Finish());
    if (launch_info.rank == 0) {
      EXPECT_EQ(loads.steps, std::vector<int64_t>({0, 3, 3}));
    }
    EXPECT_THAT(trainer.Batch(),
                StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("has had its end")));
  });
}

// 2.1 million weights of 12 bytes, of which as much waits for the disk as the configuration says,
// or two chunks.
TEST(TrainerTest, TheConfigSaysHowMuchOfASaveWaitsForTheDisk) {
  const ModelFactory wide = [](const ModelPlace& place) {
    return Mlp::Create(place, {2, 700'000, 1}, Loss::kSquaredError);
  };
  const TrainingData data = {.training = std::make_shared<Points>(4), .epochs = 1};
  std::vector<int64_t> host_bytes;
  for (const char* const brigade : {"", R"(, "brigade": {"checkpoint_staging_bytes": 1})"}) {
    Training training = Make(Config(4, 4, 1, brigade), 1, wide, data);
    const std::string folder = absl::StrCat(::testing::TempDir(), "/staged_", host_bytes.size());
    std::filesystem::remove_all(folder);
    training.job.checkpoints.save = folder;
    const Ran ran = TrainAll(training, 1);
    ExpectModelled(ran);
    int64_t sum = 0;
    for (const int64_t bytes : ran.outcome.ranks.at(0).host_memory) sum += bytes;
    host_bytes.push_back(sum);
    std::filesystem::remove_all(folder);
  }
  EXPECT_GT(host_bytes[0] - host_bytes[1], int64_t{16} << 20);
}

TEST(TrainerTest, AnErrorOfOneRankEndsAll) {
  // The bad sample is read by one of two ranks.
  const TrainingData data = {
      .training = std::make_shared<Points>(64, 22), .shuffle = false, .epochs = 1};
  const Training training = Make(Config(8, 4, 2), 2, TwoLayers(), data);
  EXPECT_THAT(TrainOnThreads(training.job, *training.task, 2, {}),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("sample 22 is bad")));
}

TEST(TrainerTest, ARankThatLeavesEarlyLeavesNoneWaiting) {
  const TrainingData data = {.training = std::make_shared<Points>(64), .epochs = 2};
  OnRanks(2, [&](const collectives::LaunchInfo& launch_info, const TrainerOptions& options) {
    auto trainer = Trainer::Create({.config = ParseConfig(Config(8, 4, 3), 2).value()}, TwoLayers(),
                                   data, launch_info, options);
    ASSERT_OK(trainer);
    ASSERT_OK((*trainer)->Batch());
    if (launch_info.rank == 1) return;
    const auto go_on = [&]() -> absl::Status {
      while (true) {
        BRIGADE_RETURN_IF_ERROR((*trainer)->Backward());
        BRIGADE_RETURN_IF_ERROR((*trainer)->Step());
        BRIGADE_ASSIGN_OR_RETURN(const bool has_batch, (*trainer)->Batch());
        if (!has_batch) return absl::OkStatus();
      }
    };
    EXPECT_THAT(go_on(), StatusIs(absl::StatusCode::kCancelled,
                                  HasSubstr("rank 1 left the training before its end")));
  });
}

// Before the ranks have met there is no communicator to tell the others by.
TEST(TrainerTest, ARankThatFailsBeforeItMeetsTheOthersLeavesNoneWaiting) {
  const TrainingData data = {.training = std::make_shared<Points>(64), .epochs = 1};
  const std::function<void(Job&, TrainingData&)> failures[] = {
      [](Job& job, TrainingData&) { job.steps = -3; },
      [](Job&, TrainingData& of_rank) { of_rank.training = nullptr; },
      // There is no such device.
      [](Job& job, TrainingData&) { job.device = device::Cuda(1 << 20); }};
  const char* const texts[] = {"-3 steps", "a training needs a model and data", ""};
  for (size_t i = 0; i < 3; ++i) {
    SCOPED_TRACE(i);
    std::array<absl::Status, 3> statuses;
    OnRanks(3, [&](const collectives::LaunchInfo& launch_info, const TrainerOptions& options) {
      Job job = {.config = ParseConfig(Config(12, 4, 1), 3).value()};
      TrainingData of_rank = data;
      if (launch_info.rank == 1) failures[i](job, of_rank);
      statuses[static_cast<size_t>(launch_info.rank)] =
          Trainer::Create(job, TwoLayers(), of_rank, launch_info, options).status();
    });
    EXPECT_FALSE(statuses[1].ok());
    EXPECT_THAT(std::string(statuses[1].message()), HasSubstr(texts[i]));
    EXPECT_EQ(statuses[0], statuses[1]);
    EXPECT_EQ(statuses[2], statuses[1]);
  }
}

// The profile of a step, whose tables are of the model's units.
class Profiles final : public Observer {
 public:
  absl::Status OnStep(const StepMetrics& step) override {
    losses.push_back(step.loss);
    return absl::OkStatus();
  }
  absl::Status OnEvaluation(const Evaluation& /*evaluation*/) override { return absl::OkStatus(); }
  absl::Status OnProfile(const ProfileEvent& event) override {
    events.push_back(event);
    return absl::OkStatus();
  }
  std::vector<double> losses;
  std::vector<ProfileEvent> events;
};

// Two micro-batches of two texts on each of two ranks, blocks made again.
TEST(TrainerTest, AProfileHasTheUnitsOfAnyModel) {
  const TrainingData data = {.training = std::make_shared<Tokens>(64), .epochs = 1};
  std::vector<double> without;
  for (const bool profiled : {false, true}) {
    const std::string more = profiled ? R"(, "brigade": {"recompute": "block"}, "flops_profiler":
        {"enabled": true, "profile_step": 2, "module_depth": 1})"
                                      : R"(, "brigade": {"recompute": "block"})";
    const Training training = Make(Config(8, 2, 3, more), 2, TinyDecoder(), data, 6);
    Profiles profiles;
    ASSERT_OK(TrainOnThreads(training.job, *training.task, 2, {.observer = &profiles}));
    if (!profiled) {
      without = profiles.losses;
      EXPECT_TRUE(profiles.events.empty());
      continue;
    }
    // Marks change no bit.
    EXPECT_EQ(profiles.losses, without);
    ASSERT_EQ(profiles.events.size(), 1u);
    const profile::StepProfile& step = profiles.events[0].profile;
    EXPECT_THAT(profiles.events[0].text, HasSubstr("model.layers.1"));
    ASSERT_GE(step.units.size(), 4u);
    const char* const names[] = {"model.embed_tokens", "model.layers.0", "model.layers.1", "head"};
    for (size_t unit = 0; unit < 4; ++unit) {
      const profile::Module& module = step.units[unit];
      EXPECT_EQ(module.name, names[unit]);
      EXPECT_GT(module.parameters, 0);
      const bool is_block = unit == 1 || unit == 2;
      for (const auto pass : {profile::Pass::kForward, profile::Pass::kBackward}) {
        EXPECT_GT(module.seconds[static_cast<size_t>(pass)], 0) << module.name;
      }
      EXPECT_EQ(module.seconds[static_cast<size_t>(profile::Pass::kRecompute)] > 0, is_block);
    }
    // 8 texts of 8 tokens; a block's matrices: queries, keys and values, what follows, the MLP.
    constexpr double kBlock = 16 * 32 + 16 * 16 + 3 * 16 * 24;
    EXPECT_EQ(step.training.tokens_of_step, 64);
    EXPECT_DOUBLE_EQ(step.units[1].flops[0].products, 2 * 64 * kBlock);
    EXPECT_DOUBLE_EQ(step.units[1].flops[1].products, 4 * 64 * kBlock);
    EXPECT_DOUBLE_EQ(step.units[1].flops[2].products, 2 * 64 * (kBlock - 16 * 24));
    EXPECT_DOUBLE_EQ(step.units[3].flops[0].products, 2 * 64 * 16.0 * 16);
    // 6 N + 12 L d s, and half of the pairs.
    const double weights = 2 * kBlock + 16 * 16;
    EXPECT_DOUBLE_EQ(step.training.flops_per_token, 6 * weights + 12 * 2 * 16 * 8);
    EXPECT_DOUBLE_EQ(step.training.causal_flops_per_token, 6 * weights + 6 * 2 * 16 * 9);
    EXPECT_GT(step.mfu(true), 0);
    EXPECT_GT(step.hfu(true), step.mfu(true));
  }
}

TEST(TrainerTest, ALaunchedRankHasTheDeviceOfItsLocalRank) {
  const collectives::LaunchInfo launched = {
      .launched = true, .rank = 5, .size = 8, .local_rank = 3};
  Job job;
  EXPECT_EQ(DeviceOf(job, launched), device::Cpu());
  job.device = device::Cuda(2);
  EXPECT_EQ(DeviceOf(job, launched), device::Cuda(3));
  EXPECT_EQ(DeviceOf(job, {}), device::Cuda(2));
  // What both kinds of trainings have; an ordinal that no machine has is refused on all.
  const TrainingData data = {.training = std::make_shared<Points>(64), .epochs = 1};
  Training training = Make(Config(8, 4, 0), 1, TwoLayers(), data);
  training.job.device = device::Cuda();
  const collectives::LaunchInfo nowhere = {.launched = true, .local_rank = -7};
  const auto refused = StatusIs(kInvalid, HasSubstr("device.ordinal is -7"));
  EXPECT_THAT(Trainer::Create(training.job, *training.task, nowhere), refused);
  EXPECT_THAT(Trainer::Create(training.job, TwoLayers(), data, nowhere), refused);
}

TEST(TrainerTest, RanksThatAreThreadsRefuseWhatIsOfProcesses) {
  const TrainingData data = {.training = std::make_shared<Points>(64), .epochs = 1};
  const Training training = Make(Config(8, 4, 0), 1, TwoLayers(), data);
  const std::pair<std::string, TrainerOptions> cases[] = {
      {"rendezvous_folder", {.rendezvous_folder = "meeting"}},
      {"interface", {.interface = "eth0"}},
      {"verify_collectives", {.verify_collectives = false}},
      {"nccl", {.nccl = collectives::NcclApi()}}};
  for (const auto& [name, options] : cases) {
    const auto refused =
        StatusIs(kInvalid, HasSubstr("the threads backend does not take InitOptions::" + name));
    EXPECT_THAT(TrainOnThreads(training.job, *training.task, 1, options), refused);
    // One rank alone is a thread too.
    EXPECT_THAT(Trainer::Create(training.job, *training.task, collectives::LaunchInfo(), options),
                refused);
    EXPECT_THAT(Trainer::Create(training.job, TwoLayers(), data, {}, options), refused);
  }
}

TEST(TrainerTest, RefusesWhatAModelDoesNotDo) {
  const TrainingData data = {.training = std::make_shared<Points>(64), .epochs = 1};
  const auto refused = [&](const std::string& config, int ranks, const std::string& text) {
    const Training training = Make(config, ranks, TwoLayers(), data);
    EXPECT_THAT(TrainOnThreads(training.job, *training.task, ranks, {}),
                StatusIs(kInvalid, HasSubstr(text)));
  };
  refused(Config(8, 4, 0, R"(, "brigade": {"dropout": 0.1})"), 1, "brigade.dropout");
  for (const char* const policy : {"block", "segments:2", "budget:1MiB"}) {
    refused(Config(8, 4, 0, absl::StrFormat(R"(, "brigade": {"recompute": "%s"})", policy)), 1,
            "the model makes nothing again");
  }
  refused(
      Config(8, 4, 0, R"(, "activation_checkpointing": {"cpu_checkpointing": true})"), 1,
      R"(brigade.recompute (or activation_checkpointing) "block": the model makes nothing again)");
  const Training measured =
      Make(Config(8, 4, 0, R"(, "brigade": {"recompute": "block", "recompute_times": "measured"})"),
           1, TinyDecoder(), {.training = std::make_shared<Tokens>(64), .epochs = 1});
  EXPECT_THAT(TrainOnThreads(measured.job, *measured.task, 1, {}),
              StatusIs(kInvalid, HasSubstr("brigade.recompute_times")));
  const Training uncut = Make(Config(8, 4, 0, R"(, "pipeline": {"stages": 2})"), 2, Silent(), data);
  EXPECT_THAT(TrainOnThreads(uncut.job, *uncut.task, 2, {}),
              StatusIs(kInvalid, HasSubstr("a pipeline: the model does not say what crosses")));
  const Training silent =
      Make(Config(8, 4, 0, R"(, "flops_profiler": {"enabled": true})"), 1, Silent(), data);
  EXPECT_THAT(TrainOnThreads(silent.job, *silent.task, 1, {}),
              StatusIs(kInvalid, HasSubstr("flops_profiler: the model does not tell")));
  refused(Config(8, 4, 0, R"(, "bf16": {"enabled": true})"), 1, "float32");
  const auto refused_spec = [&](const zero::ModelSpec& spec, const std::string& text) {
    const ModelFactory model =
        [&](const ModelPlace& place) -> absl::StatusOr<std::unique_ptr<models::Model>> {
      BRIGADE_ASSIGN_OR_RETURN(auto mlp, TwoLayers()(place));
      return std::make_unique<SilentModel>(std::move(mlp), spec);
    };
    const Training training = Make(Config(8, 4, 0), 1, model, data);
    EXPECT_THAT(TrainOnThreads(training.job, *training.task, 1, {}),
                StatusIs(kInvalid, HasSubstr(text)));
  };
  refused_spec({}, "the model has no units");
  refused_spec({{"layers.0", {{"weight", 18}, {"bias", 9}}, {}},
                {"layers.1", {{"weight", 9}, {"bias", 1}}, {}}},
               "two parameters are called \"weight\"");

  refused(Config(8, 2, 0, R"(, "brigade": {"replicas": 2})"), 2, "drop_last");

  Training longer = Make(Config(8, 4, 0), 1, TwoLayers(), data);
  longer.job.steps = 9;
  EXPECT_THAT(TrainOnThreads(longer.job, *longer.task, 1, {}),
              StatusIs(kInvalid, HasSubstr("9 steps, but 1 epochs of the data have 8")));
  EXPECT_THAT((TrainingData{.training = data.training, .epochs = -1}.Steps(8)),
              StatusIs(kInvalid, HasSubstr("-1 epochs of 64 samples")));
  EXPECT_THAT(ModelTask::Create(TwoLayers(), {}), StatusIs(kInvalid, HasSubstr("data")));
  EXPECT_THAT(ModelTask::Create(TwoLayers(), {.training = std::make_shared<Points>(0)}),
              StatusIs(kInvalid, HasSubstr("0 samples")));
  EXPECT_THAT(ModelTask::Create(TwoLayers(), {.training = std::make_shared<Points>(4),
                                              .held_out = std::make_shared<Tokens>(4)}),
              StatusIs(kInvalid, HasSubstr("other sizes")));
  EXPECT_THAT(Trainer::Create({.config = ParseConfig(Config(8, 8, 0), 1).value()}, TwoLayers(),
                              {.training = std::make_shared<Points>(4)}, {}),
              StatusIs(kInvalid, HasSubstr("without end")));
  // Of any other task the job says how many steps there are.
  for (const int64_t steps : {0, -3}) {
    Training none = Make(Config(8, 8, 0), 1, TwoLayers(), data, 1);
    none.job.steps = steps;
    const auto no_steps = StatusIs(kInvalid, HasSubstr(absl::StrCat(steps, " steps; ")));
    EXPECT_THAT(Trainer::Create(none.job, *none.task, collectives::LaunchInfo()), no_steps);
    EXPECT_THAT(TrainOnThreads(none.job, *none.task, 1, {}), no_steps);
  }
  // A model whose losses are not the data's.
  const Training texts = Make(Config(8, 4, 0), 1, TwoLayers(),
                              {.training = std::make_shared<Tokens>(64), .epochs = 1});
  EXPECT_THAT(TrainOnThreads(texts.job, *texts.task, 1, {}),
              StatusIs(kInvalid, HasSubstr("4 losses for a micro-batch of 4 samples")));
}

}  // namespace
}  // namespace brigade::train
