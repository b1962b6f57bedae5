#include "brigade/optim/parameter_group.h"

#include <cstdint>
#include <limits>
#include <vector>

#include "brigade/tests/testing/status_matchers.h"
#include "gtest/gtest.h"

namespace brigade::optim {
namespace {

using ::brigade::testing::StatusIs;
using ::testing::HasSubstr;

// Two groups, the second as given.
OptimizerOptions Options(OptimizerKind kind, const ParameterGroup& group) {
  return {.kind = kind, .groups = {ParameterGroup(), group}};
}

TEST(ParameterGroupTest, TheDefaultsAreValid) {
  for (const auto kind :
       {OptimizerKind::kAdamW, OptimizerKind::kAdam, OptimizerKind::kSgd, OptimizerKind::kLion,
        OptimizerKind::kLamb, OptimizerKind::kAdamW8, OptimizerKind::kAdam8}) {
    EXPECT_OK(Validate({.kind = kind}));
  }
}

TEST(ParameterGroupTest, MomentsAreThoseThatSomeGroupNeeds) {
  EXPECT_EQ(Moments({.kind = OptimizerKind::kAdamW}), 2);
  EXPECT_EQ(Moments({.kind = OptimizerKind::kAdam}), 2);
  EXPECT_EQ(Moments({.kind = OptimizerKind::kLion}), 1);
  EXPECT_EQ(Moments({.kind = OptimizerKind::kOneBitAdam}), 2);
  EXPECT_EQ(Moments({.kind = OptimizerKind::kLamb}), 2);
  EXPECT_EQ(Moments({.kind = OptimizerKind::kOneBitLamb}), 4);
  EXPECT_EQ(Moments({.kind = OptimizerKind::kZeroOneAdam}), 2);
  EXPECT_EQ(Moments({.kind = OptimizerKind::kAdamW8}), 4);
  EXPECT_EQ(Moments({.kind = OptimizerKind::kSgd}), 0);
  EXPECT_EQ(Moments(Options(OptimizerKind::kSgd, {.momentum = 0.9})), 1);
}

// Of 300 elements: a byte for each of two moments, and a scale of each for two blocks.
TEST(ParameterGroupTest, CodesHaveABlocksScales) {
  const auto bytes = [](OptimizerKind kind, bool coded) {
    std::vector<int64_t> all;
    for (int moment = 0; moment < Moments({.kind = kind}); ++moment) {
      all.push_back(MomentArrayOf(kind, coded, moment).Bytes(300));
    }
    return all;
  };
  EXPECT_EQ(bytes(OptimizerKind::kAdamW8, true), (std::vector<int64_t>{300, 300, 8, 8}));
  EXPECT_EQ(bytes(OptimizerKind::kAdam8, false), (std::vector<int64_t>{1200, 1200, 0, 0}));
  EXPECT_EQ(bytes(OptimizerKind::kAdamW, false), (std::vector<int64_t>{1200, 1200}));
  EXPECT_EQ(bytes(OptimizerKind::kAdafactor, true), (std::vector<int64_t>{76}));
  EXPECT_EQ(bytes(OptimizerKind::kAdafactor, false), (std::vector<int64_t>{1200}));
  EXPECT_EQ(Moments({.kind = OptimizerKind::kAdafactor, .groups = {{.momentum = 0.9}}}), 2);
  EXPECT_EQ(TensorTile(OptimizerKind::kAdamW8), 256);
  EXPECT_FALSE(CodesOf({.kind = OptimizerKind::kAdamW}).has_value());
  EXPECT_EQ(CodesOf({.kind = OptimizerKind::kAdam8})->min_elements, 4096);
}

TEST(ParameterGroupTest, BadInputNamesGroupFieldAndValue) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const struct {
    OptimizerOptions options;
    const char* text;
  } cases[] = {
      {{.kind = static_cast<OptimizerKind>(12)}, "kind is 12"},
      {Options(OptimizerKind::kAdafactor, {.momentum = 1.0}), "momentum of group 1 is 1"},
      {{.kind = OptimizerKind::kAdafactor, .adafactor = {.eps1 = 0}}, "optimizer: eps1 is 0"},
      {{.kind = OptimizerKind::kAdafactor,
        .adafactor = {.relative_step = false, .warmup_init = true}},
       "warmup_init is true, which needs relative_step"},
      {{.kind = OptimizerKind::kAdamW8, .coded = {.min_elements = -1}},
       "coded.min_elements is -1, must be 0 or more"},
      {Options(OptimizerKind::kAdam8, {.eps = 0.0}), "eps of group 1 is 0"},
      {{.groups = {}}, "0 groups, must be 1 to 128"},
      {{.groups = std::vector<ParameterGroup>(129)}, "129 groups"},
      {Options(OptimizerKind::kAdamW, {.lr = -0.5}), "lr of group 1 is -0.5"},
      {Options(OptimizerKind::kAdamW, {.lr = nan}), "lr of group 1 is nan"},
      {Options(OptimizerKind::kAdamW, {.schedule = WarmupDecayLR()}),
       "schedule of group 1: WarmupDecayLR: total_num_steps is 0"},
      {Options(OptimizerKind::kSgd, {.weight_decay = -1}), "weight_decay of group 1 is -1"},
      {Options(OptimizerKind::kAdam, {.beta1 = 1.0}), "beta1 of group 1 is 1"},
      {Options(OptimizerKind::kAdamW, {.beta2 = -0.1}), "beta2 of group 1 is -0.1"},
      {Options(OptimizerKind::kAdamW, {.eps = 0.0}), "eps of group 1 is 0"},
      {Options(OptimizerKind::kLion, {.beta1 = -1}), "beta1 of group 1 is -1"},
      {Options(OptimizerKind::kLion, {.beta2 = 1.0}), "beta2 of group 1 is 1"},
      {Options(OptimizerKind::kLion, {.weight_decay = nan}), "weight_decay of group 1 is nan"},
      {Options(OptimizerKind::kLamb, {.eps = 0.0}), "eps of group 1 is 0"},
      {Options(OptimizerKind::kLamb, {.max_trust = -1}), "max_trust of group 1 is -1"},
      {Options(OptimizerKind::kLamb, {.min_trust = 11}), "min_trust of group 1 is 11"},
      {{.kind = OptimizerKind::kLamb, .groups = std::vector<ParameterGroup>(65)},
       "65 groups of LAMB, must be 1 to 64"},
      {Options(OptimizerKind::kSgd, {.momentum = 1.0}), "momentum of group 1 is 1"},
      {Options(OptimizerKind::kSgd, {.dampening = 2.0}), "dampening of group 1 is 2"},
      {Options(OptimizerKind::kSgd, {.nesterov = true}), "nesterov of group 1 needs momentum > 0"},
      {Options(OptimizerKind::kSgd, {.momentum = 0.9, .dampening = 0.5, .nesterov = true}),
       "dampening 0, but they are 0.9 and 0.5"},
  };
  for (const auto& c : cases) {
    EXPECT_THAT(Validate(c.options),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(c.text)));
  }
}

TEST(ParameterGroupTest, FieldsOfAnotherOptimizerDoNotCount) {
  EXPECT_OK(Validate(Options(OptimizerKind::kAdamW, {.momentum = 7.0})));
  EXPECT_OK(Validate(Options(OptimizerKind::kLion, {.eps = 0.0, .momentum = 7.0})));
  EXPECT_OK(Validate(Options(OptimizerKind::kSgd, {.beta1 = 7.0, .eps = 0.0})));
  EXPECT_OK(Validate(Options(OptimizerKind::kAdamW, {.min_trust = 7.0, .max_trust = -1.0})));
}

}  // namespace
}  // namespace brigade::optim
