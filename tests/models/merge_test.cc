#include "brigade/models/merge.h"

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "brigade/nn/random.h"
#include "brigade/tests/models/lab.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::models {
namespace {

using ::brigade::testing::StatusIs;
using precision::DType;
using ::testing::HasSubstr;

constexpr absl::StatusCode kInvalid = absl::StatusCode::kInvalidArgument;

// Of both kinds of layers, in both orientations. The head is not tied: it is adapted too.
DecoderConfig Untied(DecoderConfig config) {
  config.tied = false;
  return config;
}

DecoderOptions With(const LoraOptions& lora, DType dtype) {
  return {.dtype = dtype, .samples = 1, .positions = 6, .lora = lora};
}

void Fill(ModelLab& lab) {
  for (int p = 0; p < lab.arrays().size(); ++p) {
    nn::Random random(11, static_cast<uint64_t>(p));
    std::vector<double> values(static_cast<size_t>(lab.arrays().size_of(p)));
    for (double& value : values) value = random.Uniform() - 0.4;
    lab.Write(values, lab.arrays().weights(p));
  }
}

std::vector<std::vector<double>> All(ModelLab& lab) {
  std::vector<std::vector<double>> all;
  for (int p = 0; p < lab.arrays().size(); ++p) {
    all.push_back(lab.Read(lab.arrays().weights(p), lab.arrays().size_of(p)));
  }
  return all;
}

// From the formula, element by element, of values as they are in memory.
std::vector<double> Wanted(const ModelLab& lab, const LoraModule& module,
                           const std::vector<std::vector<double>>& values) {
  const auto& model = const_cast<ModelLab&>(lab).model();
  const LoraOptions& lora = *model.options().lora;
  std::vector<double> weights = values[static_cast<size_t>(module.weight)];
  const auto& a = values[static_cast<size_t>(module.a)];
  const auto& b = values[static_cast<size_t>(module.b)];
  for (int64_t o = 0; o < module.outputs; ++o) {
    for (int64_t i = 0; i < module.inputs; ++i) {
      long double sum = 0;
      for (int64_t r = 0; r < lora.rank; ++r) {
        const int64_t at = module.is_embedding() ? i * lora.rank + r : r * module.inputs + i;
        sum += static_cast<long double>(b[static_cast<size_t>(o * lora.rank + r)]) *
               static_cast<long double>(a[static_cast<size_t>(at)]);
      }
      const bool by_inputs = module.is_embedding() || module.input_major;
      double& weight =
          weights[static_cast<size_t>(by_inputs ? i * module.outputs + o : o * module.inputs + i)];
      weight = static_cast<double>(static_cast<long double>(weight) +
                                   static_cast<long double>(lora.scale()) * sum);
    }
  }
  return weights;
}

// Half the distance of neighbours around x.
double HalfUnit(DType type, double x) {
  const int bits = type == DType::kFloat32 ? 24 : type == DType::kFloat16 ? 11 : 8;
  return std::ldexp(0.5, std::ilogb(x) + 1 - bits);
}

class MergeTest : public ::testing::TestWithParam<std::tuple<DecoderConfig, DType>> {};
INSTANTIATE_TEST_SUITE_P(
    Models, MergeTest,
    ::testing::Combine(::testing::Values(Untied(TinyLlama()), Untied(TinyGpt2())),
                       ::testing::Values(DType::kFloat32, DType::kFloat16, DType::kBFloat16)),
    [](const auto& info) {
      return absl::StrCat(NameOf(std::get<0>(info.param).architecture), "_",
                          precision::Name(std::get<1>(info.param)));
    });

TEST_P(MergeTest, RoundsOnceAndUnmergesToTheBitsThatWereThere) {
  const auto& [config, dtype] = GetParam();
  ModelLab lab(config, With({.rank = 3, .alpha = 5, .pattern = ".*"}, dtype));
  Fill(lab);
  const auto before = All(lab);
  auto merged = MergedAdapters::Merge(lab.model(), lab.arrays(), lab.context());
  ASSERT_OK(merged);
  EXPECT_FALSE(lab.model().applies_adapters());
  const auto after = All(lab);
  std::vector<bool> changed(before.size());
  for (const LoraModule& module : lab.model().modules()) {
    const auto p = static_cast<size_t>(module.weight);
    changed[p] = true;
    const std::vector<double> wanted = Wanted(lab, module, before);
    ASSERT_EQ(wanted.size(), after[p].size());
    for (size_t i = 0; i < wanted.size(); ++i) {
      // Rounded to the nearest, and nothing else.
      ASSERT_LE(std::abs(after[p][i] - wanted[i]), HalfUnit(dtype, wanted[i]) * (1 + 1e-9))
          << module.name << " " << i << " " << wanted[i];
    }
    EXPECT_NE(after[p], before[p]);
  }
  for (size_t p = 0; p < before.size(); ++p) {
    if (changed[p]) continue;
    EXPECT_EQ(after[p], before[p]);
  }
  EXPECT_THAT(MergedAdapters::Merge(lab.model(), lab.arrays(), lab.context()),
              StatusIs(kInvalid, HasSubstr("are merged")));
  ASSERT_OK(merged->Unmerge());
  EXPECT_TRUE(lab.model().applies_adapters());
  EXPECT_EQ(All(lab), before);
}

// By way of float some sums would be rounded twice: 1 + 2^-8 + 2^-30 lies above the middle of two
// neighbours of bfloat16, and its nearest float on it, from which ties go to 1.
TEST(MergeTest, NoSumIsRoundedTwice) {
  for (const double sign : {1.0, -1.0}) {
    ModelLab lab(Untied(TinyLlama()),
                 With({.rank = 2, .alpha = 2, .targets = {"q_proj"}}, DType::kBFloat16));
    Fill(lab);
    const LoraModule& module = lab.model().modules().front();
    const auto fill = [&](int p, std::vector<double> pattern) {
      std::vector<double> values;
      while (static_cast<int64_t>(values.size()) < lab.arrays().size_of(p)) {
        values.insert(values.end(), pattern.begin(), pattern.end());
      }
      values.resize(static_cast<size_t>(lab.arrays().size_of(p)));
      lab.Write(values, lab.arrays().weights(p));
    };
    const auto merged = [&](double second) {
      fill(module.weight, {sign});
      fill(module.a, {1});
      // Of each row the two ranks.
      fill(module.b, {sign * 0x1p-8, sign * second});
      auto both = MergedAdapters::Merge(lab.model(), lab.arrays(), lab.context());
      EXPECT_OK(both);
      const double value = lab.Read(lab.arrays().weights(module.weight), 1)[0];
      EXPECT_OK(both->Unmerge());
      return value;
    };
    EXPECT_EQ(merged(0), sign);
    EXPECT_EQ(merged(0x1p-30), sign * (1 + 0x1p-7));
    EXPECT_EQ(merged(-0x1p-30), sign);
  }
}

TEST_P(MergeTest, TheMergedModelHasTheLogitsOfTheAdapters) {
  const auto& [config, dtype] = GetParam();
  ModelLab lab(config, With({.rank = 3, .alpha = 1, .pattern = ".*"}, dtype));
  Fill(lab);
  const auto ids = lab.Filled<int32_t>({1, 5, 3, 22, 0, 7});
  const Batch batch = {ids.data(), ids.data(), 1, 6};
  const auto logits = [&](ModelLab& of) {
    of.Losses(batch);
    return of.Read(of.model().logits(), 6 * config.vocabulary);
  };
  const auto expect_near = [&](const std::vector<double>& some, const std::vector<double>& others) {
    double error = 0, largest = 0;
    for (size_t i = 0; i < some.size(); ++i) {
      error = std::max(error, std::abs(some[i] - others[i]));
      largest = std::max(largest, std::abs(some[i]));
    }
    EXPECT_LT(error, (dtype == DType::kFloat32   ? 1e-4
                      : dtype == DType::kFloat16 ? 0.03
                                                 : 0.2) *
                         largest);
    EXPECT_GT(largest, 0);
  };
  const std::vector<double> apart = logits(lab);
  // Into the model without adapters, first.
  ModelLab plain(config, {.dtype = dtype, .samples = 1, .positions = 6});
  ASSERT_OK(MergeInto(lab.model(), lab.arrays(), plain.model(), plain.arrays(), plain.context()));
  auto merged = MergedAdapters::Merge(lab.model(), lab.arrays(), lab.context());
  ASSERT_OK(merged);
  const std::vector<double> together = logits(lab);
  expect_near(together, apart);
  EXPECT_EQ(logits(plain), together);
  const auto seed = lab.Filled<float>({1.0f});
  EXPECT_THAT(Backward(lab.model(), batch, seed.data(), lab.arrays(), lab.stream()),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("merged")));
  ASSERT_OK(merged->Unmerge());
  EXPECT_EQ(logits(lab), apart);
}

