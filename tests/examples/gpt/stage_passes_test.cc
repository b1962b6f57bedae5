// The model cut over the stages of a pipeline: losses and gradients have the bits of the whole
// model, whatever is in flight, made again, deferred or dropped.

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "brigade/device/context.h"
#include "brigade/device/tracing/tracer.h"
#include "brigade/examples/gpt/model_part.h"
#include "brigade/examples/gpt/part_plan.h"
#include "brigade/precision/float16.h"
#include "brigade/tests/examples/gpt/staged_passes.h"
#include "brigade/tests/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::gpt {
namespace {

using parallel::ScheduleKind;

constexpr int kMicroBatches = 4;
constexpr ModelOptions kModel = {.layers = 5, .heads = 2, .width = 12, .context = 10};

// Cuts into 1 to 4 parts, several of them on a stage; some have an embedding or a head alone.
std::vector<StagedCase> Cuts(int micro_batches = kMicroBatches) {
  const auto cut = [&](ScheduleKind kind, int chunks, int stages, std::vector<int> boundaries) {
    return StagedCase{.pipeline = {{kind, chunks}, stages, micro_batches},
                      .boundaries = std::move(boundaries)};
  };
  return {cut(ScheduleKind::kGpipe, 1, 1, {0, 7}),
          cut(ScheduleKind::kZeroBubbleH1, 1, 1, {0, 7}),
          cut(ScheduleKind::kZeroBubbleV, 2, 1, {0, 3, 7}),
          cut(ScheduleKind::kOneForwardOneBackward, 1, 2, {0, 3, 7}),
          cut(ScheduleKind::kZeroBubbleH1, 1, 3, {0, 1, 5, 7}),
          cut(ScheduleKind::kInterleaved, 2, 2, {0, 2, 3, 6, 7}),
          cut(ScheduleKind::kZeroBubbleV, 2, 2, {0, 2, 4, 5, 7}),
          cut(ScheduleKind::kGpipe, 1, 4, {0, 1, 3, 6, 7})};
}

std::vector<StagedCase> PoliciesOf(const StagedCase& cut) {
  using Kind = recompute::Policy::Kind;
  using recompute::StashTier;
  std::vector<StagedCase> cases(8, cut);
  cases[1].policy = {.kind = Kind::kBlock};
  cases[2].policy = {.kind = Kind::kSelective};
  cases[3].policy = {.kind = Kind::kSegments, .stages_per_segment = 2};
  cases[4].policy = {.kind = Kind::kBlock, .stash = StashTier::kHost};
  cases[5].policy = {.kind = Kind::kSegments, .stages_per_segment = 2, .stash = StashTier::kHost};
  cases[6].policy = {.kind = Kind::kBlock, .stash = StashTier::kFile};
  cases[7].has_budget = true;
  return cases;
}

class StagePassesTest : public ::testing::TestWithParam<double> {
 protected:
  StagedLab Lab(const ModelOptions& model, precision::DType dtype) {
    return {*context_, *stream_, {model, 2, dtype}, {}, GetParam(), ::testing::TempDir()};
  }

