// The section "flops_profiler" of a config.

#include <string>

#include "absl/strings/str_cat.h"
#include "brigade/tests/testing/status_matchers.h"
#include "brigade/train/config/config.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::train {
namespace {

using ::brigade::testing::StatusIs;

absl::StatusOr<TrainConfig> Read(const std::string& section) {
  return ParseConfig(
      absl::StrCat(R"({"train_batch_size": 4, "optimizer": {"type": "AdamW", "params": {"lr": 1}})",
                   section, "}"),
      2, "/configs");
}

TEST(ProfilerKeysTest, DefaultsAreDeepSpeeds) {
  for (const char* const section : {"", R"(, "flops_profiler": {})",
                                    R"(, "flops_profiler": {"enabled": false, "detailed": 7})"}) {
    ASSERT_OK_AND_ASSIGN(const TrainConfig config, Read(section));
    EXPECT_FALSE(config.profiler.enabled) << section;
    // DeepSpeed's 1: one step is made before it.
    EXPECT_EQ(config.profiler.profile_step, 2);
    EXPECT_EQ(config.profiler.module_depth, -1);
    EXPECT_EQ(config.profiler.top_modules, 1);
    EXPECT_TRUE(config.profiler.detailed);
    EXPECT_EQ(config.profiler.output_file, "");
    EXPECT_EQ(config.profiler.recompute_fwd_factor, 0);
  }
}

TEST(ProfilerKeysTest, EachKeySaysWhatIsProfiled) {
  ASSERT_OK_AND_ASSIGN(const TrainConfig config, Read(R"(, "flops_profiler": {
      "enabled": true, "profile_step": 7, "module_depth": 1, "top_modules": 3, "detailed": false,
      "output_file": "out.txt", "recompute_fwd_factor": 0.5})"));
  EXPECT_TRUE(config.profiler.enabled);
  EXPECT_EQ(config.profiler.profile_step, 8);
  EXPECT_EQ(config.profiler.module_depth, 1);
  EXPECT_EQ(config.profiler.top_modules, 3);
  EXPECT_FALSE(config.profiler.detailed);
  EXPECT_EQ(config.profiler.output_file, "/configs/out.txt");
  EXPECT_EQ(config.profiler.recompute_fwd_factor, 0.5);
  EXPECT_TRUE(config.without_effect.empty());
}

TEST(ProfilerKeysTest, NullAsInDeepSpeedsPageIsAsGoodAsNothing) {
  ASSERT_OK_AND_ASSIGN(const TrainConfig config,
                       Read(R"(, "flops_profiler": {"enabled": true, "output_file": null})"));
  EXPECT_EQ(config.profiler.output_file, "");
}

TEST(ProfilerKeysTest, WhatCannotBeIsRefused) {
  const auto refuses = [](const char* key, const char* message) {
    EXPECT_THAT(Read(absl::StrCat(R"(, "flops_profiler": {"enabled": true, )", key, "}")),
                StatusIs(absl::StatusCode::kInvalidArgument, message));
  };
  refuses(R"("profile_step": -1)",
          "flops_profiler.profile_step is -1; it must be a whole number, 0 or more");
  refuses(R"("top_modules": 0)",
          "flops_profiler.top_modules is 0; it must be a whole number, 1 to 2^20");
  refuses(R"("module_depth": -2)",
          "flops_profiler.module_depth is -2; it must be a whole number, -1 to 2^20");
  refuses(R"("detailed": 1)", "flops_profiler.detailed is 1; it must be true or false");
  refuses(R"("recompute_fwd_factor": -1)",
          "flops_profiler.recompute_fwd_factor is -1; it must be a number, 0 or more, and finite "
          "as a float");
  refuses(R"("output_file": "")",
          "flops_profiler.output_file is \"\", a string; it must be a text that is not empty");
}

}  // namespace
}  // namespace brigade::train
