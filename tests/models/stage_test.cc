// A decoder in chunks of two stages, with micro-batches in flight and backward passes in halves:
// the losses and gradients of the whole model, bit by bit.

#include <cstdint>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "brigade/tests/models/lab.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::models {
namespace {

using ::brigade::testing::StatusIs;
using precision::DType;
using ::testing::HasSubstr;

constexpr int64_t kSamples = 2, kPositions = 8, kRows = kSamples * kPositions;
constexpr int kMicroBatches = 2;

// One stage has the embedding and the head, the other one the blocks.
const parallel::StageRange kEmbedding = {0, 1}, kBlocks = {1, 3}, kHead = {3, 4};

class StageTest
    : public ::testing::TestWithParam<std::tuple<const char*, DType, bool, const char*>> {
 protected:
  StageTest() {
    const auto& [name, dtype, recompute, trained] = GetParam();
    const bool is_llama = name == std::string("llama");
    config_ = is_llama ? TinyLlama() : TinyGpt2();
    options_ = {
        .dtype = dtype, .samples = kSamples, .positions = kPositions, .recompute = recompute};
    if (trained == std::string("adapters")) {
      options_.lora = LoraOptions{
          .rank = 2,
          .alpha = 4,
          .targets = is_llama ? std::vector<std::string>{"q_proj", "down_proj", "embed_tokens"}
                              : std::vector<std::string>{"c_attn", "c_fc", "wte", "wpe"}};
    } else if (trained == std::string("some")) {
      options_.trainable = [](const std::string& parameter) {
        return parameter.find("mlp") != std::string::npos ||
               parameter.find("norm") != std::string::npos;
      };
    }
    lab_ = std::make_unique<ModelLab>(config_, options_);
    lab_->Initialize(5, 10);
    for (int m = 0; m < kMicroBatches; ++m) {
      std::vector<int32_t> ids, labels;
      for (int64_t row = 0; row < kRows; ++row) {
        ids.push_back(static_cast<int32_t>((7 * row + 3 * m + row * row) % config_.vocabulary));
        labels.push_back(row % 5 == 0 ? kIgnored
                                      : static_cast<int32_t>((3 * row + m) % config_.vocabulary));
      }
      batches_.push_back(
          {lab_->Filled(ids).data(), lab_->Filled(labels).data(), kSamples, kPositions});
    }
    seed_ = lab_->Filled(std::vector<float>{0.25f}).data();
  }

  std::unique_ptr<Decoder> Stage(std::vector<parallel::StageRange> chunks, bool splits) {
    DecoderOptions options = options_;
    options.stage = StageUnits{.chunks = std::move(chunks),
                               .slots = kMicroBatches * 2,
                               .deferred = splits ? kMicroBatches * 2 : 0};
    const auto allocated = [&] {
      return lab_->context().memory_stats().current_bytes(device::Purpose::kActivations);
    };
    const int64_t before = allocated();
    auto stage = Decoder::Create(config_, options, lab_->context());
    EXPECT_OK(stage);
    const auto bytes = Decoder::MemoryOf(config_, options, lab_->context());
    EXPECT_OK(bytes);
    EXPECT_EQ(bytes->activations, allocated() - before);
    EXPECT_EQ((*stage)->bytes().activations, allocated() - before);
    EXPECT_EQ((*stage)->slots(), options.stage->slots);
    EXPECT_EQ((*stage)->deferred(), options.stage->deferred);
    return *std::move(stage);
  }

  // Of all parameters that are trained.
  std::vector<std::vector<double>> Gradients() {
    std::vector<std::vector<double>> gradients;
    const ParameterArrays& arrays = lab_->arrays();
    for (int p = 0; p < arrays.size(); ++p) {
      if (arrays.gradient(p) == nullptr) continue;
      gradients.push_back(lab_->Read(arrays.gradient(p), arrays.size_of(p)));
    }
    return gradients;
  }

  std::vector<double> Losses(absl::Span<const float> losses) {
    EXPECT_OK(lab_->stream().Synchronize());
    return {losses.begin(), losses.end()};
  }

  DecoderConfig config_;
  DecoderOptions options_;
  std::unique_ptr<ModelLab> lab_;
  std::vector<Batch> batches_;
  const float* seed_ = nullptr;
};

INSTANTIATE_TEST_SUITE_P(Models, StageTest,
                         ::testing::Combine(::testing::Values("llama", "gpt2"),
                                            ::testing::Values(DType::kFloat32, DType::kBFloat16),
                                            ::testing::Bool(),
                                            ::testing::Values("all", "some", "adapters")));

TEST_P(StageTest, ChunksAndHalvesHaveTheBitsOfTheWholeModel) {
  ModelLab& lab = *lab_;
  std::vector<std::vector<double>> losses;
  std::vector<std::vector<std::vector<double>>> gradients;
  const absl::Span<float> of_rows = lab.Raw<float>(kRows);
  for (const Batch& batch : batches_) {
    lab.arrays().BeginGradients();
    ASSERT_OK(Forward(lab.model(), batch, of_rows.data(), lab.arrays(), lab.stream()));
    ASSERT_OK(Backward(lab.model(), batch, seed_, lab.arrays(), lab.stream()));
    losses.push_back(Losses(of_rows));
    gradients.push_back(Gradients());
  }
  ASSERT_FALSE(gradients[0].empty());
  EXPECT_NE(gradients[0], gradients[1]);

  const int64_t bytes =
      lab.model().BoundaryOf(batches_[0])->elements * precision::SizeOf(options_.dtype);
  std::vector<device::Buffer> memory;
  const auto boundary = [&] {
    memory.push_back(lab.context().Allocate(bytes, device::Purpose::kActivations).value());
    return memory.back().data();
  };
  for (const bool splits : {false, true}) {
    SCOPED_TRACE(splits ? "in halves" : "at once");
    const auto ends = Stage({kEmbedding, kHead}, splits), blocks = Stage({kBlocks}, splits);
    EXPECT_EQ(blocks->logits(), nullptr);
    // In the order of forward passes: slots of the ends' chunks are apart.
    struct Pass {
      Decoder* model;
      Batch batch;
    };
    std::vector<std::vector<Pass>> passes(kMicroBatches);
    for (int m = 0; m < kMicroBatches; ++m) {
      Batch first = batches_[static_cast<size_t>(m)], middle = first, last = first;
      first.chunk = {.units = kEmbedding, .slot = m, .deferred = m};
      middle.chunk = {.units = kBlocks, .slot = m, .deferred = m};
      last.chunk = {.units = kHead, .slot = kMicroBatches + m, .deferred = kMicroBatches + m};
      first.chunk.output = boundary();
      middle.chunk.input = first.chunk.output;
      middle.chunk.output = boundary();
      last.chunk.input = middle.chunk.output;
      last.chunk.input_gradient = boundary();
      middle.chunk.output_gradient = last.chunk.input_gradient;
      middle.chunk.input_gradient = boundary();
      first.chunk.output_gradient = middle.chunk.input_gradient;
      passes[static_cast<size_t>(m)] = {
          {ends.get(), first}, {blocks.get(), middle}, {ends.get(), last}};
    }
    for (size_t m = 0; m < passes.size(); ++m) {
      for (const auto& [model, batch] : passes[m]) {
        ASSERT_OK(Forward(*model, batch, of_rows.data(), lab.arrays(), lab.stream()));
      }
      EXPECT_EQ(Losses(of_rows), losses[m]);
    }
    const auto backward = [&](size_t m, BackwardHalf half) {
      for (size_t i = passes[m].size(); i-- > 0;) {
        Batch batch = passes[m][i].batch;
        batch.chunk.half = half;
        ASSERT_OK(Backward(*passes[m][i].model, batch, seed_, lab.arrays(), lab.stream()));
      }
    };
    // All first halves before the second ones.
    for (size_t m = 0; splits && m < passes.size(); ++m) backward(m, BackwardHalf::kInputs);
    for (size_t m = 0; m < passes.size(); ++m) {
      lab.arrays().BeginGradients();
      backward(m, splits ? BackwardHalf::kWeights : BackwardHalf::kBoth);
      EXPECT_EQ(Gradients(), gradients[m]) << m;
    }
  }
}

TEST(StageErrorsTest, APassThatIsNoneOfTheStageIsToldBeforeItBegins) {
  DecoderOptions options = {.dtype = DType::kFloat32, .samples = 1, .positions = 4};
  ModelLab lab(TinyLlama(), options);
  lab.Initialize(1, 1);
  const std::vector<int32_t> ids = {1, 2, 3, 4};
  const Batch whole = {lab.Filled(ids).data(), lab.Filled(ids).data(), 1, 4};
  options.stage = StageUnits{.chunks = {kBlocks}, .slots = 1};
  const auto stage = Decoder::Create(TinyLlama(), options, lab.context());
  ASSERT_OK(stage);
  const absl::Span<float> array = lab.Raw<float>(4 * TinyLlama().width);
  const auto expect = [&](Decoder& model, const ChunkPass& chunk, const char* text) {
    Batch batch = whole;
    batch.chunk = chunk;
    const bool is_forward = chunk.output_gradient == nullptr && chunk.half == BackwardHalf::kBoth;
    EXPECT_THAT(is_forward ? Forward(model, batch, nullptr, lab.arrays(), lab.stream())
                           : Backward(model, batch, nullptr, lab.arrays(), lab.stream()),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(text)));
  };
  Decoder& model = **stage;
  expect(model, {}, "are no chunk of the stage");
  expect(model, {.units = {1, 2}, .input = array.data(), .output = array.data()},
         "are no chunk of the stage");
  expect(model, {.units = kBlocks, .slot = 1, .input = array.data(), .output = array.data()},
         "slot 1 of 1");
  expect(model, {.units = kBlocks, .output = array.data()}, "without its input");
  expect(model, {.units = kBlocks, .input = array.data()}, "without memory for its output");
  expect(model, {.units = kBlocks, .input = array.data(), .output_gradient = array.data()},
         "without memory for the gradient of its input");
  expect(model,
         {.units = kBlocks,
          .half = BackwardHalf::kInputs,
          .input = array.data(),
          .output_gradient = array.data(),
          .input_gradient = array.data()},
         "slot 0 of 0");
  expect(lab.model(), {.units = kBlocks, .input = array.data(), .output = array.data()},
         "by a model that is no stage's");