TEST(MergeErrorsTest, NameWhatCannotBeMerged) {
  const DecoderConfig tied = TinyGpt2();
  const auto merge = [&](const DecoderOptions& options) {
    ModelLab lab(tied, options);
    return MergedAdapters::Merge(lab.model(), lab.arrays(), lab.context()).status();
  };
  EXPECT_THAT(merge({.dtype = DType::kFloat32}), StatusIs(kInvalid, HasSubstr("without adapters")));
  EXPECT_THAT(merge(With({.targets = {"lm_head"}}, DType::kFloat32)),
              StatusIs(kInvalid, HasSubstr("\"lm_head\" cannot be merged")));
  EXPECT_THAT(merge(With({.targets = {"wte"}}, DType::kFloat32)),
              StatusIs(kInvalid, HasSubstr("\"transformer.wte\" cannot be merged")));
  EXPECT_THAT(merge(With({.base = BaseFormat::kInt8Blocks}, DType::kFloat32)),
              StatusIs(kInvalid, HasSubstr("int8 blocks")));
  ModelLab lab(tied, With({}, DType::kFloat32)), other(TinyLlama(), {.dtype = DType::kFloat32});
  EXPECT_THAT(MergeInto(lab.model(), lab.arrays(), other.model(), other.arrays(), lab.context()),
              StatusIs(kInvalid, HasSubstr("model.embed_tokens.weight")));
}

