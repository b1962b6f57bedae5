// The passes of both models: gradients against finite differences in double, memory, errors.

#include "brigade/models/decoder.h"

#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "brigade/nn/random.h"
#include "brigade/tests/models/lab.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::models {
namespace {

using ::brigade::testing::StatusIs;
using precision::DType;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int64_t kSamples = 2, kPositions = 7;
constexpr absl::StatusCode kInvalid = absl::StatusCode::kInvalidArgument;

std::vector<int32_t> Ids(int64_t size, int64_t vocabulary, uint64_t seed = 1) {
  nn::Random random(seed, 0);
  std::vector<int32_t> ids;
  for (int64_t i = 0; i < size; ++i) {
    ids.push_back(static_cast<int32_t>(random.Next() % static_cast<uint64_t>(vocabulary)));
  }
  return ids;
}

// Some labels are ignored.
Batch SomeBatch(ModelLab& lab) {
  const int64_t vocabulary = lab.model().config().vocabulary;
  std::vector<int32_t> labels = Ids(kSamples * kPositions, vocabulary, 2);
  labels[1] = labels[9] = kIgnored;
  return {lab.Filled(Ids(kSamples * kPositions, vocabulary)).data(), lab.Filled(labels).data(),
          kSamples, kPositions};
}

class DecoderTest : public ::testing::TestWithParam<DecoderConfig> {};
INSTANTIATE_TEST_SUITE_P(Models, DecoderTest, ::testing::Values(TinyLlama(), TinyGpt2()),
                         [](const auto& info) {
                           return std::string(NameOf(info.param.architecture));
                         });

const DType kType = kOnGpu ? DType::kFloat32 : DType::kFloat64;

// A step along the gradient of a parameter changes the loss by the gradient's square.
TEST_P(DecoderTest, GradientsAreThoseOfTheLoss) {
  if (kOnGpu) GTEST_SKIP() << "products of double are the CPU's";
  ModelLab lab(GetParam(), {.dtype = kType, .samples = kSamples, .positions = kPositions});
  lab.Initialize(3, 20);
  const Batch batch = SomeBatch(lab);
  const auto seed = lab.Filled<float>({0.5f});
  lab.Losses(batch);
  ASSERT_OK(Backward(lab.model(), batch, seed.data(), lab.arrays(), lab.stream()));
  const auto parameters = lab.parameters();
  for (int p = 0; p < lab.arrays().size(); ++p) {
    const std::string& name = parameters[static_cast<size_t>(p)].name;
    SCOPED_TRACE(name);
    lab.ExpectGradientOfLoss(batch, p);
  }
}

TEST_P(DecoderTest, RecomputationChangesNoBitAndMemoryIsAsSaid) {
  std::vector<std::vector<double>> gradients[2];
  int64_t activations[2];
  for (const bool recompute : {false, true}) {
    const DecoderOptions options = {.dtype = DType::kFloat32,
                                    .samples = kSamples,
                                    .positions = kPositions,
                                    .recompute = recompute};
    auto context = device::Context::Create({.device = BRIGADE_LAB_DEVICE}).value();
    const auto memory = Decoder::MemoryOf(GetParam(), options, *context);
    ASSERT_OK(memory);
    const auto alone = Decoder::Create(GetParam(), options, *context);
    ASSERT_OK(alone);
    const device::MemoryStats& stats = context->memory_stats();
    EXPECT_EQ(stats.current_bytes(device::Purpose::kActivations), memory->activations);
    EXPECT_EQ(stats.current_bytes(device::Purpose::kScratch), memory->scratch);
    activations[recompute] = memory->activations;

    ModelLab lab(GetParam(), options);
    lab.Initialize(3, 20);
    const Batch batch = SomeBatch(lab);
    lab.Losses(batch);
    const auto seed = lab.Filled<float>({1.0f});
    ASSERT_OK(Backward(lab.model(), batch, seed.data(), lab.arrays(), lab.stream()));
    for (int p = 0; p < lab.arrays().size(); ++p) {
      gradients[recompute].push_back(lab.Read(lab.arrays().gradient(p), lab.arrays().size_of(p)));
    }
  }
  EXPECT_EQ(gradients[0], gradients[1]);
  EXPECT_LT(activations[1], activations[0]);
}

// Frozen ones have no gradient, and those of the others are the same.
TEST_P(DecoderTest, FrozenParametersAreLeftOut) {
  std::vector<std::vector<double>> gradients[2];
  const auto chosen = [](const std::string& name) {
    return absl::StrContains(name, "v_proj.weight") || absl::StrContains(name, "c_fc.bias") ||
           absl::StrContains(name, "ln_1.bias") || absl::StrContains(name, "wpe") ||
           absl::StrContains(name, "layernorm.weight");
  };
  for (const bool frozen : {false, true}) {
    DecoderOptions options = {
        .dtype = DType::kFloat32, .samples = kSamples, .positions = kPositions};
    if (frozen) options.trainable = chosen;
    ModelLab lab(GetParam(), options);
    lab.Initialize(3, 20);
    const Batch batch = SomeBatch(lab);
    lab.Losses(batch);
    const auto seed = lab.Filled<float>({1.0f});
    ASSERT_OK(Backward(lab.model(), batch, seed.data(), lab.arrays(), lab.stream()));
    const auto parameters = lab.parameters();
    for (int p = 0; p < lab.arrays().size(); ++p) {
      if (!chosen(parameters[static_cast<size_t>(p)].name)) {
        EXPECT_EQ(lab.arrays().gradient(p) == nullptr, frozen);
        continue;
      }
      gradients[frozen].push_back(lab.Read(lab.arrays().gradient(p), lab.arrays().size_of(p)));
    }
  }
  EXPECT_GE(gradients[0].size(), 4u);
  EXPECT_EQ(gradients[0], gradients[1]);
}

TEST_P(DecoderTest, MicroBatchesAddUp) {
  ModelLab lab(GetParam(), {.dtype = kType, .samples = kSamples, .positions = kPositions});
  lab.Initialize(3, 20);
  const Batch batch = SomeBatch(lab);
  const auto seed = lab.Filled<float>({1.0f});
  std::vector<std::vector<double>> once;
  for (const int times : {1, 2}) {
    lab.arrays().BeginGradients();
    for (int i = 0; i < times; ++i) {
      lab.Losses(batch);
      ASSERT_OK(Backward(lab.model(), batch, seed.data(), lab.arrays(), lab.stream()));
    }
    for (int p = 0; p < lab.arrays().size(); ++p) {
      const auto gradient = lab.Read(lab.arrays().gradient(p), lab.arrays().size_of(p));
      if (times == 1) {
        once.push_back(gradient);
        continue;
      }
      double most = 0;
      for (const double g : gradient) most = std::max(most, std::abs(g));
      for (size_t i = 0; i < gradient.size(); ++i) {
        ASSERT_NEAR(gradient[i], 2 * once[static_cast<size_t>(p)][i], 1e-5 * most) << p;
      }
    }
  }
}

// Less than the memory is for, and the shorter of two texts padded.
TEST_P(DecoderTest, WhatIsBehindATextHasNoPartInIt) {
  ModelLab lab(GetParam(), {.dtype = kType, .samples = kSamples, .positions = kPositions});
  lab.Initialize(3, 20);
  const int64_t vocabulary = GetParam().vocabulary;
  std::vector<int32_t> ids = Ids(kSamples * kPositions, vocabulary);
  std::vector<int32_t> labels = Ids(kSamples * kPositions, vocabulary, 2);
  for (size_t i = kPositions + 4; i < 2 * kPositions; ++i) labels[i] = kIgnored;
  const double padded =
      lab.SumOfLosses({lab.Filled(ids).data(), lab.Filled(labels).data(), kSamples, kPositions});
  for (size_t i = kPositions + 4; i < 2 * kPositions; ++i) ids[i] = 0;
  EXPECT_EQ(
      lab.SumOfLosses({lab.Filled(ids).data(), lab.Filled(labels).data(), kSamples, kPositions}),
      padded);
  const auto part = [](const std::vector<int32_t>& all, size_t begin, size_t count) {
    return std::vector<int32_t>(all.begin() + static_cast<long>(begin),
                                all.begin() + static_cast<long>(begin + count));
  };
  double apart = 0;
  for (const auto& [begin, count] : {std::pair<size_t, size_t>{0, kPositions}, {kPositions, 4}}) {
    apart += lab.SumOfLosses({lab.Filled(part(ids, begin, count)).data(),
                              lab.Filled(part(labels, begin, count)).data(), 1,
                              static_cast<int64_t>(count)});
  }
  EXPECT_NEAR(apart, padded, 1e-5 * padded);
}

TEST_P(DecoderTest, ATextReadInPiecesHasTheLogitsOfTheWholeText) {
  constexpr int64_t kLength = 12;
  ModelLab lab(GetParam(), {.dtype = kType,
                            .samples = kSamples,
                            .positions = kLength,
                            .trains = false,
                            .cached_positions = kLength});
  lab.Initialize(3, 20);
  const int64_t vocabulary = GetParam().vocabulary;
  const std::vector<int32_t> ids = Ids(kSamples * kLength, vocabulary);
  lab.Losses({lab.Filled(ids).data(), lab.Filled(std::vector<int32_t>(ids.size(), kIgnored)).data(),
              kSamples, kLength});
  const std::vector<double> whole = lab.Read(lab.model().logits(), kSamples * kLength * vocabulary);
  for (const std::vector<int64_t>& pieces :
       std::vector<std::vector<int64_t>>{{12}, {5, 7}, {3, 1, 1, 6, 1}}) {
    int64_t first = 0;
    for (const int64_t count : pieces) {
      std::vector<int32_t> piece;
      for (int64_t s = 0; s < kSamples; ++s) {
        for (int64_t t = 0; t < count; ++t) {
          piece.push_back(ids[static_cast<size_t>(s * kLength + first + t)]);
        }
      }
      ASSERT_OK(lab.model().Continue({lab.Filled(piece).data(), nullptr, kSamples, count}, first,
                                     lab.arrays(), lab.stream()));
      const auto logits = lab.Read(lab.model().logits(), kSamples * count * vocabulary);
      for (int64_t s = 0; s < kSamples; ++s) {
        for (int64_t i = 0; i < count * vocabulary; ++i) {
          ASSERT_NEAR(logits[static_cast<size_t>(s * count * vocabulary + i)],
                      whole[static_cast<size_t>((s * kLength + first) * vocabulary + i)],
                      kOnGpu ? 1e-4 : 1e-12)
              << s << " " << first << " " << i;
        }
      }
      first += count;
    }
  }
  EXPECT_THAT(lab.model().Continue({lab.Filled(ids).data(), nullptr, kSamples, 1}, kLength,
                                   lab.arrays(), lab.stream()),
              StatusIs(kInvalid, HasSubstr("1 positions behind 12; the model keeps 12 and can "
                                           "keep 12")));
  ASSERT_OK(lab.model().Continue({lab.Filled(ids).data(), nullptr, kSamples, 2}, 0, lab.arrays(),
                                 lab.stream()));
  EXPECT_THAT(lab.model().Continue({lab.Filled(ids).data(), nullptr, kSamples, 1}, 3, lab.arrays(),
                                   lab.stream()),
              StatusIs(kInvalid, HasSubstr("keeps 2")));
  EXPECT_THAT(
      lab.model().Continue({lab.Filled(ids).data(), nullptr, 1, 1}, 2, lab.arrays(), lab.stream()),
      StatusIs(kInvalid, HasSubstr("positions of 1 samples; the model keeps those of 2")));
}

TEST_P(DecoderTest, RefusesWhatItHasNoMemoryFor) {
  ModelLab lab(GetParam(), {.dtype = DType::kFloat32, .samples = 2, .positions = 4});
  lab.Initialize(3, 1);
  const auto ids = lab.Filled(std::vector<int32_t>(20, 1));
  const auto forward = [&](const Batch& batch) {
    return Forward(lab.model(), batch, nullptr, lab.arrays(), lab.stream());
  };
  for (const auto& [samples, positions] :
       {std::pair<int64_t, int64_t>{3, 4}, {2, 5}, {0, 4}, {2, 0}, {-1, 4}}) {
    EXPECT_THAT(forward({ids.data(), nullptr, samples, positions}),
                StatusIs(kInvalid, HasSubstr("the model has memory for 2 of 4")));
  }
  EXPECT_THAT(forward({nullptr, nullptr, 2, 4}), StatusIs(kInvalid, HasSubstr("without inputs")));
  ASSERT_OK(forward({ids.data(), nullptr, 2, 4}));
  const auto seed = lab.Filled<float>({1.0f});
  EXPECT_THAT(
      Backward(lab.model(), {ids.data(), nullptr, 2, 4}, seed.data(), lab.arrays(), lab.stream()),
      StatusIs(kInvalid, HasSubstr("without targets")));
  EXPECT_THAT(lab.model().Continue({ids.data(), nullptr, 2, 1}, 0, lab.arrays(), lab.stream()),
              StatusIs(kInvalid, HasSubstr("can keep 0")));
  ASSERT_OK(lab.stream().Synchronize());

  auto context = device::Context::Create({}).value();
  const auto create = [&](const DecoderOptions& options) {
    return Decoder::Create(GetParam(), options, *context).status();
  };
  EXPECT_THAT(create({.samples = 0}), StatusIs(kInvalid, HasSubstr("0 samples")));
  EXPECT_THAT(create({.positions = 33}),
              StatusIs(kInvalid, HasSubstr("33 positions; it must be 1 to 32")));
  EXPECT_THAT(create({.cached_positions = 33}), StatusIs(kInvalid, HasSubstr("keeps 33")));
  EXPECT_THAT(create({.dtype = DType::kInt32}), StatusIs(kInvalid, HasSubstr("fp32")));
  // Sizes whose bytes have no number.
  DecoderConfig vast = GetParam();
  vast.vocabulary = int64_t{1} << 30;
  vast.positions = int64_t{1} << 30;
  vast.layers = 10000;
  const DecoderOptions most = {.samples = 2, .positions = int64_t{1} << 30};
  EXPECT_THAT(Decoder::MemoryOf(vast, most, *context),
              StatusIs(kInvalid, HasSubstr("bytes of activations")));
}

TEST_P(DecoderTest, AnIdThatIsNoneOfTheVocabularyGivesNaN) {
  ModelLab lab(GetParam(), {.dtype = DType::kFloat32, .samples = 1, .positions = 2});
  lab.Initialize(3, 1);
  const auto good = lab.Filled<int32_t>({1, 2});
  EXPECT_FALSE(std::isnan(lab.SumOfLosses({good.data(), good.data(), 1, 2})));
  const auto bad = lab.Filled<int32_t>({1, 23});
  EXPECT_TRUE(std::isnan(lab.SumOfLosses({bad.data(), good.data(), 1, 2})));
  EXPECT_TRUE(std::isnan(lab.SumOfLosses({good.data(), bad.data(), 1, 2})));
  const auto negative = lab.Filled<int32_t>({1, -99});
  EXPECT_TRUE(std::isnan(lab.SumOfLosses({good.data(), negative.data(), 1, 2})));
}

}  // namespace
}  // namespace brigade::models
