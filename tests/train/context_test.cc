// Trainings of a models::Model whose samples several ranks share: those of ranks that have whole
// samples, within the rounding of sums in another order; and the same bits whatever else changes.

#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "brigade/data/dataset.h"
#include "brigade/data/samples.h"
#include "brigade/device/status_macros.h"
#include "brigade/examples/mlp.h"
#include "brigade/models/decoder.h"
#include "brigade/nn/cross_entropy.h"
#include "brigade/nn/embedding.h"
#include "brigade/nn/random.h"
#include "brigade/nn/token_ids.h"
#include "brigade/nn/workspace.h"
#include "brigade/parallel/grid.h"
#include "brigade/tests/collectives/ranks.h"
#include "brigade/tests/testing/status_matchers.h"
#include "brigade/tests/train/delayed_training.h"
#include "brigade/tests/train/trainings.h"
#include "brigade/train/decoder_model.h"
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
constexpr int64_t kPositions = 16;

// Texts of 16 tokens of 16, of which the last sample % 13 + 1 count: on some ranks none. Apart they
// are two documents each.
class LongTokens final : public data::Samples {
 public:
  explicit LongTokens(int64_t size, bool apart = false, bool are_cut = true)
      : size_(size), apart_(apart), are_cut_(are_cut) {}

  int64_t size() const override { return size_; }
  int64_t input_bytes() const override { return (apart_ ? 3 : 1) * target_bytes(); }
  int64_t target_bytes() const override { return kPositions * int64_t{sizeof(int32_t)}; }
  int64_t positions() const override { return kPositions; }
  data::PositionRows position_rows() const override {
    if (!are_cut_) return {};
    return {.input = apart_ ? 3 : 1, .target = 1};
  }
  int64_t CountedLosses(int64_t sample) const override { return sample % 13 + 1; }
  absl::Status Read(int64_t sample, void* input, void* target) const override {
    int32_t ids[kPositions + 1], labels[kPositions];
    nn::Random random(3, static_cast<uint64_t>(sample));
    ids[0] = static_cast<int32_t>(random.Next() % 16);
    // What comes depends on what has been, and where.
    for (int i = 1; i <= kPositions; ++i) ids[i] = (5 * ids[i - 1] + 3 + i / 4) % 16;
    for (int i = 0; i < kPositions; ++i) {
      labels[i] = kPositions - i <= CountedLosses(sample) ? ids[i + 1] : data::kIgnored;
    }
    std::memcpy(input, ids, sizeof(labels));
    std::memcpy(target, labels, sizeof(labels));
    if (!apart_) return absl::OkStatus();
    int32_t documents[2][kPositions];
    for (int i = 0; i < kPositions; ++i) {
      documents[0][i] = i < 5 ? i : i - 5;
      documents[1][i] = i < 5 ? 5 : kPositions;
    }
    std::memcpy(static_cast<char*>(input) + sizeof(labels), documents, sizeof(documents));
    return absl::OkStatus();
  }

 private:
  const int64_t size_;
  const bool apart_, are_cut_;
};

models::DecoderConfig FourHeads() {
  return {.vocabulary = 16,
          .layers = 3,
          .width = 16,
          .heads = 4,
          .key_value_heads = 2,
          .head_width = 4,
          .inner = 24,
          .positions = 16,
          .tied = true};
}
models::DecoderConfig FourHeadsOfGpt2() {
  return {.architecture = models::Architecture::kGpt2,
          .vocabulary = 16,
          .layers = 3,
          .width = 16,
          .heads = 4,
          .key_value_heads = 4,
          .head_width = 4,
          .inner = 32,
          // More than a sample has.
          .positions = 20,
          .tied = true};
}
DecoderModelOptions AdaptersOver(models::BaseFormat base) {
  DecoderModelOptions options = Adapters();
  options.lora->base = base;
  return options;
}

// In micro-batches of 2, unless the case says otherwise, and by a scale that holds.
Case Shared(Case of) {
  if (of.micro_batch == 0) of.micro_batch = 2;
  of.overflows = false;
  return of;
}

TrainingData LongData(int64_t samples) {
  return {.training = std::make_shared<LongTokens>(samples),
          .held_out = std::make_shared<LongTokens>(9),
          .epochs = 2};
}
// Each epoch ends with a step of 3 samples, in which micro-batches are short, or have none; or all
// steps are whole.
constexpr int64_t kWithShortStep = 19, kWholeSteps = 24;

