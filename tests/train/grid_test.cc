// Trainings of decoders whose matrices, samples, layers and batches ranks share all at once: the
// bits of one tensor rank that has all shards, in any stage of ZeRO.

#include <cstdint>
#include <string>
#include <vector>

#include "brigade/models/config.h"
#include "brigade/models/lora.h"
#include "brigade/tests/testing/status_matchers.h"
#include "brigade/tests/train/delayed_training.h"
#include "brigade/tests/train/trainings.h"
#include "brigade/train/decoder_model.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::train {
namespace {

using ::brigade::testing::StatusIs;
using ::testing::HasSubstr;

// Two shards, each of which two context ranks can share by heads.
models::DecoderConfig GridLlama() {
  return {.vocabulary = 16,
          .layers = 2,
          .width = 16,
          .heads = 4,
          .key_value_heads = 2,
          .head_width = 4,
          .inner = 24,
          .positions = 8};
}
models::DecoderConfig GridGpt2() {
  return {.architecture = models::Architecture::kGpt2,
          .vocabulary = 16,
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

// With adapters what is dropped goes by sample, position and shard.
std::vector<ModelFactory> GridModels() {
  DecoderModelOptions everywhere = Adapters(), over_codes = Adapters();
  everywhere.lora->pattern = over_codes.lora->pattern = ".*";
  over_codes.lora->base = models::BaseFormat::kInt8Blocks;
  return {DecoderModel(GridLlama()), DecoderModel(GridGpt2()), DecoderModel(GridGpt2(), everywhere),
          DecoderModel(GridLlama(), over_codes)};
}

Training MakeGrid(const Case& of, const ModelFactory& model, int64_t size = 19) {
  return Make(of, model, DataOf(/*apart=*/false, size));
}

Ran TrainGrid(const Case& of, const ModelFactory& model, int64_t size = 19) {
  return TrainAll(MakeGrid(of, model, size), of.ranks());
}

// The grids beside one with as many context ranks and both shards on one rank; `all`, or some.
void ExpectBitsOfBothShards(const ModelFactory& model, const std::string& exchange,
                            const std::string& type, bool all, int turn) {
  const Case both = {.shards = 2,
                     .context = 2,
                     .exchange = exchange,
                     .type = type,
                     .overflows = false,
                     .micro_batch = 2};
  const Ran expected = TrainGrid(both, model);
  ASSERT_OK(expected.status);
  for (int stage = 0; stage < 4; ++stage) {
    for (const bool recompute : {false, true}) {
      for (const int pipeline : {1, 2}) {
        for (const int tensor : {1, 2}) {
          if (!all && (tensor == 1 || ++turn % 5 != 0)) continue;
          Case of = both;
          of.tensor = tensor;
          of.pipeline = pipeline;
          if (pipeline > 1 && stage % 2 == 1) of.schedule = "zb-h1";
          of.stage = stage;
          of.recompute = recompute;
          SCOPED_TRACE(Config(of));
          ExpectSame(TrainGrid(of, model), expected);
        }
      }
    }
  }
}

TEST(GridTest, TensorRanksChangeNoBitBesideContextRanks) {
  int turn = 0;
  for (const ModelFactory& model : GridModels()) {
    for (const char* const exchange : {"ring", "ulysses"}) {
      constexpr const char* kTypes[] = {"fp32", "bf16", "fp16"};
      ExpectBitsOfBothShards(model, exchange, kTypes[turn % 3], /*all=*/false, turn);
      ++turn;
    }
  }
}

TEST(GridSoakTest, TensorRanksChangeNoBitBesideContextRanks) {
  for (const ModelFactory& model : GridModels()) {
    for (const char* const exchange : {"ring", "ulysses"}) {
      for (const char* const type : {"fp32", "bf16", "fp16"}) {
        ExpectBitsOfBothShards(model, exchange, type, /*all=*/true, 0);
      }
    }
  }
}

// Context ranks change losses by rounding alone, also of what is dropped in front of a matrix that
// is cut.
TEST(GridTest, LossesAreThoseOfWholeSamplesWithinRounding) {
  for (const ModelFactory& model : GridModels()) {
    const Ran whole = TrainGrid({.shards = 2, .micro_batch = 2}, model);
    ASSERT_OK(whole.status);
    for (const char* const exchange : {"ring", "ulysses"}) {
      const Case of = {.tensor = 2, .context = 2, .exchange = exchange, .data = 2, .stage = 2};
      SCOPED_TRACE(Config(of));
      const Ran ran = TrainGrid(of, model);
      ASSERT_OK(ran.status);
      ASSERT_EQ(ran.losses.size(), whole.losses.size());
      for (size_t step = 0; step < whole.losses.size(); ++step) {
        EXPECT_NEAR(ran.losses[step], whole.losses[step], 1e-4 * whole.losses[step]) << step;
        EXPECT_NEAR(ran.norms[step], whole.norms[step], 5e-4 * whole.norms[step]) << step;
      }
    }
  }
}

TEST(GridTest, WhatIsSentIsByFormula) {
  bool recompute = false;
  for (const ModelFactory& model : GridModels()) {
    for (const char* const exchange : {"ring", "ulysses"}) {
      // Two shards on a rank are two exchanges.
      for (const Case& of :
           {Case{.tensor = 2, .context = 2, .exchange = exchange, .data = 2, .stage = 3},
            Case{.shards = 2, .context = 2, .exchange = exchange, .pipeline = 2},
            Case{.tensor = 2, .context = 2, .exchange = exchange, .pieces = 3, .overlap = true}}) {
        Case with = of;
        with.recompute = recompute = !recompute;
        SCOPED_TRACE(Config(with));
        Training training = MakeGrid(with, model, /*size=*/16);
        training.job.steps = 1;
        const Ran ran = TrainAll(training, with.ranks());
        ExpectModelledMemory(ran);
        ExpectModelledTraffic(ran, /*are_whole=*/true);
      }
    }
  }
}

TEST(GridTest, DelaysChangeNoBitAndNothingIsUnordered) {
  uint64_t seed = 500;
  for (const char* const exchange : {"ring", "ulysses"}) {
    for (const Case& of :
         {Case{.tensor = 2, .context = 2, .exchange = exchange, .stage = 3}, Case{.shards = 2,
                                                                             .context = 2,
                                                                             .exchange = exchange,
                                                                             .pipeline = 2,
                                                                             .schedule = "zb-h1",
                                                                             .stage = 1,
                                                                             .recompute = true}}) {
      SCOPED_TRACE(Config(of));
      Training training = MakeGrid(of, GridModels()[2]);
      training.job.steps = 3;
      ExpectOrdered(training, of.ranks(), ++seed, TrainAll(training, of.ranks()));
    }
  }
}

// 3 steps an epoch: step 4 is inside the second.
TEST(GridTest, GoesOnInsideAnEpochOnAnyGrid) {
  for (const size_t number : {0, 2}) {
    const ModelFactory model = GridModels()[number];
    const Case of_all = {.tensor = 2, .context = 2, .exchange = "ring", .stage = 1};
    const Ran whole = TrainGrid(of_all, model);
    const std::string folder = Folder("grid_resume");
    Training begin = MakeGrid(of_all, model);
    begin.job.steps = 4;
    begin.job.checkpoints.save = folder;
    ASSERT_OK(TrainAll(begin, of_all.ranks()).status);
    for (const Case& of :
         {Case{.shards = 2, .context = 2, .exchange = "ring", .pipeline = 2, .stage = 3},
          Case{.tensor = 2, .data = 2, .stage = 2},
          Case{.tensor = 2, .context = 2, .exchange = "ulysses"}}) {
      SCOPED_TRACE(Config(of));
      Training training = MakeGrid(of, model);
      training.job.checkpoints.resume = folder;
      const Ran ran = TrainAll(training, of.ranks());
      ASSERT_OK(ran.status);
      ASSERT_EQ(ran.losses.size() + 4, whole.losses.size());
      for (size_t step = 0; step < ran.losses.size(); ++step) {
        const double wanted = whole.losses[step + 4];
        if (of.context == 2 && of.exchange == "ring") {
          EXPECT_EQ(ran.losses[step], wanted);
        }
        EXPECT_NEAR(ran.losses[step], wanted, 1e-4 * wanted);
      }
    }
  }
}

TEST(GridTest, HeadsOfAShardThatRanksCannotShareAreRefused) {
  const Case of = {.tensor = 4, .context = 2};
  EXPECT_THAT(TrainGrid(of, DecoderModel(GridGpt2())).status,
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("1 heads of a shard 2 context ranks cannot share")));
}

}  // namespace
}  // namespace brigade::train
