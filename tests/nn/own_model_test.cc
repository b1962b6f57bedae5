// The model of own_model.h: its gradient, and its training by a ZeroOptimizer on two ranks.

#include "brigade/tests/nn/own_model.h"

#include <array>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "brigade/device/race_checker/race_checker.h"
#include "brigade/nn/random.h"
#include "brigade/optim/step_controller.h"
#include "brigade/tests/collectives/ranks.h"
#include "brigade/tests/nn/lab.h"
#include "brigade/tests/testing/status_matchers.h"
#include "brigade/zero/zero_optimizer.h"
#include "gtest/gtest.h"

namespace brigade {
namespace {

// Id i is followed by 7 i + 3.
void FillIds(int rank, absl::Span<int32_t> ids) {
  nn::Random random(1, static_cast<uint64_t>(rank));
  for (size_t i = 0; i < ids.size(); ++i) {
    const bool is_first = i % (kContext + 1) == 0;
    const uint64_t id = is_first ? random.Next() : 7 * static_cast<uint64_t>(ids[i - 1]) + 3;
    ids[i] = static_cast<int32_t>(id % kVocabulary);
  }
}

void InitializeWeights(int weight, absl::Span<float> values) {
  nn::Random random(2, static_cast<uint64_t>(weight));
  const bool is_norm = weight == kNorm1 || weight == kNorm2 || weight == kNorm3;
  for (float& value : values) {
    value = is_norm ? 1.0f : static_cast<float>(0.3 * (2 * random.Uniform() - 1));
  }
}

// The program of one rank. The host waits for no step: the mean losses come at the end.
void TrainOwnModel(collectives::Rank& self, int stage, std::vector<float>& mean_losses) {
  zero::ZeroOptions options;
  options.stage = stage;
  options.dtype = kType;
  options.optimizer.groups = {{.lr = 0.01}};
  auto zero =
      zero::ZeroOptimizer::Create(kSpec, options, *self.communicator, *self.context, *self.stream)
          .value();
  ASSERT_OK(zero->InitializeParameters([](int weight, absl::Span<float> values) {
    InitializeWeights(weight, values);
    return absl::OkStatus();
  }));
  OwnModel model = {{*self.context,
                     *self.stream,
                     {.probability = 0.1,
                      .seed = 3,
                      .step = &zero->controller().state()->iteration,
                      .first_element = self.rank * kSize}}};

  // Memory of the host, which GPUs reach; but for the loss's own gradient, which is on the device.
  const auto host = [&](int64_t bytes) {
    return self.context->AllocateHost(bytes, device::Purpose::kScratch).value();
  };
  const device::Buffer ids = host(kBatch * (kContext + 1) * 4), one = host(4);
  const device::Buffer means = host(static_cast<int64_t>(mean_losses.size()) * 4);
  const device::Buffer sums = host(nn::PartsOfLosses(kRows) * 8);
  FillIds(self.rank, ids.as<int32_t>());
  one.as<float>()[0] = 1.0f;
  const nn::TokenIds tokens = {ids.as<int32_t>().data(), kBatch, kContext, kVocabulary};
  float *const seed = model.Array(1), *const scaled = model.Array(1);
  ASSERT_OK(self.stream->Copy(seed, one.data(), 4));
  for (size_t step = 0; step < mean_losses.size(); ++step) {
    ASSERT_OK(model.Forward(tokens, *zero));
    ASSERT_OK(nn::MeanOfLosses(kType, model.losses, kRows, sums.as<double>().data(),
                               means.as<float>().data() + step, *self.stream));
    ASSERT_OK(zero->ScaleLoss(seed, scaled, 1, kType));
    ASSERT_OK(model.Backward(tokens, scaled, *zero));
    ASSERT_OK(zero->FinishBackward());
    ASSERT_OK(zero->Step());
  }
  ASSERT_OK(self.stream->Synchronize());
  mean_losses.assign(means.as<float>().begin(), means.as<float>().end());
}

// The losses of each rank.
using Losses = std::array<std::vector<float>, 2>;

// Emulated GPUs are slow.
const size_t kSteps = nn::kOnGpu ? 15 : 40;

Losses LossesOfTraining(int stage) {
  Losses losses;
  device::RaceChecker checker;
  collectives::OnThreads({.size = 2, .race_checker = &checker, .device = BRIGADE_LAB_DEVICE},
                         [&](collectives::Rank& self) {
                           auto& of_rank = losses[static_cast<size_t>(self.rank)];
                           of_rank.resize(kSteps);
                           TrainOwnModel(self, stage, of_rank);
                         });
  for (const device::Race& race : checker.reports()) ADD_FAILURE() << race.message;
  return losses;
}

TEST(OwnModelTest, LearnsWhatFollowsAnIdTheSameInEveryStage) {
  const Losses losses = LossesOfTraining(3);
  for (const std::vector<float>& of_rank : losses) {
    EXPECT_NEAR(of_rank.front(), std::log(kVocabulary), 0.5);
    EXPECT_LT(of_rank.back(), (nn::kOnGpu ? 0.9 : 0.5) * of_rank.front());
  }
  EXPECT_NE(losses[0], losses[1]);
  EXPECT_EQ(LossesOfTraining(0), losses);
}

// Weights and gradients as plain arrays.
class PlainSource final : public zero::ParameterSource {
 public:
  explicit PlainSource(nn::Lab& lab) {
    for (const zero::ParameterSpec& parameter : kSpec[0].parameters) {
      weights.push_back(lab.Raw<float>(parameter.size));
      gradients.push_back(lab.Raw<float>(parameter.size));
      InitializeWeights(static_cast<int>(weights.size()) - 1, weights.back());
    }
  }