Ran TrainAll(const Case& of, const ModelFactory& model, int64_t samples = kWithShortStep) {
  return TrainAll(Make(Shared(of), model, LongData(samples)), of.ranks());
}

// And something is.
void ExpectModelledExchange(const Ran& ran, bool are_whole) {
  constexpr auto kContext = static_cast<size_t>(parallel::GridGroup::kContext);
  ExpectModelledTraffic(ran, are_whole);
  for (const RankSummary& rank : ran.outcome.ranks) EXPECT_GT(rank.sent[kContext], 0);
}

// Sums are in another order, and of 16-bit types rounded more often. Updates by Adam make more of
// it where gradients are small.
void ExpectNear(const Ran& ran, const Ran& whole, const std::string& type) {
  ASSERT_OK(ran.status);
  ASSERT_OK(whole.status);
  ASSERT_FALSE(whole.losses.empty());
  ASSERT_EQ(ran.losses.size(), whole.losses.size());
  const double bound = type == "fp32" ? 1e-4 : 0.02;
  for (size_t step = 0; step < whole.losses.size(); ++step) {
    EXPECT_NEAR(ran.losses[step], whole.losses[step], bound * whole.losses[step]) << step;
    EXPECT_NEAR(ran.norms[step], whole.norms[step], 5 * bound * whole.norms[step]) << step;
  }
  // Before any update.
  if (type == "fp32") {
    EXPECT_NEAR(ran.losses[0], whole.losses[0], 1e-6 * whole.losses[0]);
    EXPECT_NEAR(ran.norms[0], whole.norms[0], 1e-5 * whole.norms[0]);
  }
  ASSERT_EQ(ran.held_out.size(), whole.held_out.size());
  for (size_t i = 0; i < whole.held_out.size(); ++i) {
    EXPECT_NEAR(ran.held_out[i], whole.held_out[i], bound * whole.held_out[i]) << i;
  }
}

// Of a model and a type: each exchange and number of ranks beside ranks with whole samples, and
// beside it stages of ZeRO, a pipeline, recomputation and other ranks of data, which change no bit;
// by turns, or all of them.
void ExpectThoseOfWholeSamples(const ModelFactory& model, const std::string& type, bool all,
                               int turn) {
  const Ran whole = TrainAll({.type = type}, model);
  for (const char* const exchange : {"ulysses", "ring"}) {
    for (const int context : {2, 4}) {
      const Case first = {.context = context, .exchange = exchange, .type = type};
      SCOPED_TRACE(Config(first));
      const Ran shared = TrainAll(first, model);
      ExpectNear(shared, whole, type);
      ExpectModelledMemory(shared);
      ExpectModelledExchange(shared, /*are_whole=*/false);
      for (const int pipeline : {1, 2}) {
        for (const char* const schedule : {"1f1b", "interleaved:2", "zb-h1"}) {
          if (pipeline == 1 && schedule != std::string("1f1b")) continue;
          for (int stage = 0; stage < 4; ++stage) {
            for (const bool recompute : {false, true}) {
              if (!all && ++turn % 19 != 0) continue;
              Case of = first;
              of.pipeline = pipeline;
              if (pipeline > 1) of.schedule = schedule;
              of.stage = stage;
              of.recompute = recompute;
              SCOPED_TRACE(Config(of));
              const Ran ran = TrainAll(of, model);
              ExpectSameResults(ran, shared);
              ExpectModelledMemory(ran);
            }
          }
        }
      }
    }
  }
}

TEST(ContextTest, LlamaIsTrainedAsByRanksThatHaveWholeSamples) {
  ExpectThoseOfWholeSamples(DecoderModel(FourHeads()), "fp32", false, 0);
  ExpectThoseOfWholeSamples(DecoderModel(FourHeads()), "bf16", false, 3);
}

TEST(ContextTest, Gpt2IsTrainedAsByRanksThatHaveWholeSamples) {
  ExpectThoseOfWholeSamples(DecoderModel(FourHeadsOfGpt2()), "fp32", false, 5);
  ExpectThoseOfWholeSamples(DecoderModel(FourHeadsOfGpt2()), "fp16", false, 1);
}