// Codes become numbers, and then the sum is rounded.
TEST(MergeInt8Test, ABaseOfInt8BlocksIsMergedAsItsNumbers) {
  const DecoderConfig config = TinyLlama();
  ModelLab lab(config,
               With({.rank = 2, .alpha = 2, .base = BaseFormat::kInt8Blocks}, DType::kFloat32));
  ModelLab whole(config, With({.rank = 2, .alpha = 2}, DType::kFloat32));
  ModelLab plain(config, {.dtype = DType::kFloat32}), other(config, {.dtype = DType::kFloat32});
  for (int p = 0; p < lab.arrays().size(); ++p) {
    const ParameterRole& role = lab.model().roles()[static_cast<size_t>(p)];
    std::vector<float> values(static_cast<size_t>(lab.arrays().size_of(p)));
    lab.model().Initialize(p, 3, absl::MakeSpan(values));
    if (role.is_adapter()) std::fill(values.begin(), values.end(), 0.125f);
    const auto words = lab.Filled(values);
    ASSERT_OK(lab.stream().Copy(lab.arrays().weights(p), words.data(), lab.arrays().bytes_of(p)));
    ASSERT_OK(lab.stream().Synchronize());
    std::vector<float> numbers = values;
    if (role.kind == ParameterRole::Kind::kInt8Base) {
      numbers.resize(static_cast<size_t>(role.size()));
      DequantizeWords(values, absl::MakeSpan(numbers));
    }
    whole.Write({numbers.begin(), numbers.end()}, whole.arrays().weights(p));
  }
  ASSERT_OK(MergeInto(lab.model(), lab.arrays(), plain.model(), plain.arrays(), lab.context()));
  ASSERT_OK(MergeInto(whole.model(), whole.arrays(), other.model(), other.arrays(), lab.context()));
  EXPECT_EQ(All(plain), All(other));
}

}  // namespace
}  // namespace brigade::models