  absl::Status Acquire(int, zero::Pass) override { return absl::OkStatus(); }
  absl::Status Release(int) override { return absl::OkStatus(); }
  absl::StatusOr<const void*> Weights(int weight) const override {
    return weights[static_cast<size_t>(weight)].data();
  }
  precision::DType TypeOf(int) const override { return kType; }
  absl::StatusOr<zero::GradientTarget> Gradient(int, int weight) override {
    return zero::GradientTarget{gradients[static_cast<size_t>(weight)].data()};
  }
  absl::Status GradientsReady(int) override { return absl::OkStatus(); }

  std::vector<absl::Span<float>> weights, gradients;
};

// A step along the gradient of a weight changes the loss by the gradient's square, if that is what
// it is; the mask is the same at every point.
TEST(OwnModelTest, ItsGradientIsThatOfItsLoss) {
  nn::Lab lab;
  PlainSource source(lab);
  const auto ids = lab.Raw<int32_t>(kBatch * (kContext + 1));
  FillIds(0, ids);
  const nn::TokenIds tokens = {ids.data(), kBatch, kContext, kVocabulary};
  const auto step = lab.Raw<int64_t>(1);
  step[0] = 1;
  OwnModel model = {
      {lab.context(), lab.stream(), {.probability = 0.3, .seed = 3, .step = step.data()}}};
  const auto losses = lab.Raw<float>(kRows), seed = lab.Raw<float>(1);
  seed[0] = 1;
  const auto loss = [&] {
    EXPECT_OK(model.Forward(tokens, source));
    EXPECT_OK(lab.stream().Copy(losses.data(), model.losses, kRows * 4));
    EXPECT_OK(lab.stream().Synchronize());
    double sum = 0;
    for (const float of_row : losses) sum += static_cast<double>(of_row);
    return sum / kRows;
  };
  loss();
  ASSERT_OK(model.Backward(tokens, seed.data(), source));
  ASSERT_OK(lab.stream().Synchronize());
  for (size_t w = 0; w < source.weights.size(); ++w) {
    double square = 0;
    for (const float g : source.gradients[w]) square += static_cast<double>(g * g);
    // The loss changes by 2e-2, and is known to about 1e-6.
    const double length = 1e-2 / square;
    const auto move = [&](double by) {
      for (size_t i = 0; i < source.weights[w].size(); ++i) {
        source.weights[w][i] += static_cast<float>(by * length) * source.gradients[w][i];
      }
    };
    move(1);
    const double above = loss();
    move(-2);
    const double below = loss();
    move(1);
    EXPECT_NEAR(above - below, 2e-2, 2e-4) << kSpec[0].parameters[w].name;
  }
}

}  // namespace
}  // namespace brigade