// What is dropped is a function of sample and position: with another mask losses would be others.
TEST(ContextTest, AdaptersAreTrainedAsByRanksThatHaveWholeSamples) {
  ExpectThoseOfWholeSamples(DecoderModel(FourHeadsOfGpt2(), Adapters()), "fp32", false, 2);
  ExpectThoseOfWholeSamples(
      DecoderModel(FourHeads(), AdaptersOver(models::BaseFormat::kInt8Blocks)), "bf16", false, 4);
}

TEST(ContextSoakTest, EveryStagePipelineTypeAndRecomputationHasTheSameBits) {
  for (const ModelFactory& model :
       {DecoderModel(FourHeads()), DecoderModel(FourHeadsOfGpt2()),
        DecoderModel(FourHeadsOfGpt2(), Adapters()),
        DecoderModel(FourHeads(), AdaptersOver(models::BaseFormat::kInt8Blocks))}) {
    for (const char* const type : {"fp32", "bf16", "fp16"}) {
      ExpectThoseOfWholeSamples(model, type, true, 0);
    }
  }
}

// Micro-batches of 1, 2 or 8, of one rank of data or two.
TEST(ContextTest, AccumulationAndRanksOfDataAreWithinRounding) {
  const ModelFactory models[] = {DecoderModel(FourHeads()),
                                 DecoderModel(FourHeadsOfGpt2(), Adapters())};
  for (const ModelFactory& model : models) {
    const Ran whole = TrainAll(Case{}, model);
    for (const char* const exchange : {"ulysses", "ring"}) {
      for (const auto& [data, micro_batch] : {std::pair{1, 1}, {1, 8}, {2, 1}, {2, 2}}) {
        const Case of = {.context = 2,
                         .exchange = exchange,
                         .data = data,
                         .stage = data + 1,
                         .micro_batch = micro_batch};
        SCOPED_TRACE(Config(of));
        const Ran ran = TrainAll(of, model);
        ExpectNear(ran, whole, "fp32");
        ExpectModelledMemory(ran);
        ExpectModelledExchange(ran, /*are_whole=*/false);
      }
    }
  }
}

TEST(ContextTest, WholeStepsSendWhatTheFormulaSays) {
  bool recompute = false;
  for (const ModelFactory& model : {DecoderModel(FourHeads()), DecoderModel(FourHeadsOfGpt2())}) {
    for (const char* const exchange : {"ulysses", "ring"}) {
      for (const auto& [context, data, pipeline] :
           {std::tuple{2, 1, 1}, {4, 1, 1}, {2, 2, 1}, {2, 1, 2}}) {
        recompute = !recompute;
        const Case of = {.context = context,
                         .exchange = exchange,
                         .data = data,
                         .pipeline = pipeline,
                         .stage = recompute ? 3 : 1,
                         .recompute = recompute};
        SCOPED_TRACE(Config(of));
        Training training = Make(Shared(of), model, LongData(kWholeSteps));
        training.job.steps = 1;
        const Ran ran = TrainAll(training, of.ranks());
        ASSERT_OK(ran.status);
        ExpectModelledMemory(ran);
        ExpectModelledExchange(ran, /*are_whole=*/true);
      }
      recompute = !recompute;
    }
  }
}

// By hand: 3 blocks, and on each of 2 ranks of data 2 micro-batches of 2 samples, so that nothing
// else goes between the 2 ranks that share them.
TEST(ContextTest, BytesSentAreThoseOfTheExchanges) {
  constexpr auto kContext = static_cast<size_t>(parallel::GridGroup::kContext);
  constexpr int64_t kRows = 2 * kPositions / 2, kWidth = 16, kBlocks = 3, kMicroBatches = 2;
  const auto sent = [&](const char* exchange, bool recompute) {
    const Case of = {.context = 2, .exchange = exchange, .data = 2, .recompute = recompute};
    Training training = Make(Shared(of), DecoderModel(FourHeads()), LongData(kWholeSteps));
    training.job.steps = 1;
    const Ran ran = TrainAll(training, 4);
    EXPECT_OK(ran.status);
    return ran.outcome.ranks.empty() ? 0 : ran.outcome.ranks[0].sent[kContext];
  };
  // A hop of keys and values in each pass, and two of their gradients' sums.
  const int64_t hop = 2 * kRows * kWidth * 4;
  EXPECT_EQ(sent("ring", false), kMicroBatches * kBlocks * 4 * hop);
  EXPECT_EQ(sent("ring", true), kMicroBatches * kBlocks * 5 * hop);
  // Half of queries, keys and values and of what attention gives, there and back.
  const int64_t exchange = (3 + 1) * kRows * kWidth / 2 * 4;
  EXPECT_EQ(sent("ulysses", false), kMicroBatches * kBlocks * 2 * exchange);
  EXPECT_EQ(sent("ulysses", true), kMicroBatches * kBlocks * 3 * exchange);
}