  const auto refused = [&](const StageUnits& units, const char* text) {
    DecoderOptions bad = options;
    bad.stage = units;
    EXPECT_THAT(Decoder::Create(TinyLlama(), bad, lab.context()),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(text)));
  };
  refused({.chunks = {{2, 5}}, .slots = 1}, "units 2 to 5 of 4");
  refused({.chunks = {{2, 3}, {1, 2}}, .slots = 1}, "units 1 to 2 of 4, behind 3");
  refused({.chunks = {kBlocks}, .slots = 0}, "0 slots");
  options.cached_positions = 4;
  refused({.chunks = {kBlocks}, .slots = 1}, "keeps positions in a stage");
}

// What nothing reads is not kept: what a block makes again for a second half that computes nothing
// of it, and a block's memory where there is none.
TEST(StageMemoryTest, RecomputationKeepsNoBlockInVain) {
  const auto context = device::Context::Create({}).value();
  const auto bytes = [&](const parallel::StageRange& chunk, int deferred, bool recompute,
                         bool adapters) {
    DecoderOptions options = {.dtype = DType::kFloat32,
                              .samples = kSamples,
                              .positions = kPositions,
                              .recompute = recompute,
                              .stage = StageUnits{{chunk}, /*slots=*/1, deferred}};
    if (adapters) options.lora = LoraOptions{.rank = 2, .targets = {"q_proj"}};
    const auto memory = Decoder::MemoryOf(TinyLlama(), options, *context);
    EXPECT_OK(memory);
    return memory->activations;
  };
  const auto of_half = [&](bool recompute, bool adapters) {
    return bytes(kBlocks, 1, recompute, adapters) - bytes(kBlocks, 0, recompute, adapters);
  };
  EXPECT_EQ(of_half(true, true), of_half(false, true));
  EXPECT_GT(of_half(true, false), of_half(false, false));
  EXPECT_EQ(bytes(kHead, 0, true, false), bytes(kHead, 0, false, false));
  EXPECT_LT(bytes(kBlocks, 0, true, false), bytes(kBlocks, 0, false, false));
}

