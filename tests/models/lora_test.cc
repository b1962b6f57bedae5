// The passes with adapters: gradients against finite differences in double, dropout, memory, a base
// of int8 blocks, errors.

#include "brigade/models/lora.h"

#include <cmath>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "brigade/nn/random.h"
#include "brigade/tests/models/lab.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::models {
namespace {

using ::brigade::testing::StatusIs;
using precision::DType;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int64_t kSamples = 2, kPositions = 7;
constexpr absl::StatusCode kInvalid = absl::StatusCode::kInvalidArgument;
const DType kType = kOnGpu ? DType::kFloat32 : DType::kFloat64;

std::vector<int32_t> Ids(int64_t size, int64_t vocabulary, uint64_t seed) {
  nn::Random random(seed, 0);
  std::vector<int32_t> ids;
  for (int64_t i = 0; i < size; ++i) {
    ids.push_back(static_cast<int32_t>(random.Next() % static_cast<uint64_t>(vocabulary)));
  }
  return ids;
}

Batch SomeBatch(ModelLab& lab) {
  const int64_t vocabulary = lab.model().config().vocabulary;
  std::vector<int32_t> labels = Ids(kSamples * kPositions, vocabulary, 2);
  labels[1] = labels[9] = kIgnored;
  return {lab.Filled(Ids(kSamples * kPositions, vocabulary, 1)).data(), lab.Filled(labels).data(),
          kSamples, kPositions};
}

// All layers that there are.
LoraOptions Everything() { return {.rank = 3, .alpha = 5, .pattern = ".*"}; }

DecoderOptions With(const LoraOptions& lora, DType dtype = DType::kFloat32) {
  return {.dtype = dtype, .samples = kSamples, .positions = kPositions, .lora = lora};
}

// Adapters that change something: of a new training they do not.
void FillAdapters(ModelLab& lab) {
  for (int p = 0; p < lab.arrays().size(); ++p) {
    if (!lab.model().roles()[static_cast<size_t>(p)].is_adapter()) continue;
    nn::Random random(11, static_cast<uint64_t>(p));
    std::vector<double> values(static_cast<size_t>(lab.arrays().size_of(p)));
    for (double& value : values) value = random.Uniform() - 0.5;
    lab.Write(values, lab.arrays().weights(p));
  }
}

class LoraModelTest : public ::testing::TestWithParam<DecoderConfig> {};
INSTANTIATE_TEST_SUITE_P(Models, LoraModelTest, ::testing::Values(TinyLlama(), TinyGpt2()),
                         [](const auto& info) {
                           return std::string(NameOf(info.param.architecture));
                         });

// A step along the gradient of a parameter changes the loss by the gradient's square.
TEST_P(LoraModelTest, GradientsAreThoseOfTheLossWithAndWithoutDropout) {
  if (kOnGpu) GTEST_SKIP() << "products of double are the CPU's";
  for (const bool drops : {false, true}) {
    SCOPED_TRACE(drops);
    LoraOptions lora = Everything();
    if (drops) lora.dropout = 0.3;
    ModelLab lab(GetParam(), With(lora, kType));
    lab.Initialize(3, 20);
    FillAdapters(lab);
    Batch batch = SomeBatch(lab);
    if (drops) batch.step = lab.Filled<int64_t>({4}).data();
    const auto seed = lab.Filled<float>({0.5f});
    lab.Losses(batch);
    ASSERT_OK(Backward(lab.model(), batch, seed.data(), lab.arrays(), lab.stream()));
    const auto parameters = lab.parameters();
    int trained = 0;
    for (int p = 0; p < lab.arrays().size(); ++p) {
      const std::string& name = parameters[static_cast<size_t>(p)].name;
      ASSERT_EQ(lab.arrays().gradient(p) != nullptr, absl::StrContains(name, ".lora_")) << name;
      if (lab.arrays().gradient(p) == nullptr) continue;
      ++trained;
      SCOPED_TRACE(name);
      lab.ExpectGradientOfLoss(batch, p);
    }
    // Of each block 7 layers of Llama, 4 of GPT-2; one or two tables, and the head.
    EXPECT_EQ(trained, GetParam().architecture == Architecture::kLlama ? 2 * 16 : 2 * 11);
  }
}

TEST_P(LoraModelTest, NewAdaptersChangeNoBitOfTheLogits) {
  std::vector<double> logits[2];
  for (const bool adapted : {false, true}) {
    DecoderOptions options = With(Everything());
    if (!adapted) options.lora.reset();
    ModelLab lab(GetParam(), options);
    // By name: adapters lie between the others.
    for (int p = 0; p < lab.arrays().size(); ++p) {
      const ParameterRole& role = lab.model().roles()[static_cast<size_t>(p)];
      std::vector<float> values(static_cast<size_t>(lab.arrays().size_of(p)));
      lab.model().Initialize(p, 3, absl::MakeSpan(values));
      if (role.is_base()) {
        nn::Random random(std::hash<std::string>()(role.name), 0);
        for (float& value : values) value = static_cast<float>(random.Uniform() - 0.3);
      }
      lab.Write({values.begin(), values.end()}, lab.arrays().weights(p));
    }
    lab.Losses(SomeBatch(lab));
    logits[adapted] = lab.Read(lab.model().logits(), kSamples * kPositions * GetParam().vocabulary);
    if (!adapted) continue;
    FillAdapters(lab);
    lab.Losses(SomeBatch(lab));
    EXPECT_NE(lab.Read(lab.model().logits(), kSamples * kPositions * GetParam().vocabulary),
              logits[1]);
  }
  EXPECT_EQ(logits[0], logits[1]);
}

// As PEFT: A of a linear layer within 1/sqrt(inputs), and over all of it; B of a table normal.
TEST_P(LoraModelTest, NewAdaptersAreAsPeftHasThem) {
  LoraOptions lora = Everything();
  lora.rank = 400;
  ModelLab lab(GetParam(), With(lora));
  for (const LoraModule& module : lab.model().modules()) {
    const auto values = [&](int parameter) {
      std::vector<float> all(static_cast<size_t>(lab.arrays().size_of(parameter)));
      lab.model().Initialize(parameter, 7, absl::MakeSpan(all));
      return all;
    };
    const auto zero = values(module.is_embedding() ? module.a : module.b);
    EXPECT_THAT(zero, ::testing::Each(0.0f));
    const auto other = values(module.is_embedding() ? module.b : module.a);
    double sum = 0, squares = 0, most = 0;
    for (const float value : other) {
      const auto x = static_cast<double>(value);
      sum += x;
      squares += x * x;
      most = std::max(most, std::abs(x));
    }
    const auto count = static_cast<double>(other.size());
    const double bound = 1 / std::sqrt(static_cast<double>(module.inputs));
    const double variance = module.is_embedding() ? 1 : bound * bound / 3;
    EXPECT_NEAR(squares / count, variance, 0.1 * variance) << module.name;
    EXPECT_NEAR(sum / count, 0, 5 * std::sqrt(variance / count)) << module.name;
    if (module.is_embedding()) {
      EXPECT_GT(most, 2);
    } else {
      EXPECT_LE(most, bound);
      EXPECT_GT(most, 0.99 * bound);
    }
  }
}

TEST_P(LoraModelTest, RecomputationChangesNoBitAndMemoryIsAsSaid) {
  for (const BaseFormat base : {BaseFormat::kAsModel, BaseFormat::kInt8Blocks}) {
    std::vector<std::vector<double>> gradients[2];
    for (const bool recompute : {false, true}) {
      LoraOptions lora = Everything();
      lora.dropout = 0.25;
      lora.base = base;
      DecoderOptions options = With(lora, DType::kBFloat16);
      options.recompute = recompute;
      {
        auto context = device::Context::Create({.device = BRIGADE_LAB_DEVICE}).value();
        const auto memory = Decoder::MemoryOf(GetParam(), options, *context);
        ASSERT_OK(memory);
        const auto alone = Decoder::Create(GetParam(), options, *context);
        ASSERT_OK(alone);
        const device::MemoryStats& stats = context->memory_stats();
        EXPECT_EQ(stats.current_bytes(device::Purpose::kActivations), memory->activations);
        EXPECT_EQ(stats.current_bytes(device::Purpose::kScratch), memory->scratch);
        const auto arrays =
            ParameterArrays::Create((*alone)->spec(), {.dtype = DType::kBFloat16}, *context);
        ASSERT_OK(arrays);
        EXPECT_EQ(stats.current_bytes(device::Purpose::kParameters),
                  ParameterArrays::WeightBytes((*alone)->spec(), DType::kBFloat16));
      }
      ModelLab lab(GetParam(), options);
      for (int p = 0; p < lab.arrays().size(); ++p) {
        std::vector<float> values(static_cast<size_t>(lab.arrays().size_of(p)));
        lab.model().Initialize(p, 3, absl::MakeSpan(values));
        if (lab.arrays().type_of(p) == DType::kFloat32) {
          const auto words = lab.Filled(values);
          ASSERT_OK(
              lab.stream().Copy(lab.arrays().weights(p), words.data(), lab.arrays().bytes_of(p)));
          ASSERT_OK(lab.stream().Synchronize());
        } else {
          lab.Write({values.begin(), values.end()}, lab.arrays().weights(p));
        }
      }
      FillAdapters(lab);
      Batch batch = SomeBatch(lab);
      batch.step = lab.Filled<int64_t>({4}).data();
      lab.Losses(batch);
      const auto seed = lab.Filled<float>({1.0f});
      ASSERT_OK(Backward(lab.model(), batch, seed.data(), lab.arrays(), lab.stream()));
      for (int p = 0; p < lab.arrays().size(); ++p) {
        if (lab.arrays().gradient(p) == nullptr) continue;
        gradients[recompute].push_back(lab.Read(lab.arrays().gradient(p), lab.arrays().size_of(p)));
      }
    }
    EXPECT_EQ(gradients[0], gradients[1]);
    EXPECT_GE(gradients[0].size(), 22u);
  }
}

// Codes in memory are the same model as their numbers in memory, bit for bit.
TEST_P(LoraModelTest, ABaseOfInt8BlocksIsTheModelOfItsNumbers) {
  std::vector<double> logits[2];
  std::vector<std::vector<double>> gradients[2];
  int64_t bytes[2];
  for (const bool coded : {false, true}) {
    LoraOptions lora = Everything();
    if (coded) lora.base = BaseFormat::kInt8Blocks;
    ModelLab lab(GetParam(), With(lora));
    bytes[coded] = ParameterArrays::WeightBytes(lab.model().spec(), DType::kFloat32);
    int matrices = 0;
    for (int p = 0; p < lab.arrays().size(); ++p) {
      const ParameterRole& role = lab.model().roles()[static_cast<size_t>(p)];
      if (role.is_adapter()) continue;
      std::vector<float> numbers(static_cast<size_t>(role.size()));
      nn::Random random(5, static_cast<uint64_t>(p));
      for (float& value : numbers) value = static_cast<float>(random.Uniform() - 0.3);
      bool is_matrix = role.kind == ParameterRole::Kind::kInt8Base;
      for (const LoraModule& module : lab.model().modules()) {
        is_matrix |= module.weight == p && !module.is_embedding() && !module.is_head();
      }
      std::vector<float> words(static_cast<size_t>(WordsOf(role.size())));
      if (is_matrix) {
        ++matrices;
        const std::vector<float> before = numbers;
        QuantizeToWords(numbers, absl::MakeSpan(words));
        DequantizeWords(words, absl::MakeSpan(numbers));
        for (size_t i = 0; i < numbers.size(); ++i) {
          ASSERT_NEAR(numbers[i], before[i], 0.7 / 254 * 1.001);
        }
        ASSERT_NE(numbers, before);
      }
      const auto values = lab.Filled(coded && is_matrix ? words : numbers);
      ASSERT_EQ(static_cast<int64_t>(values.size()), lab.arrays().size_of(p));
      ASSERT_OK(
          lab.stream().Copy(lab.arrays().weights(p), values.data(), lab.arrays().bytes_of(p)));
      ASSERT_OK(lab.stream().Synchronize());
    }
    EXPECT_EQ(matrices, GetParam().architecture == Architecture::kLlama ? 14 : 8);
    FillAdapters(lab);
    const Batch batch = SomeBatch(lab);
    lab.Losses(batch);
    logits[coded] = lab.Read(lab.model().logits(), kSamples * kPositions * GetParam().vocabulary);
    const auto seed = lab.Filled<float>({1.0f});
    ASSERT_OK(Backward(lab.model(), batch, seed.data(), lab.arrays(), lab.stream()));
    for (const LoraModule& module : lab.model().modules()) {
      gradients[coded].push_back(
          lab.Read(lab.arrays().gradient(module.a), lab.arrays().size_of(module.a)));
    }
  }
  EXPECT_EQ(logits[0], logits[1]);
  EXPECT_EQ(gradients[0], gradients[1]);
  EXPECT_LT(bytes[1], bytes[0]);
}

// One sample after the other drops what both together do; another step or seed something else.
TEST_P(LoraModelTest, DropoutIsAFunctionOfSeedStepAndSample) {
  LoraOptions lora = Everything();
  lora.dropout = 0.5;
  const auto losses = [&](uint64_t dropout_seed, int64_t step, bool apart) {
    lora.dropout_seed = dropout_seed;
    ModelLab lab(GetParam(), With(lora, kType));
    lab.Initialize(3, 20);
    FillAdapters(lab);
    Batch batch = SomeBatch(lab);
    if (step >= 0) batch.step = lab.Filled<int64_t>({step}).data();
    if (!apart) return lab.SumOfLosses(batch);
    double sum = 0;
    for (int64_t sample = 0; sample < kSamples; ++sample) {
      Batch one = batch;
      one.inputs = static_cast<const int32_t*>(batch.inputs) + sample * kPositions;
      one.targets = static_cast<const int32_t*>(batch.targets) + sample * kPositions;
      one.samples = 1;
      one.first_sample = sample;
      sum += lab.SumOfLosses(one);
    }
    return sum;
  };
  const double all = losses(1, 2, false);
  EXPECT_NEAR(losses(1, 2, true), all, 1e-5 * all);
  EXPECT_EQ(losses(1, 2, false), all);
  EXPECT_GT(std::abs(losses(1, 3, false) - all), 1e-3);
  EXPECT_GT(std::abs(losses(2, 2, false) - all), 1e-3);
  // Without a step nothing is dropped.
  lora.dropout = 0.5;
  const double whole = losses(1, -1, false);
  EXPECT_GT(std::abs(whole - all), 1e-3);
  lora.dropout = 0;
  EXPECT_EQ(losses(1, 2, false), whole);
}

TEST_P(LoraModelTest, ATextReadInPiecesHasTheLogitsOfTheWholeText) {
  DecoderOptions options = With(Everything(), kType);
  options.trains = false;
  options.cached_positions = kPositions;
  ModelLab lab(GetParam(), options);
  lab.Initialize(3, 20);
  FillAdapters(lab);
  const int64_t vocabulary = GetParam().vocabulary;
  const std::vector<int32_t> ids = Ids(kPositions, vocabulary, 1);
  lab.Losses({lab.Filled(ids).data(), lab.Filled(ids).data(), 1, kPositions});
  const std::vector<double> whole = lab.Read(lab.model().logits(), kPositions * vocabulary);
  for (int64_t first = 0, count = 3; first < kPositions; first += count, count = 2) {
    const std::vector<int32_t> piece(ids.begin() + first, ids.begin() + first + count);
    ASSERT_OK(lab.model().Continue({lab.Filled(piece).data(), nullptr, 1, count}, first,
                                   lab.arrays(), lab.stream()));
    const auto logits = lab.Read(lab.model().logits(), count * vocabulary);
    for (size_t i = 0; i < logits.size(); ++i) {
      ASSERT_NEAR(logits[i], whole[static_cast<size_t>(first * vocabulary) + i],
                  kOnGpu ? 1e-3 : 1e-11);
    }
  }
}

std::vector<std::string> NamesOf(const DecoderConfig& config, const LoraOptions& lora) {
  auto context = device::Context::Create({}).value();
  const auto model = Decoder::Create(config, {.dtype = DType::kFloat32, .lora = lora}, *context);
  EXPECT_OK(model);
  std::vector<std::string> names;
  if (!model.ok()) return names;
  for (const LoraModule& module : (*model)->modules()) names.push_back(module.name);
  return names;
}

// As PEFT's check_target_module_exists, and its table of defaults.
TEST(LoraTargetsTest, AreEndingsWholeNamesOrAPattern) {
  DecoderConfig llama = TinyLlama(), gpt2 = TinyGpt2();
  llama.layers = gpt2.layers = 1;
  const std::string of_block = "model.layers.0.";
  EXPECT_THAT(NamesOf(llama, {}),
              ElementsAre(of_block + "self_attn.q_proj", of_block + "self_attn.v_proj"));
  EXPECT_THAT(NamesOf(gpt2, {}), ElementsAre("transformer.h.0.attn.c_attn"));
  EXPECT_THAT(NamesOf(gpt2, {.targets = {"c_proj"}}),
              ElementsAre("transformer.h.0.attn.c_proj", "transformer.h.0.mlp.c_proj"));
  EXPECT_THAT(NamesOf(gpt2, {.targets = {"mlp.c_proj", "lm_head", "wpe"}}),
              ElementsAre("transformer.wpe", "transformer.h.0.mlp.c_proj", "lm_head"));
  EXPECT_THAT(NamesOf(gpt2, {.pattern = ".*\\.(wte|c_fc)"}),
              ElementsAre("transformer.wte", "transformer.h.0.mlp.c_fc"));
  EXPECT_EQ(NamesOf(llama, {.targets = {"all-linear"}}).size(), 7u);
  EXPECT_EQ(NamesOf(gpt2, {.pattern = "all-linear"}).size(), 4u);
  EXPECT_EQ(NamesOf(llama, {.pattern = ".*"}).size(), 9u);
  EXPECT_EQ(NamesOf(gpt2, {.pattern = ".*"}).size(), 7u);
  EXPECT_DOUBLE_EQ((LoraOptions{.rank = 16, .alpha = 8}).scale(), 0.5);
  EXPECT_DOUBLE_EQ((LoraOptions{.rank = 16, .alpha = 8, .rank_stabilized = true}).scale(), 2);
}

TEST(LoraTargetsTest, WhatIsWrongIsNamed) {
  auto context = device::Context::Create({}).value();
  const auto create = [&](const LoraOptions& lora, DecoderOptions options = {}) {
    options.lora = lora;
    return Decoder::Create(TinyGpt2(), options, *context).status();
  };
  EXPECT_THAT(create({.rank = 0}), StatusIs(kInvalid, HasSubstr("rank is 0")));
  EXPECT_THAT(create({.rank = int64_t{1} << 40}), StatusIs(kInvalid, HasSubstr("it must be 1 to")));
  EXPECT_THAT(create({.alpha = std::nan("")}), StatusIs(kInvalid, HasSubstr("alpha is nan")));
  EXPECT_THAT(create({.dropout = 1}), StatusIs(kInvalid, HasSubstr("dropout is 1")));
  EXPECT_THAT(create({.dropout = -0.1}), StatusIs(kInvalid, HasSubstr("dropout is -0.1")));
  EXPECT_THAT(create({.targets = {"a"}, .pattern = "a"}),
              StatusIs(kInvalid, HasSubstr("not both")));
  EXPECT_THAT(create({.targets = {""}}), StatusIs(kInvalid, HasSubstr("no name")));
  EXPECT_THAT(create({.targets = {"q_proj"}}),
              StatusIs(kInvalid, AllOf(HasSubstr("no layer is a target"), HasSubstr("q_proj"),
                                       HasSubstr("transformer.h.0.attn.c_attn"))));
  EXPECT_THAT(create({.pattern = "("}), StatusIs(kInvalid, HasSubstr("without its )")));
  EXPECT_THAT(create({}, {.trainable = [](const std::string&) { return true; }}),
              StatusIs(kInvalid, HasSubstr("they alone are trained")));
  EXPECT_THAT(create({.base = BaseFormat::kInt8Blocks}, {.dtype = DType::kFloat64}),
              StatusIs(kInvalid, HasSubstr("int8 blocks in a decoder of fp64")));
}

}  // namespace
}  // namespace brigade::models