TEST(ContextTest, ActivationsShrinkWithTheRanks) {
  constexpr auto kActivations = static_cast<size_t>(device::Purpose::kActivations);
  models::DecoderConfig config = FourHeads();
  config.width = 64;
  config.head_width = 16;
  config.inner = 96;
  const auto bytes = [&](int context, const char* exchange) {
    const Case of = {.context = context, .exchange = exchange};
    Training training = Make(Shared(of), DecoderModel(config), LongData(kWholeSteps));
    training.job.steps = 1;
    const Ran ran = TrainAll(training, context);
    EXPECT_OK(ran.status);
    return static_cast<double>(ran.outcome.ranks[0].memory[kActivations]);
  };
  const double whole = bytes(1, "");
  // Without the workspace of attention, which is scratch.
  EXPECT_LT(bytes(2, "ring"), 0.5 * whole);
  EXPECT_LT(bytes(4, "ring"), 0.25 * whole);
  // Queries, keys and values that are kept behind the exchange are as wide as heads of queries.
  EXPECT_LT(bytes(4, "ulysses"), 0.3 * whole);
}

TEST(ContextTest, DelaysChangeNoBitAndNothingIsUnordered) {
  const ModelFactory llama = DecoderModel(FourHeads());
  const ModelFactory adapters = DecoderModel(FourHeadsOfGpt2(), Adapters());
  const std::pair<ModelFactory, Case> cases[] = {
      {llama, {.context = 2, .exchange = "ulysses", .pipeline = 2, .recompute = true}},
      {llama, {.context = 2, .exchange = "ring", .stage = 3}},
      {adapters, {.context = 2, .exchange = "ulysses", .stage = 1}},
      {adapters, {.context = 2, .exchange = "ring", .pipeline = 2, .stage = 2, .recompute = true}}};
  uint64_t turn = 300;
  for (const auto& [model, of] : cases) {
    SCOPED_TRACE(Config(of));
    Training training = Make(Shared(of), model, LongData(kWithShortStep));
    // The third one is short.
    training.job.steps = 3;
    ExpectOrdered(training, of.ranks(), ++turn, TrainAll(training, of.ranks()));
  }
}

// 3 steps an epoch: step 4 is inside the second.
TEST(ContextTest, GoesOnInsideAnEpochOnAnyNumberOfRanks) {
  for (const ModelFactory& model :
       {DecoderModel(FourHeads()), DecoderModel(FourHeadsOfGpt2(), Adapters())}) {
    for (const char* const exchange : {"ulysses", "ring"}) {
      const Case two = {.context = 2, .exchange = exchange, .stage = 1};
      const Ran whole = TrainAll(two, model);
      ASSERT_OK(whole.status);
      const std::string folder = Folder("context_resume");
      Training begin = Make(Shared(two), model, LongData(kWithShortStep));
      begin.job.steps = 4;
      begin.job.checkpoints.save = folder;
      ASSERT_OK(TrainAll(begin, 2).status);
      Ran rest = whole;
      rest.losses.erase(rest.losses.begin(), rest.losses.begin() + 4);
      for (const Case& of : {Case{.context = 2, .exchange = exchange, .stage = 3}, Case{},
                             Case{.context = 4, .exchange = exchange, .stage = 2},
                             Case{.context = 2, .exchange = exchange, .data = 2, .pipeline = 2}}) {
        SCOPED_TRACE(Config(of));
        Training training = Make(Shared(of), model, LongData(kWithShortStep));
        training.job.checkpoints.resume = folder;
        const Ran ran = TrainAll(training, of.ranks());
        ASSERT_OK(ran.status);
        ASSERT_EQ(ran.losses.size(), rest.losses.size());
        for (size_t step = 0; step < rest.losses.size(); ++step) {
          if (of.ranks() == 2) {
            EXPECT_EQ(ran.losses[step], rest.losses[step]);
          }
          EXPECT_NEAR(ran.losses[step], rest.losses[step], 1e-4 * rest.losses[step]);
        }
        EXPECT_NEAR(ran.held_out.back(), whole.held_out.back(), 1e-4 * whole.held_out.back());
      }
    }
  }
}