// By which a pipeline is cut: words of codes are as many numbers as the matrix that they are.
TEST(StageCountTest, ABaseOfCodesCountsItsNumbers) {
  const auto context = device::Context::Create({}).value();
  std::unique_ptr<Decoder> models[2];
  for (const bool codes : {false, true}) {
    DecoderOptions options = {
        .dtype = DType::kBFloat16, .samples = 1, .positions = 4, .stage = StageUnits()};
    options.lora = LoraOptions{.rank = 2,
                               .targets = {"q_proj"},
                               .base = codes ? BaseFormat::kInt8Blocks : BaseFormat::kAsModel};
    models[codes] = Decoder::Create(TinyLlama(), options, *context).value();
  }
  int number = 0, words = 0;
  for (size_t unit = 0; unit < models[0]->spec().size(); ++unit) {
    const auto& parameters = models[0]->spec()[unit].parameters;
    for (size_t i = 0; i < parameters.size(); ++i, ++number) {
      EXPECT_EQ(models[0]->CountOf(number), parameters[i].size);
      EXPECT_EQ(models[1]->CountOf(number), parameters[i].size) << parameters[i].name;
      if (models[1]->spec()[unit].parameters[i].size != parameters[i].size) ++words;
    }
  }
  EXPECT_GT(words, 0);
}

// It tells what it would be, and has no memory.
TEST(StageErrorsTest, AStageWithoutUnitsTellsItsSpecAndBoundary) {
  DecoderOptions options = {
      .dtype = DType::kBFloat16, .samples = 3, .positions = 4, .stage = StageUnits()};
  auto context = device::Context::Create({}).value();
  const int64_t before = context->memory_stats().current_bytes();
  const auto model = Decoder::Create(TinyGpt2(), options, *context);
  ASSERT_OK(model);
  EXPECT_EQ(context->memory_stats().current_bytes(), before);
  EXPECT_EQ((*model)->spec().size(), 4u);
  const Batch batch = {.samples = 3, .positions = 4};
  EXPECT_EQ((*model)->BoundaryOf(batch)->elements, 3 * 4 * 12);
  EXPECT_EQ((*model)->BoundaryOf(batch)->dtype, DType::kBFloat16);
  EXPECT_EQ((*model)->LossesOf(batch), 12);
  EXPECT_TRUE((*model)->FlopsOf(1, batch).has_value());
}

}  // namespace
}  // namespace brigade::models
