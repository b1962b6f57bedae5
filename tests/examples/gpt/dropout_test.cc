// Which mask each place, micro-batch and step of a training has. That the gradients are those of
// the losses, with every policy of recomputation, is in transformer_test; whole trainings with
// dropout are in training_test and resumed_training_test.

#include "brigade/nn/dropout.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "brigade/device/tracing/tracer.h"
#include "brigade/examples/gpt/activations.h"
#include "brigade/examples/gpt/part_plan.h"
#include "brigade/examples/gpt/training.h"
#include "brigade/examples/gpt/transformer.h"
#include "brigade/nn/cross_entropy.h"
#include "brigade/nn/embedding.h"
#include "brigade/nn/layer_norm.h"
#include "brigade/nn/linear.h"
#include "brigade/recompute/planner.h"
#include "brigade/recompute/schedule.h"
#include "brigade/tests/examples/gpt/plain_parameters.h"
#include "brigade/tests/nn/lab.h"
#include "brigade/train/config/config.h"
#include "brigade/train/observers/history.h"
#include "gmock/gmock.h"

namespace brigade::gpt {
namespace {

using precision::DType;

constexpr ModelOptions kModel = {.layers = 2, .heads = 2, .width = 16, .context = 8};

std::unique_ptr<Transformer> Create(const ModelOptions& model, int64_t batch, DType dtype,
                                    device::Context& context) {
  const recompute::Chain chain = ActivationChain({model, batch, dtype});
  auto schedule = recompute::Place(chain, recompute::PlanNone(chain).value()).value();
  return Transformer::Create({model, batch, dtype}, PartPlan::Whole(model, std::move(schedule)),
                             context)
      .value();
}

TEST(DropoutTest, EachPlaceHasAMaskOfItsOwn) {
  constexpr int64_t kBatch = 3, kWidth = kModel.width, kRows = kBatch * kModel.context;
  nn::Lab lab;
  const auto step = lab.Raw<int64_t>(1);
  step[0] = 5;
  nn::DropoutMask mask = {
      .probability = 0.4, .seed = 3, .step = step.data(), .first_element = 7 * kWidth};
  // Blocks add a bias to each row, and nothing else.
  PlainParameters<float> parameters(kModel, 1);
  const auto weights = [&](int parameter) -> std::vector<float>& {
    return parameters.weights[static_cast<size_t>(parameter)];
  };
  for (int64_t layer = 0; layer < kModel.layers; ++layer) {
    for (const Block product : {kProjectionWeight, kContractWeight}) {
      std::vector<float>& matrix = weights(BlockParameter(layer, product));
      std::fill(matrix.begin(), matrix.end(), 0.0f);
    }
    for (const Block bias : {kProjectionBias, kContractBias}) {
      const auto noise = lab.Noise<float>(kWidth);
      weights(BlockParameter(layer, bias)).assign(noise.begin(), noise.end());
    }
  }
  const nn::Texts texts = {lab.Bytes(kBatch * (kModel.context + 1)).data(), kBatch, kModel.context};
  const auto losses = lab.Raw<float>(kRows);
  const auto transformer = Create(kModel, kBatch, DType::kFloat32, lab.context());
  ASSERT_OK(transformer->Forward({}, texts, losses.data(), mask, parameters, lab.stream()));

  const auto x = lab.Raw<float>(kRows * kWidth);
  ASSERT_OK(nn::Embedding(texts, DType::kFloat32, kWidth, weights(kTokens).data(),
                          weights(kPositions).data(), x.data(), lab.stream()));
  mask.layer = 0;
  ASSERT_OK(nn::Dropout(DType::kFloat32, kRows * kWidth, mask, x.data(), nullptr, x.data(),
                        lab.stream()));
  for (int64_t layer = 0; layer < kModel.layers; ++layer) {
    for (const Block bias : {kProjectionBias, kContractBias}) {
      const auto branch = lab.Raw<float>(kRows * kWidth);
      for (size_t i = 0; i < branch.size(); ++i) {
        branch[i] = weights(BlockParameter(layer, bias))[i % static_cast<size_t>(kWidth)];
      }
      ++mask.layer;
      ASSERT_OK(nn::Dropout(DType::kFloat32, kRows * kWidth, mask, branch.data(), x.data(),
                            x.data(), lab.stream()));
    }
  }
  const auto norm = lab.Raw<float>(kRows * kWidth), mean = lab.Raw<float>(kRows),
             inverse = lab.Raw<float>(kRows), logits = lab.Raw<float>(kRows * nn::kVocabulary),
             wanted = lab.Raw<float>(kRows);
  ASSERT_OK(nn::LayerNorm(
      {DType::kFloat32, x.data(), weights(HeadParameter(kModel, kFinalNormWeight)).data(),
       mean.data(), inverse.data(), kRows, kWidth},
      weights(HeadParameter(kModel, kFinalNormBias)).data(), norm.data(), lab.stream()));
  const auto blas = nn::Blas::Create(lab.context(), 0).value();
  ASSERT_OK(nn::Linear(
      {DType::kFloat32, norm.data(), weights(kTokens).data(), kRows, kWidth, nn::kVocabulary},
      nullptr, logits.data(), *blas, lab.stream()));
  ASSERT_OK(nn::CrossEntropy(texts, DType::kFloat32, logits.data(), wanted.data(), lab.stream()));
  ASSERT_OK(lab.stream().Synchronize());
  EXPECT_EQ(std::vector<float>(losses.begin(), losses.end()),
            std::vector<float>(wanted.begin(), wanted.end()));
}

TEST(DropoutTest, MicroBatchesHaveTheirPartsOfOneMask) {
  constexpr int64_t kBatch = 4;
  nn::Lab lab;
  const auto step = lab.Raw<int64_t>(1);
  step[0] = 5;
  nn::DropoutMask mask = {.probability = 0.5, .seed = 3, .step = step.data()};
  PlainParameters<float> parameters(kModel, 1);
  const uint8_t* const bytes = lab.Bytes(kBatch * (kModel.context + 1)).data();
  const auto losses = lab.Raw<float>(kBatch * kModel.context);
  const auto whole = Create(kModel, kBatch, DType::kFloat32, lab.context());
  ASSERT_OK(whole->Forward({}, {bytes, kBatch, kModel.context}, losses.data(), mask, parameters,
                           lab.stream()));
  const auto half = Create(kModel, kBatch / 2, DType::kFloat32, lab.context());
  const nn::Texts second = {bytes + kBatch / 2 * (kModel.context + 1), kBatch / 2, kModel.context};
  // The largest difference of a loss of the second half.
  const auto difference = [&](int64_t first_text) {
    mask.first_element = first_text * kModel.context * kModel.width;
    const auto parts = lab.Raw<float>(second.rows());
    EXPECT_OK(half->Forward({}, second, parts.data(), mask, parameters, lab.stream()));
    EXPECT_OK(lab.stream().Synchronize());
    float most = 0;
    for (int64_t r = 0; r < second.rows(); ++r) {
      const auto at = static_cast<size_t>(r);
      most = std::max(most, std::abs(parts[at] - losses[static_cast<size_t>(second.rows()) + at]));
    }
    return most;
  };
  EXPECT_LT(difference(kBatch / 2), 1e-5f);
  EXPECT_GT(difference(0), 1e-2f);
}

TEST(DropoutTest, WithoutDropoutNothingIsEnqueuedForIt) {
  nn::Lab lab;
  const auto step = lab.Raw<int64_t>(1);
  step[0] = 0;
  PlainParameters<float> parameters(kModel, 1);
  const nn::Texts texts = {lab.Bytes(kModel.context + 1).data(), 1, kModel.context};
  const auto losses = lab.Raw<float>(texts.rows()), seed = lab.Raw<float>(1);
  seed[0] = 1;
  for (const double probability : {0.0, 0.1}) {
    device::Tracer tracer;
    device::ContextOptions options;
    options.tracer = &tracer;
    const auto context = device::Context::Create(options).value();
    const auto stream = context->CreateStream("compute").value();
    const auto transformer = Create(kModel, 1, DType::kFloat32, *context);
    const nn::DropoutMask mask = {.probability = probability, .step = step.data()};
    ASSERT_OK(transformer->Forward({}, texts, losses.data(), mask, parameters, *stream));
    ASSERT_OK(transformer->Backward({}, texts, seed.data(), mask, parameters, *stream));
    ASSERT_OK(stream->Synchronize());
    int forward = 0, backward = 0;
    for (const device::TracedStream& traced : tracer.Take()) {
      for (const device::TracedOperation& operation : traced.operations) {
        forward += operation.name == "dropout" ? 1 : 0;
        backward += operation.name == "dropout_backward" ? 1 : 0;
      }
    }
    // Of the embedding, and two for each block.
    const int places = probability > 0 ? 1 + 2 * static_cast<int>(kModel.layers) : 0;
    EXPECT_EQ(forward, places);
    EXPECT_EQ(backward, places);
  }
}

Job CreateJob(const std::string& keys) {
  Job job;
  job.model = kModel;
  job.config =
      train::ParseConfig(
          absl::StrCat(R"({"train_batch_size": 4, "optimizer": {"type": "Adam"}, )", keys, "}"), 1)
          .value();
  job.corpus = ReadLicences().value();
  job.corpus.held_out.resize(500);
  job.seed = 9;
  return job;
}

void Train(const Job& job, train::History& history) {
  const std::atomic<bool> stop = false;
  ASSERT_OK(TrainOnThreads(job, 1, {&history, nullptr, &stop}));
}

// With this scale the gradients of all steps overflow, and the weights stay as they began.
TEST(DropoutTest, ASkippedStepCountsForTheMasks) {
  Job job = CreateJob(R"("brigade": {"dropout": 0.3},
      "fp16": {"enabled": true, "initial_scale_power": 40, "hysteresis": 1})");
  job.steps = 4;
  train::History history;
  Train(job, history);
  ASSERT_EQ(history.steps().size(), 4u);

  nn::Lab lab;
  PlainParameters<precision::Half> parameters(job.model, job.seed);
  const auto transformer = Create(job.model, 4, DType::kFloat16, lab.context());
  const auto iteration = lab.Raw<int64_t>(1);
  const auto bytes = lab.Raw<uint8_t>(4 * (kModel.context + 1));
  const nn::Texts texts = {bytes.data(), 4, kModel.context};
  const auto losses = lab.Raw<float>(texts.rows()), mean = lab.Raw<float>(1);
  const auto parts = lab.Raw<double>(nn::PartsOfLosses(texts.rows()));
  for (int64_t step = 0; step < job.steps; ++step) {
    EXPECT_TRUE(history.steps()[static_cast<size_t>(step)].skipped);
    const auto size = static_cast<size_t>(kModel.context + 1);
    for (size_t i = 0; i < 4; ++i) {
      const auto sample = static_cast<int64_t>(i);
      SampleText(job.corpus, job.seed, step, sample, bytes.subspan(i * size, size));
    }
    iteration[0] = step;
    const nn::DropoutMask mask = {.probability = 0.3, .seed = job.seed, .step = iteration.data()};
    ASSERT_OK(transformer->Forward({}, texts, losses.data(), mask, parameters, lab.stream()));
    ASSERT_OK(nn::MeanOfLosses(DType::kFloat32, losses.data(), texts.rows(), parts.data(),
                               mean.data(), lab.stream()));
    ASSERT_OK(lab.stream().Synchronize());
    EXPECT_EQ(history.steps()[static_cast<size_t>(step)].loss, static_cast<double>(mean[0]))
        << step;
  }
}

TEST(DropoutTest, AResumedTrainingHasTheDropoutOfItsCheckpoint) {
  const auto job = [](double dropout) {
    Job result = CreateJob(absl::StrCat(R"("brigade": {"dropout": )", dropout, "}"));
    result.steps = 2;
    return result;
  };
  const std::string folder = absl::StrCat(::testing::TempDir(), "/dropout");
  Job saved = job(0.25);
  saved.checkpoints.save = folder;
  train::History history;
  Train(saved, history);
  const auto resume = [&](double dropout, const std::vector<std::string>& may_differ) {
    Job resumed = job(dropout);
    resumed.steps = 3;
    resumed.checkpoints = {.resume = folder, .may_differ = may_differ};
    const std::atomic<bool> stop = false;
    return TrainOnThreads(resumed, 1, {nullptr, nullptr, &stop}).status();
  };
  EXPECT_OK(resume(0.25, {}));
  EXPECT_THAT(
      resume(0.5, {}),
      testing::StatusIs(absl::StatusCode::kInvalidArgument,
                        ::testing::HasSubstr("dropout is 0.25 in the checkpoint, 0.5 here")));
  EXPECT_THAT(
      resume(0, {}),
      testing::StatusIs(absl::StatusCode::kInvalidArgument,
                        ::testing::HasSubstr("dropout is 0.25 in the checkpoint, and not known")));
  EXPECT_OK(resume(0, {"dropout"}));
}

TEST(DropoutTest, EvaluationsAreWithoutIt) {
  std::array<train::History, 2> histories;
  for (const double dropout : {0.0, 0.5}) {
    Job job = CreateJob(absl::StrCat(R"("brigade": {"dropout": )", dropout, "}"));
    job.steps = 1;
    Train(job, histories[dropout > 0 ? 1 : 0]);
  }
  EXPECT_EQ(histories[1].evaluations()[0].held_out_loss,
            histories[0].evaluations()[0].held_out_loss);
  EXPECT_NE(histories[1].steps()[0].loss, histories[0].steps()[0].loss);
}

}  // namespace
}  // namespace brigade::gpt