  const std::unique_ptr<device::Context> context_ = device::Context::Create({}).value();
  const std::unique_ptr<device::Stream> stream_ = context_->CreateStream("compute").value();
};
INSTANTIATE_TEST_SUITE_P(Dropout, StagePassesTest, ::testing::Values(0, 0.2),
                         [](const auto& info) { return info.param == 0 ? "Without" : "With"; });

TEST_P(StagePassesTest, EveryCutAndPolicyGivesTheBitsOfTheWholeModel) {
  const StagedLab lab = Lab(kModel, precision::DType::kFloat32);
  const auto wanted = RunStaged<float>(lab, OneStage(kModel, kMicroBatches));
  for (const StagedCase& cut : Cuts()) {
    for (const StagedCase& staged : PoliciesOf(cut)) {
      SCOPED_TRACE(staged.Name());
      const auto result = RunStaged<float>(lab, staged);
      ExpectSameBits(result, wanted);
    }
  }
}

template <typename T>
void ExpectTheSameBits(const StagedLab& lab) {
  const auto wanted = RunStaged<T>(lab, OneStage(lab.shape.model, kMicroBatches));
  for (const StagedCase& cut : Cuts()) {
    const std::vector<StagedCase> cases = PoliciesOf(cut);
    for (const size_t policy : {0, 1}) {
      SCOPED_TRACE(cases[policy].Name());
      ExpectSameBits(RunStaged<T>(lab, cases[policy]), wanted);
    }
  }
}

TEST_P(StagePassesTest, AllTypesAndTensorShardsGiveTheBitsOfTheWholeModel) {
  ModelOptions shards = kModel;
  shards.tensor_shards = 2;
  ModelOptions rows = shards;
  rows.sequence_parallel = true;
  ModelOptions pieces = rows;
  pieces.tensor_pieces = 2;
  ExpectTheSameBits<precision::BFloat16>(Lab(rows, precision::DType::kBFloat16));
  ExpectTheSameBits<precision::Half>(Lab(pieces, precision::DType::kFloat16));
  ExpectTheSameBits<double>(Lab(shards, precision::DType::kFloat64));
}

// The gradients of inputs of a micro-batch come before those of weights of the one before.
TEST_P(StagePassesTest, MicroBatchesAddToOneGradientInTheirOrder) {
  StagedLab lab = Lab(kModel, precision::DType::kFloat32);
  lab.accumulates = true;
  const auto wanted = RunStaged<float>(lab, OneStage(kModel, kMicroBatches));
  for (const StagedCase& cut : Cuts()) {
    SCOPED_TRACE(cut.Name());
    ExpectSameBits(RunStaged<float>(lab, cut), wanted);
  }
}

// A part with the embedding, of which two blocks follow, in 16 bits: rows of 20 by 12 columns.
TEST(PartPlanTest, MemoryIsWhatTheFormulaSays) {
  const PassShape shape = {kModel, 2, precision::DType::kBFloat16};
  const auto padded = [](int64_t bytes) { return (bytes + 255) / 256 * 256; };
  const auto matrix = [&](int64_t columns) { return padded(20 * columns * 2); };
  const int64_t statistics = 4 * padded(20 * 4) + padded(20 * 2 * 4);
  // Both norms, the middle and attention; queries, keys and values; and twice four widths.
  const int64_t block = 4 * matrix(12) + matrix(36) + 2 * matrix(48) + statistics;
  const ModelPart part(kModel, {{0, 3}});
  const PassCosts costs = CountOperations(shape);
  const auto bytes = [&](const PassSlots& slots, recompute::Policy::Kind kind) {
    return ActivationBytes(shape, PlanPart(shape, costs, part, slots, {.kind = kind}).value());
  };
  using Kind = recompute::Policy::Kind;
  // A slot has the outputs of the embedding and of the first block: that of the second is the
  // caller's. All share what is there in a backward pass, gradients of one width.
  EXPECT_EQ(bytes({3, 0}, Kind::kNone), 3 * (2 * matrix(12) + 2 * block) + matrix(12));
  // In slots of the other sort are, of each block, the gradients of its column products' outputs
  // and of what it adds to the residual stream twice, and six rows of a width; of the embedding
  // that of its output.
  const int64_t deferred = matrix(48) + matrix(36) + 2 * matrix(12) + padded(6 * 12 * 2);
  EXPECT_EQ(bytes({3, 2}, Kind::kNone),
            3 * (2 * matrix(12) + 2 * block) + matrix(12) + 2 * (2 * deferred + matrix(12)));
  // Inputs of blocks are kept; each block is made again with its output, but for the last one's,
  // and has in its backward pass one width more.
  const int64_t again = block + matrix(12);
  EXPECT_EQ(bytes({3, 0}, Kind::kBlock), 3 * 2 * matrix(12) + again + matrix(12));
}

TEST(PartPlanTest, ABudgetIsForAllThatIsInFlight) {
  const PassShape shape = {kModel, 2, precision::DType::kFloat32};
  const PassCosts costs = CountOperations(shape);
  const ModelPart part(kModel, {{1, 3}, {4, 7}});
  using Kind = recompute::Policy::Kind;
  for (const PassSlots& slots : {PassSlots{1, 0}, PassSlots{5, 0}, PassSlots{4, 2}}) {
    const auto plan = [&](const recompute::Policy& policy) {
      return PlanPart(shape, costs, part, slots, policy);
    };
    const PartPlan none = plan({}).value(), blocks = plan({.kind = Kind::kBlock}).value();
    const int64_t all = ActivationBytes(shape, none);
    double before = blocks.time;
    for (int64_t budget = std::max(ActivationBytes(shape, blocks), all / 2); budget < all;
         budget += (all - budget) / 3 + 256) {
      const auto found = plan({.kind = Kind::kBudget, .budget_bytes = budget});
      if (!found.ok()) continue;
      EXPECT_LE(ActivationBytes(shape, *found), budget);
      EXPECT_LE(found->time, before);
      before = found->time;
    }
    EXPECT_EQ(plan({.kind = Kind::kBudget, .budget_bytes = all})->time, none.time);
    EXPECT_THAT(plan({.kind = Kind::kBudget, .budget_bytes = 1}),
                brigade::testing::StatusIs(absl::StatusCode::kInvalidArgument,
                                           ::testing::HasSubstr("is below the least, ")));
  }
}

TEST(PartPlanTest, BadChunksAndSlotsAreNamed) {
  const PassShape shape = {kModel, 2, precision::DType::kFloat32};
  const auto invalid = [](const char* text) {
    return brigade::testing::StatusIs(absl::StatusCode::kInvalidArgument,
                                      ::testing::HasSubstr(text));
  };
  EXPECT_THAT(ModelPart::Validate(kModel, {}), invalid("has no chunk"));
  EXPECT_THAT(ModelPart::Validate(kModel, {{2, 4}, {3, 5}}),
              invalid("chunk 1 has the stages 3 to 5 of 7, behind 4"));
  EXPECT_THAT(ModelPart::Validate(kModel, {{2, 2}}), invalid("chunk 0 has the stages 2 to 2"));
  EXPECT_THAT(ModelPart::Validate(kModel, {{0, 8}}), invalid("chunk 0 has the stages 0 to 8 of 7"));
  EXPECT_THAT(PlanPart(shape, {}, ModelPart(kModel), {0, 0}, {}),
              invalid("memory for 0 passes in flight and 0 deferred ones"));
}

TEST(ModelPartTest, UnitsAndParametersAreNumberedAnew) {
  const ModelPart part(kModel, {{1, 2}, {5, 7}});
  EXPECT_THAT(part.first_units(), ::testing::ElementsAre(0, 1));
  EXPECT_EQ(part.UnitOf(0), -1);
  EXPECT_EQ(part.UnitOf(5), 1);
  EXPECT_EQ(part.UnitOf(6), 2);
  EXPECT_FALSE(part.has_embedding());
  EXPECT_TRUE(part.has_head());
  EXPECT_FALSE(part.is_whole());
  EXPECT_EQ(part.ParameterOf(BlockParameter(4, kQkvWeight)), kBlockParameters + kQkvWeight);
  EXPECT_EQ(part.ParameterOf(kPositions), -1);
  EXPECT_EQ(part.parameters().back(), kTokens);
  // Each as in the whole model.
  const parallel::TensorShards shards = {2, 2, 1};
  ModelOptions model = kModel;
  model.tensor_shards = 2;
  std::vector<zero::ParameterSpec> whole;
  for (const zero::UnitSpec& unit : SpecOf(model, shards)) {
    whole.insert(whole.end(), unit.parameters.begin(), unit.parameters.end());
  }
  size_t next = 0;
  for (const zero::UnitSpec& unit : SpecOf(model, shards, part)) {
    for (const zero::ParameterSpec& parameter : unit.parameters) {
      const int number = part.parameters()[next++];
      const zero::ParameterSpec& wanted = whole[static_cast<size_t>(number)];
      EXPECT_EQ(parameter.name, wanted.name);
      EXPECT_EQ(parameter.size, wanted.size);
      EXPECT_EQ(parameter.shape, wanted.shape);
      EXPECT_EQ(parameter.counted, number != kTokens && wanted.counted) << wanted.name;
      EXPECT_EQ(parameter.tied_outside, number == kTokens);
    }
    EXPECT_TRUE(unit.tied.empty());
  }
  EXPECT_EQ(next, part.parameters().size());
}

TEST(ModelPartTest, TokensAreTiedInsideOrOutside) {
  const auto spec = [](std::vector<StageRange> chunks) {
    return SpecOf(kModel, {}, ModelPart(kModel, std::move(chunks)));
  };
  const zero::ModelSpec both = spec({{0, 2}, {6, 7}});
  EXPECT_FALSE(both[0].parameters[kTokens].tied_outside);
  EXPECT_THAT(both.back().tied, ::testing::ElementsAre("tokens"));
  EXPECT_EQ(both.back().parameters.size(), 2u);
  const zero::ModelSpec first = spec({{0, 2}});
  EXPECT_TRUE(first[0].parameters[kTokens].tied_outside);
  EXPECT_TRUE(first[0].parameters[kTokens].counted);
  EXPECT_FALSE(first[0].parameters[kPositions].tied_outside);
}

// Of chunk 1 of a part, with the model's numbers of stages.
TEST(TransformerTest, MarksNameTheModelsStagesAndTheHalves) {
  device::Tracer tracer;
  device::ContextOptions options;
  options.tracer = &tracer;
  auto context = device::Context::Create(options).value();
  auto stream = context->CreateStream("compute").value();
  const PassShape shape = {kModel, 2, precision::DType::kFloat32};
  const ModelPart part(kModel, {{0, 1}, {3, 5}});
  PartParameters<float> parameters(shape, part);
  using Kind = recompute::Policy::Kind;
  auto transformer =
      Transformer::Create(
          shape,
          PlanPart(shape, CountOperations(shape), part, {2, 1}, {.kind = Kind::kBlock}).value(),
          *context)
          .value();
  std::vector<float> x(20 * 12), y(20 * 12), dx(20 * 12), dy(20 * 12);
  const parallel::StagePass pass = {.chunk = 1, .deferred = 0, .input = x.data()};
  parallel::StagePass forward = pass, input = pass;
  forward.output = y.data();
  input.output_gradient = dy.data();
  input.input_gradient = dx.data();
  Gradients<float> gradients;
  parameters.Begin(nullptr, {3, 5});
  ASSERT_OK(transformer->Forward(forward, {}, nullptr, {}, parameters, *stream));
  ASSERT_OK(transformer->BackwardInput(input, {}, nullptr, {}, parameters, *stream));
  parameters.Begin(&gradients, {3, 5});
  ASSERT_OK(transformer->BackwardWeight(pass, {}, parameters, *stream));
  ASSERT_OK(stream->Synchronize());
  std::vector<std::string> marks;
  for (const device::TracedStream& traced : tracer.Take()) {
    for (const device::TracedOperation& operation : traced.operations) {
      const std::string name(operation.name);
      if (name.find(' ') == std::string::npos || name == "end of part") continue;
      if (marks.empty() || marks.back() != name) marks.push_back(name);
    }
  }
  EXPECT_THAT(marks, ::testing::ElementsAre("forward 3", "forward 4", "recompute 4",
                                            "backward input 4", "recompute 3", "backward input 3",
                                            "backward weight 4", "backward weight 3"));
}

TEST(TransformerTest, PassesThatLackSomethingAreNamed) {
  auto context = device::Context::Create({}).value();
  auto stream = context->CreateStream("compute").value();
  const PassShape shape = {kModel, 2, precision::DType::kFloat32};
  const ModelPart part(kModel, {{0, 2}, {2, 5}});
  PartParameters<float> parameters(shape, part);
  const auto create = [&](const PassSlots& slots) {
    return Transformer::Create(
               shape, PlanPart(shape, CountOperations(shape), part, slots, {}).value(), *context)
        .value();
  };
  const auto joint = create({2, 0}), split = create({2, 1});
  std::vector<float> array(20 * 12);
  std::vector<uint8_t> bytes(22);
  const nn::Texts texts = {bytes.data(), 2, 10};
  const auto expect = [](const absl::Status& status, const std::string& text) {
    EXPECT_THAT(status, brigade::testing::StatusIs(absl::StatusCode::kInvalidArgument,
                                                   ::testing::HasSubstr(text)));
  };
  const auto forward = [&](const parallel::StagePass& pass) {
    return joint->Forward(pass, texts, nullptr, {}, parameters, *stream);
  };
  expect(forward({.chunk = 2}), "chunk 2 of 2");
  expect(forward({.activations = 2}), "activations 2 of 2");
  expect(forward({}), "chunk 0 needs its output");
  expect(forward({.input = array.data(), .output = array.data()}), "chunk 0 has no input");
  expect(forward({.chunk = 1, .output = array.data()}), "chunk 1 needs its input");
  const auto backward = [&](Transformer& transformer, const parallel::StagePass& pass) {
    return transformer.Backward(pass, texts, nullptr, {}, parameters, *stream);
  };
  expect(backward(*joint, {}), "chunk 0 needs its output's gradient");
  expect(backward(*joint, {.output_gradient = array.data(), .input_gradient = array.data()}),
         "chunk 0 has no input's gradient");
  expect(backward(*split, {.output_gradient = array.data()}), "deferred slot -1 of 1");
  expect(split->BackwardInput({.output_gradient = array.data()}, texts, nullptr, {}, parameters,
                              *stream),
         "deferred slot -1 of 1");
  expect(joint->BackwardWeight({.deferred = 0}, texts, parameters, *stream),
         "deferred slot 0 of 0");
}

}  // namespace
}  // namespace brigade::gpt