// A model of one's own, in which no position needs another: the next token by the last one.
class Pairs final : public models::Model {
 public:
  static absl::StatusOr<std::unique_ptr<models::Model>> Create(const ModelPlace& place) {
    std::unique_ptr<Pairs> model(new Pairs(place));
    constexpr auto kType = precision::DType::kFloat32;
    const int64_t rows = place.samples * place.positions;
    model->bytes_.activations = rows * kTokens * int64_t{sizeof(float)};
    BRIGADE_ASSIGN_OR_RETURN(
        model->logits_,
        place.context.Allocate(model->bytes_.activations, device::Purpose::kActivations, "logits"));
    const nn::Workspace::Sizes sizes = {.rows = rows, .width = kTokens, .vocabulary = kTokens};
    BRIGADE_ASSIGN_OR_RETURN(model->workspace_, nn::Workspace::Create(place.context, kType, sizes));
    BRIGADE_ASSIGN_OR_RETURN(model->bytes_.scratch,
                             nn::Workspace::Bytes(place.context, kType, sizes));
    return model;
  }

  models::ModelMemory bytes() const override { return bytes_; }
  bool cuts_positions() const override { return is_cut_; }
  int64_t LossesOf(const models::Batch& batch) const override { return batch.rows(); }
  void Initialize(int, uint64_t seed, absl::Span<float> values) const override {
    nn::Random random(seed, 0);
    for (float& value : values) value = static_cast<float>(random.Uniform());
  }
  absl::Status ForwardUnit(int, const models::Batch& batch, void* losses,
                           models::UnitParameters& parameters, device::Stream& stream) override {
    const void* const table = parameters.weights(0);
    BRIGADE_RETURN_IF_ERROR(parameters.status());
    BRIGADE_RETURN_IF_ERROR(nn::Embedding(IdsOf(batch), precision::DType::kFloat32, kTokens, table,
                                          nullptr, logits_.data(), stream));
    return nn::CrossEntropy(IdsOf(batch), precision::DType::kFloat32, logits_.data(), losses,
                            stream);
  }
  absl::Status BackwardUnit(int, const models::Batch& batch, const float* seed,
                            models::UnitParameters& parameters, device::Stream& stream) override {
    const nn::Gradient table = parameters.gradient(0);
    BRIGADE_RETURN_IF_ERROR(parameters.status());
    BRIGADE_RETURN_IF_ERROR(nn::CrossEntropyBackward(IdsOf(batch), precision::DType::kFloat32,
                                                     logits_.data(), seed, stream));
    return nn::EmbeddingBackward(IdsOf(batch), precision::DType::kFloat32, kTokens, logits_.data(),
                                 table, {}, workspace_, stream);
  }

 private:
  static constexpr int64_t kTokens = 16;

  explicit Pairs(const ModelPlace& place)
      : Model({{"table", {{"table", kTokens * kTokens}}, {}}}),
        is_cut_(place.context_ranks.share()) {}
  static nn::TokenIds IdsOf(const models::Batch& batch) {
    return nn::TokenIds::WithLabels(static_cast<const int32_t*>(batch.inputs),
                                    static_cast<const int32_t*>(batch.targets), batch.samples,
                                    batch.positions, kTokens);
  }

  const bool is_cut_;
  models::ModelMemory bytes_;
  device::Buffer logits_;
  nn::Workspace workspace_;
};

TEST(ContextTest, AModelOfOnesOwnTakesItsPart) {
  const Ran whole = TrainAll({}, Pairs::Create);
  for (const char* const exchange : {"ulysses", "ring"}) {
    for (const int context : {2, 4, 8}) {
      const Case of = {.context = context, .exchange = exchange, .stage = context / 3};
      SCOPED_TRACE(Config(of));
      const Ran ran = TrainAll(of, Pairs::Create);
      ExpectNear(ran, whole, "fp32");
      ExpectModelledMemory(ran);
    }
  }
}

ModelFactory Classifier() {
  return [](const ModelPlace& place) {
    return examples::Mlp::Create(place, {4, 9, 3}, examples::Loss::kCrossEntropy);
  };
}

