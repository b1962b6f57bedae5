// The whole model's gradient against finite differences in double.

#include "brigade/examples/gpt/transformer.h"

#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "brigade/examples/gpt/activations.h"
#include "brigade/examples/gpt/part_plan.h"
#include "brigade/recompute/planner.h"
#include "brigade/tests/examples/gpt/plain_parameters.h"
#include "brigade/tests/nn/lab.h"
#include "gmock/gmock.h"

namespace brigade::gpt {
namespace {

constexpr ModelOptions kModel = {.layers = 2, .heads = 2, .width = 6, .context = 5};
constexpr int64_t kBatch = 2;

recompute::Schedule Schedule(const ModelOptions& model, int64_t batch, precision::DType dtype,
                             const recompute::Policy& policy = {}) {
  const recompute::Chain chain = ActivationChain({model, batch, dtype});
  return recompute::Place(chain, PlanOf(chain, policy).value()).value();
}

absl::StatusOr<std::unique_ptr<Transformer>> Create(const ModelOptions& model, int64_t batch,
                                                    precision::DType dtype,
                                                    const recompute::Policy& policy,
                                                    device::Context& context) {
  const device::FileOptions file = {.directory = ::testing::TempDir()};
  return Transformer::Create({model, batch, dtype},
                             PartPlan::Whole(model, Schedule(model, batch, dtype, policy)), context,
                             {}, policy.stash == recompute::StashTier::kFile ? &file : nullptr);
}

// The mask of a later micro-batch of some step.
nn::DropoutMask DropoutOf(nn::Lab& lab, double probability) {
  const auto step = lab.Raw<int64_t>(1);
  step[0] = 12;
  return {.probability = probability, .seed = 7, .step = step.data(), .first_element = 1234};
}

class DropoutTest : public ::testing::TestWithParam<double> {};
INSTANTIATE_TEST_SUITE_P(All, DropoutTest, ::testing::Values(0, 0.2),
                         [](const auto& info) { return info.param == 0 ? "Without" : "With"; });

TEST_P(DropoutTest, TheModelsGradientIsThatOfItsLoss) {
  nn::Lab lab;
  const nn::DropoutMask dropout = DropoutOf(lab, GetParam());
  PlainParameters<double> parameters(kModel, 3);
  // Away from where it begins: biases and norms are not 0 and 1, and each path has weight.
  nn::Random random(5, 0);
  for (auto& weights : parameters.weights) {
    for (double& weight : weights) weight = 0.9 * weight + 0.4 * (2 * random.Uniform() - 1);
  }
  auto transformer = Create(kModel, kBatch, precision::DType::kFloat64, {}, lab.context()).value();
  const nn::Texts texts = {lab.Bytes(kBatch * (kModel.context + 1), 6).data(), kBatch,
                           kModel.context};
  const auto losses = lab.Raw<double>(texts.rows());
  const auto seed = lab.Raw<float>(1);
  seed[0] = 4;
  const auto f = [&] {
    EXPECT_OK(transformer->Forward({}, texts, losses.data(), dropout, parameters, lab.stream()));
    EXPECT_OK(lab.stream().Synchronize());
    double sum = 0;
    for (const double loss : losses) sum += loss;
    return 4 * sum / static_cast<double>(losses.size());
  };
  f();
  ASSERT_OK(transformer->Backward({}, texts, seed.data(), dropout, parameters, lab.stream()));
  ASSERT_OK(lab.stream().Synchronize());
  const auto gradients = parameters.gradients;
  for (size_t p = 0; p < gradients.size(); ++p) {
    SCOPED_TRACE(p);
    // Of the tokens, those that occur, and one that does not.
    const size_t checked =
        p == kTokens ? 7 * static_cast<size_t>(kModel.width) : gradients[p].size();
    nn::ExpectGradient(absl::MakeSpan(parameters.weights[p]).first(checked),
                       absl::MakeConstSpan(gradients[p]).first(checked), f);
  }
}

TEST(TransformerTest, TheModelBeginsAtTheEntropyOfAByte) {
  nn::Lab lab;
  constexpr ModelOptions kDefault = {};
  PlainParameters<float> parameters(kDefault, 1);
  auto transformer = Create(kDefault, 2, precision::DType::kFloat32, {}, lab.context()).value();
  const nn::Texts texts = {lab.Bytes(2 * (kDefault.context + 1)).data(), 2, kDefault.context};
  const auto losses = lab.Raw<float>(texts.rows());
  ASSERT_OK(transformer->Forward({}, texts, losses.data(), {}, parameters, lab.stream()));
  ASSERT_OK(lab.stream().Synchronize());
  double sum = 0;
  for (const float loss : losses) sum += static_cast<double>(loss);
  EXPECT_NEAR(sum / static_cast<double>(losses.size()), std::log(256.0), 0.1);
}

TEST(TransformerTest, MemoryIsWhatTheFormulaSays) {
  nn::Lab lab;
  constexpr auto kDType = precision::DType::kBFloat16;
  // Per row of 10: blocks have their output and 4 matrices of the width, 3 and twice 4 times the
  // width, 4 statistics and one for each of 2 heads; before them there is one of the width. The
  // head has one, logits and 2 statistics; its backward pass has one of the width more, and the
  // gradient is another. Each ends at 256 bytes.
  const auto padded = [](int64_t bytes) { return (bytes + 255) / 256 * 256; };
  const auto matrix = [&](int64_t columns) { return padded(10 * columns * 2); };
  const int64_t statistics = padded(10 * 4);
  const int64_t block =
      5 * matrix(6) + matrix(18) + 2 * matrix(24) + 4 * statistics + padded(10 * 2 * 4);
  const int64_t wanted =
      matrix(6) + 2 * block + matrix(6) + matrix(256) + 2 * statistics + matrix(6) + matrix(6);
  const recompute::Schedule schedule = Schedule(kModel, kBatch, kDType);
  EXPECT_EQ(ActivationBytes({kModel, kBatch, kDType}, PartPlan::Whole(kModel, schedule)), wanted);
  const int64_t before = lab.context().memory_stats().current_bytes(device::Purpose::kScratch);
  auto transformer = Create(kModel, kBatch, kDType, {}, lab.context()).value();
  EXPECT_EQ(lab.context().memory_stats().current_bytes(device::Purpose::kActivations), wanted);
  // Where the rows of each token begin, and the rows. Then attention: a number for each row and
  // head; and for each of the 4 heads a matrix [64, 16], as there is one tile only, and 64 bytes
  // for their alignment.
  EXPECT_EQ(transformer->layers().bytes(),
            padded(257 * 8) + padded(10 * 4) + padded(2 * 10 * 4) + 4 * 64 * 16 * 4 + 64);
  EXPECT_EQ(lab.context().memory_stats().current_bytes(device::Purpose::kScratch) - before,
            Layers::WorkspaceBytes({kModel, kBatch, kDType}) + transformer->layers().bytes());
}

// The policies, and budgets from the least to all of it.
std::vector<recompute::Policy> Policies(const recompute::Chain& chain, int budgets) {
  using Kind = recompute::Policy::Kind;
  std::vector<recompute::Policy> policies = {{.kind = Kind::kBlock}, {.kind = Kind::kSelective}};
  for (int k = 1; k <= static_cast<int>(chain.stages.size()); ++k) {
    policies.push_back({.kind = Kind::kSegments, .stages_per_segment = k});
  }
  for (size_t i = policies.size(); i-- > 0;) {
    for (const auto tier : {recompute::StashTier::kHost, recompute::StashTier::kFile}) {
      recompute::Policy stashed = policies[i];
      stashed.stash = tier;
      if (recompute::Validate(stashed).ok()) policies.push_back(stashed);
    }
  }
  const int64_t least = recompute::LeastBudget(chain).value();
  const int64_t most = recompute::PlanNone(chain)->peak_bytes;
  std::mt19937 random(3);
  for (int i = 0; i < budgets; ++i) {
    const int64_t budget =
        i == 0 ? least : std::uniform_int_distribution<int64_t>(least, most)(random);
    policies.push_back({.kind = Kind::kBudget, .budget_bytes = budget});
  }
  return policies;
}

// Losses and gradients of a step, in bits; all memory of the activations is 0xFF before.
template <typename T>
std::vector<std::vector<T>> StepOf(const ModelOptions& model, const recompute::Policy& policy,
                                   double probability, int64_t* bytes) {
  nn::Lab lab;
  const nn::DropoutMask dropout = DropoutOf(lab, probability);
  PlainParameters<T> parameters(model, 3);
  auto transformer = Create(model, kBatch, precision::kDType<T>, policy, lab.context()).value();
  *bytes = lab.context().memory_stats().current_bytes(device::Purpose::kActivations);
  const nn::Texts texts = {lab.Bytes(kBatch * (model.context + 1)).data(), kBatch, model.context};
  const auto losses = lab.Raw<float>(texts.rows());
  const auto seed = lab.Raw<float>(1);
  seed[0] = 1024;
  EXPECT_OK(transformer->Forward({}, texts, losses.data(), dropout, parameters, lab.stream()));
  EXPECT_OK(transformer->Backward({}, texts, seed.data(), dropout, parameters, lab.stream()));
  EXPECT_OK(lab.stream().Synchronize());
  std::vector<std::vector<T>> result = parameters.gradients;
  for (const float loss : losses) result.push_back({T(loss)});
  return result;
}

template <typename T>
bool SameBits(const std::vector<std::vector<T>>& a, const std::vector<std::vector<T>>& b) {
  bool same = a.size() == b.size();
  for (size_t i = 0; same && i < a.size(); ++i) {
    same = a[i].size() == b[i].size() &&
           std::memcmp(a[i].data(), b[i].data(), a[i].size() * sizeof(T)) == 0;
  }
  return same;
}

template <typename T>
void ExpectTheSameBitsWithEveryPolicy(int budgets, double probability) {
  constexpr ModelOptions kDeep = {.layers = 4, .heads = 2, .width = 16, .context = 20};
  const recompute::Chain chain = ActivationChain({kDeep, kBatch, precision::kDType<T>});
  int64_t most = 0;
  const auto wanted = StepOf<T>(kDeep, {}, probability, &most);
  EXPECT_EQ(most, recompute::PlanNone(chain)->peak_bytes);
  int fewer = 0;
  for (const recompute::Policy& policy : Policies(chain, budgets)) {
    int64_t bytes = 0;
    EXPECT_TRUE(SameBits(StepOf<T>(kDeep, policy, probability, &bytes), wanted))
        << ToString(policy);
    // To the byte.
    EXPECT_EQ(bytes,
              recompute::PlanBy(policy, chain, std::vector<int>{0, 1, 1, 1, 1, 0})->peak_bytes)
        << ToString(policy);
    if (policy.kind == recompute::Policy::Kind::kBudget) {
      EXPECT_LE(bytes, policy.budget_bytes);
    }
    fewer += bytes < most ? 1 : 0;
  }
  EXPECT_GT(fewer, budgets);
}

TEST_P(DropoutTest, AllPoliciesGiveTheSameBitsInThePlansMemory) {
  ExpectTheSameBitsWithEveryPolicy<float>(200, GetParam());
  ExpectTheSameBitsWithEveryPolicy<precision::Half>(20, GetParam());
  ExpectTheSameBitsWithEveryPolicy<precision::BFloat16>(20, GetParam());
}

// Block inputs on the host: the device has two of them, however many blocks there are.
TEST(TransformerTest, AStashHasTheInputsOfBlocksOnTheHost) {
  constexpr auto kDType = precision::DType::kBFloat16;
  constexpr auto kActivations = device::Purpose::kActivations;
  int64_t of_device = 0;
  for (const int64_t layers : {4, 8}) {
    const ModelOptions model = {.layers = layers, .heads = 2, .width = 16, .context = 20};
    recompute::Policy policy = {.kind = recompute::Policy::Kind::kBlock};
    const recompute::Schedule without = Schedule(model, kBatch, kDType, policy);
    EXPECT_EQ(without.WrittenBytes(), 0);
    policy.stash = recompute::StashTier::kHost;
    const recompute::Schedule schedule = Schedule(model, kBatch, kDType, policy);
    // The inputs of all blocks; the head's, which goes backward at once, stays.
    const int64_t written = layers * 2 * 20 * 16 * 2;
    EXPECT_EQ(schedule.WrittenBytes(), written);
    const int64_t bytes =
        ActivationBytes({model, kBatch, kDType}, PartPlan::Whole(model, schedule));
    EXPECT_LT(bytes, ActivationBytes({model, kBatch, kDType}, PartPlan::Whole(model, without)));
    if (of_device == 0) of_device = bytes;
    EXPECT_EQ(bytes, of_device);

    nn::Lab lab;
    auto transformer = Create(model, kBatch, kDType, policy, lab.context()).value();
    EXPECT_EQ(lab.context().memory_stats().current_bytes(kActivations), bytes);
    EXPECT_EQ(lab.context().host_memory_stats().current_bytes(kActivations), written);
    PlainParameters<precision::BFloat16> parameters(model, 3);
    const nn::Texts texts = {lab.Bytes(kBatch * (model.context + 1)).data(), kBatch, model.context};
    const auto losses = lab.Raw<float>(texts.rows());
    const auto seed = lab.Raw<float>(1);
    seed[0] = 1;
    for (int64_t step = 1; step <= 2; ++step) {
      ASSERT_OK(transformer->Forward({}, texts, losses.data(), {}, parameters, lab.stream()));
      ASSERT_OK(transformer->Backward({}, texts, seed.data(), {}, parameters, lab.stream()));
      EXPECT_EQ(transformer->stashed(),
                (recompute::StashMovement{.to_host = step * written, .from_host = step * written}));
    }
    ASSERT_OK(lab.stream().Synchronize());
  }
}

TEST(TransformerTest, ABudgetThatIsTooSmallNamesTheLeast) {
  const recompute::Chain chain = ActivationChain({kModel, kBatch, precision::DType::kFloat32});
  const int64_t least = recompute::LeastBudget(chain).value();
  EXPECT_THAT(PlanOf(chain, {.kind = recompute::Policy::Kind::kBudget, .budget_bytes = least - 1}),
              brigade::testing::StatusIs(absl::StatusCode::kInvalidArgument,
                                         ::testing::HasSubstr(absl::StrCat("the least, ", least))));
}

TEST(ModelTest, NumbersOfParametersAreThoseOfTheSpec) {
  const zero::ModelSpec spec = SpecOf(kModel);
  std::vector<std::string> names;
  for (const zero::UnitSpec& unit : spec) {
    for (const zero::ParameterSpec& parameter : unit.parameters) names.push_back(parameter.name);
  }
  EXPECT_EQ(names[kPositions], "positions");
  EXPECT_EQ(names[static_cast<size_t>(BlockParameter(1, kContractBias))], "h.1.contract.bias");
  EXPECT_EQ(names[static_cast<size_t>(BlockParameter(0, kQkvWeight))], "h.0.qkv.weight");
  EXPECT_EQ(names[static_cast<size_t>(HeadParameter(kModel, kFinalNormBias))], "norm.bias");
  EXPECT_EQ(std::set<std::string>(names.begin(), names.end()).size(), names.size());
}

TEST(ModelTest, WeightsBeginWithTheDeviationsOfGpt2) {
  const ModelOptions model = {.layers = 8, .heads = 2, .width = 64, .context = 64};
  const auto deviation = [&](int parameter, int64_t size) {
    std::vector<float> values(static_cast<size_t>(size));
    InitializeParameter(model, parameter, 1, {}, absl::MakeSpan(values));
    double sum = 0, squares = 0;
    for (const float value : values) {
      sum += static_cast<double>(value);
      squares += static_cast<double>(value) * static_cast<double>(value);
    }
    const auto count = static_cast<double>(size);
    EXPECT_NEAR(sum / count, 0, 5 * 0.02 / std::sqrt(count));
    return std::sqrt(squares / count);
  };
  // Known to 1 / sqrt(2 n) of 4096 elements and more: 1.1 %.
  EXPECT_NEAR(deviation(kTokens, 256 * 64), 0.02, 0.001);
  EXPECT_NEAR(deviation(kPositions, 64 * 64), 0.02, 0.001);
  EXPECT_NEAR(deviation(BlockParameter(3, kQkvWeight), 3 * 64 * 64), 0.02, 0.001);
  EXPECT_NEAR(deviation(BlockParameter(3, kExpandWeight), 4 * 64 * 64), 0.02, 0.001);
  // Two for each of the 8 layers add up in the residual stream.
  EXPECT_NEAR(deviation(BlockParameter(3, kProjectionWeight), 64 * 64), 0.005, 0.00025);
  EXPECT_NEAR(deviation(BlockParameter(3, kContractWeight), 4 * 64 * 64), 0.005, 0.00025);
}

TEST(ModelTest, BadSizesAreNamed) {
  EXPECT_EQ(Validate({.layers = 0}),
            absl::InvalidArgumentError("the model's number of layers is 0; it must be 1 to 1000"));
  EXPECT_EQ(
      Validate({.heads = 3, .width = 128}),
      absl::InvalidArgumentError("the model's width is 128; it must be a multiple of its 3 heads"));
}

}  // namespace
}  // namespace brigade::gpt