// Numbers that have no positions.
class Points final : public data::Samples {
 public:
  int64_t size() const override { return 16; }
  int64_t input_bytes() const override { return 4 * sizeof(float); }
  int64_t target_bytes() const override { return sizeof(int32_t); }
  absl::Status Read(int64_t, void* input, void* target) const override {
    std::memset(input, 0, 4 * sizeof(float));
    std::memset(target, 0, sizeof(int32_t));
    return absl::OkStatus();
  }
};

TEST(ContextTest, WhatCannotBeSharedIsRefusedByName) {
  const auto refused = [](const Case& of, const ModelFactory& model,
                          std::shared_ptr<const data::Samples> samples, const auto& text) {
    SCOPED_TRACE(Config(of));
    const Training training =
        Make(Shared(of), model, {.training = std::move(samples), .held_out = nullptr, .epochs = 1});
    EXPECT_THAT(TrainAll(training, of.ranks()).status, StatusIs(kInvalid, text));
  };
  const auto tokens = std::make_shared<LongTokens>(16);
  for (const int pipeline : {1, 2}) {
    const Case ring = {.context = 2, .exchange = "ring", .pipeline = pipeline};
    // Images and numbers have no positions, and neither have data that do not say.
    refused(ring, Classifier(), std::make_shared<Points>(),
            HasSubstr("by data::Samples::position_rows"));
    refused(ring, DecoderModel(FourHeads()), std::make_shared<LongTokens>(16, false, false),
            HasSubstr("by data::Samples::position_rows"));
    // A model that has not been made for a part of them, whatever its place says.
    const ModelFactory whole = [](const ModelPlace& place) {
      ModelPlace alone = place;
      alone.context_ranks = {};
      return DecoderModel(FourHeads())(alone);
    };
    refused(ring, whole, tokens, HasSubstr("by Model::cuts_positions"));
    refused(ring, DecoderModel(FourHeads()), std::make_shared<LongTokens>(16, /*apart=*/true),
            HasSubstr("several segments, whose positions are cut over context ranks"));
    models::DecoderConfig odd = FourHeadsOfGpt2();
    odd.heads = odd.key_value_heads = 1;
    odd.head_width = 16;
    refused({.context = 2, .pipeline = pipeline}, DecoderModel(odd), tokens,
            HasSubstr("1 heads 2 context ranks cannot share; in a ring they may"));
    refused({.context = 3, .exchange = "ring", .pipeline = pipeline}, DecoderModel(FourHeads()),
            tokens, HasSubstr("16 positions cannot be cut into two chunks for each of 3"));
    refused({.context = 3, .pipeline = pipeline}, DecoderModel(FourHeads()), tokens,
            HasSubstr("16 positions cannot be cut over 3 context ranks"));
  }
  // All at once.
  refused({.context = 3, .more = R"(, "flops_profiler": {"enabled": true})"}, Classifier(),
          std::make_shared<Points>(), HasSubstr("context parallelism"));
}

// Of all ranks, each of which counts its own.
TEST(ContextTest, AProfileHasTheOperationsOfWholeSamples) {
  const auto profile = [](const Case& base) {
    Case of = base;
    of.more = R"(, "flops_profiler": {"enabled": true, "profile_step": 2, "module_depth": 1})";
    const Training training = Make(Shared(of), DecoderModel(FourHeads()), LongData(kWholeSteps));
    Profiles profiles;
    EXPECT_OK(TrainOnThreads(training.job, *training.task, of.ranks(), {.observer = &profiles}));
    EXPECT_EQ(profiles.events.size(), 1u);
    return profiles.events[0].profile;
  };
  const profile::StepProfile whole = profile({});
  for (const char* const exchange : {"ulysses", "ring"}) {
    const profile::StepProfile shared = profile({.context = 2, .exchange = exchange});
    EXPECT_DOUBLE_EQ(shared.training.flops_per_token, whole.training.flops_per_token);
    EXPECT_DOUBLE_EQ(shared.training.tokens_of_step, whole.training.tokens_of_step);
    ASSERT_EQ(shared.units.size(), whole.units.size());
    for (size_t unit = 0; unit < whole.units.size(); ++unit) {
      for (size_t pass = 0; pass < 2; ++pass) {
        EXPECT_DOUBLE_EQ(shared.units[unit].flops[pass].products,
                         whole.units[unit].flops[pass].products);
        EXPECT_DOUBLE_EQ(shared.units[unit].flops[pass].attention,
                         whole.units[unit].flops[pass].attention);
      }
    }
  }
}

}  // namespace
}  // namespace brigade::train
