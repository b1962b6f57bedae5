#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "brigade/examples/gpt/config.h"
#include "brigade/examples/gpt/json_reader.h"
#include "brigade/tests/testing/sanitizer.h"
#include "brigade/tests/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

// Valid configs, damaged: as bytes, and as JSON that stays well-formed. Whatever comes out, the
// reader gives a config that is valid or an error that says something.

namespace brigade::gpt {
namespace {

constexpr int kRanks = 4;

// Of each seed.
constexpr int kInputs = testing::kSanitizer ? 10'000 : 20'000;

// Together they hold every key that may have more than one value.
constexpr std::array<const char*, 7> kValid = {
    R"({"train_batch_size": 4, "optimizer": {"type": "SGD",
        "params": {"lr": 0.001, "momentum": 0.9}}, "fp16": {"enabled": true},
        "zero_optimization": {"stage": 2}})",
    R"({"train_batch_size": 32, "train_micro_batch_size_per_gpu": 4,
        "gradient_accumulation_steps": 2, "gradient_clipping": 1.0,
        "bf16": {"enabled": true, "check_grad_overflow": false},
        "optimizer": {"type": "AdamW", "params": {"lr": 2e-3, "betas": [0.9, 0.95], "eps": 1e-8,
        "weight_decay": 0.1}}, "zero_optimization": {"stage": 3, "overlap_comm": true,
        "reduce_bucket_size": 5e5, "allgather_bucket_size": 5e5,
        "stage3_param_persistence_threshold": 1000}, "brigade": {"live_units": 3}})",
    R"({"train_micro_batch_size_per_gpu": 8, "optimizer": {"type": "Adam", "params":
        {"adam_w_mode": false}}, "scheduler": {"type": "WarmupLR", "params":
        {"warmup_min_lr": 0, "warmup_num_steps": 20, "warmup_type": "linear"}}})",
    R"({"train_batch_size": 8, "optimizer": {"type": "Adam"}, "fp16": {"enabled": true,
        "loss_scale": 0, "initial_scale_power": 12, "loss_scale_window": 500, "hysteresis": 3,
        "consecutive_hysteresis": true, "min_loss_scale": 4}, "brigade": {"algorithm":
        "hierarchical", "reduction": "fp32_partials", "ranks_per_node": 2,
        "accumulation": "at_boundary", "at_minimum_loss_scale": "clamp"},
        "data_types": {"grad_accum_dtype": "bf16"}, "zero_optimization": {"stage": 1}})",
    R"({"train_batch_size": 8, "optimizer": {"type": "SGD", "params": {"momentum": 0.5,
        "nesterov": true, "dampening": 0}}, "scheduler": {"type": "OneCycle", "params":
        {"cycle_min_lr": 0.1, "cycle_max_lr": 0.2, "decay_lr_rate": 0.5, "decay_step_size": 5,
        "cycle_first_step_size": 3, "cycle_second_step_size": 4, "total_num_steps": 60,
        "cycle_momentum": false}}, "zero_allow_untested_optimizer": true})",
    R"({"train_batch_size": 8, "optimizer": {"type": "Adam"}, "scheduler": {"type":
        "WarmupCosineLR", "params": {"total_num_steps": 9, "warmup_min_ratio": 0.1,
        "cos_min_ratio": 0.2}}, "zero_optimization": {"stage": 3,
        "stage3_prefetch_bucket_size": 0}})",
    R"({"train_batch_size": 8, "optimizer": {"type": "Adam"}, "scheduler": {"type":
        "WarmupDecayLR", "params": {"total_num_steps": 9, "warmup_max_lr": 0.001,
        "warmup_min_lr": 0, "last_batch_iteration": -1}}})"};

// What is likely to reach another branch of parser or table.
constexpr std::array<const char*, 30> kTokens = {"{",
                                                 "}",
                                                 "[",
                                                 "]",
                                                 ",",
                                                 ":",
                                                 "\"",
                                                 "\\",
                                                 "\\u0000",
                                                 "//",
                                                 "null",
                                                 "true",
                                                 "false",
                                                 "NaN",
                                                 "Infinity",
                                                 "1e999",
                                                 "-1e999",
                                                 "1e-999",
                                                 "-0",
                                                 "0",
                                                 "-1",
                                                 "1e308",
                                                 "4e38",
                                                 "1e-46",
                                                 "2147483648",
                                                 "1.5",
                                                 "9223372036854775808",
                                                 "[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[",
                                                 "\"enabled\": true,",
                                                 "{\"a\":{\"a\":{\"a\":"};

class Mutator {
 public:
  explicit Mutator(uint64_t seed) : random_(seed) {
    for (const char* text : kValid) valid_.push_back(*ParseJson(text));
  }

  // One to three mutations of a valid config, all of one sort.
  std::string Next() {
    const size_t chosen = Below(kValid.size());
    const int mutations = 1 + static_cast<int>(Below(3));
    if (Below(2) == 0) {
      std::string text = kValid[chosen];
      for (int i = 0; i < mutations; ++i) ChangeBytes(text);
      return text;
    }
    Json json = valid_[chosen];
    for (int i = 0; i < mutations; ++i) ChangeStructure(json);
    return json.dump();
  }

 private:
  size_t Below(size_t end) { return random_() % end; }

  void ChangeBytes(std::string& text) {
    const size_t at = Below(text.size() + 1);
    const std::string other = kValid[Below(kValid.size())];
    switch (Below(6)) {
      case 0:
        text.insert(at, 1, static_cast<char>(Below(256)));
        break;
      case 1:
        if (at < text.size()) text[at] ^= static_cast<char>(1 << Below(8));
        break;
      case 2:
        text.erase(at, 1 + Below(8));
        break;
      case 3:
        text.insert(at, kTokens[Below(kTokens.size())]);
        break;
      case 4:  // this begins, the other ends
        text = text.substr(0, at) + other.substr(Below(other.size()));
        break;
      default:
        text.insert(at, text.substr(Below(text.size() + 1), Below(64)));
    }
    if (text.empty()) text = " ";
  }

  // Somewhere in `json`, a value or a member.
  Json* AnyNode(Json& json) {
    Json* node = &json;
    while (node->is_structured() && !node->empty() && (node == &json || Below(6) > 0)) {
      node = &*std::next(node->begin(), static_cast<std::ptrdiff_t>(Below(node->size())));
    }
    return node;
  }

  Json AnyValue() {
    switch (Below(8)) {
      case 0:
        return nullptr;
      case 1:
        return Below(2) == 0;
      case 2:
        return static_cast<int64_t>(random_() >> Below(64));
      case 3:
        return -static_cast<int64_t>(Below(3));
      case 4:
        return std::ldexp(static_cast<double>(Below(1000)), static_cast<int>(Below(600)) - 300);
      case 5:
        return Json::array({0.5, AnyWord()});
      case 6:
        return AnyWord();
      default:
        return *AnyNode(valid_[Below(valid_.size())]);
    }
  }

  // A name from some valid config, at times misspelt.
  std::string AnyWord() {
    const Json& from = *AnyNode(valid_[Below(valid_.size())]);
    std::string word = "auto";
    if (from.is_string()) word = from.get<std::string>();
    if (from.is_object() && !from.empty()) {
      word = std::next(from.begin(), static_cast<std::ptrdiff_t>(Below(from.size()))).key();
    }
    if (Below(4) == 0 && !word.empty()) word[Below(word.size())] = 'x';
    return word;
  }

  void ChangeStructure(Json& json) {
    Json* node = AnyNode(json);
    if (node->is_boolean() && Below(2) == 0) {
      *node = !node->get<bool>();
      return;
    }
    if (node->is_number() && Below(2) == 0) {  // one that is often valid
      *node = std::ldexp(1.0, static_cast<int>(Below(24)) - 12);
      return;
    }
    if (!node->is_object() || node->empty() || Below(2) == 0) {
      *node = AnyValue();
      return;
    }
    const auto member = std::next(node->begin(), static_cast<std::ptrdiff_t>(Below(node->size())));
    switch (Below(3)) {
      case 0:
        node->erase(member);
        break;
      case 1: {  // renamed
        Json value = *member;
        node->erase(member);
        (*node)[AnyWord()] = std::move(value);
        break;
      }
      default:
        (*node)[AnyWord()] = AnyValue();
    }
  }

  std::mt19937_64 random_;
  std::vector<Json> valid_;
};

class ConfigFuzzTest : public ::testing::TestWithParam<int> {};

TEST_P(ConfigFuzzTest, GivesAValidConfigOrSaysWhatIsWrong) {
  Mutator mutator(GetParam());
  int accepted = 0;
  int not_json = 0;
  for (int i = 0; i < kInputs; ++i) {
    const std::string text = mutator.Next();
    const absl::StatusOr<TrainConfig> config = ParseConfig(text, kRanks);
    if (config.ok()) {
      ++accepted;
      const zero::BatchSizes& batch = config->batch;
      ASSERT_OK(zero::Validate(config->zero)) << text;
      ASSERT_EQ(zero::CompleteBatchSizes(batch, kRanks).value(), batch) << text;
      ASSERT_EQ(config->zero.micro_batches, batch.gradient_accumulation_steps) << text;
      continue;
    }
    const absl::string_view message = config.status().message();
    not_json += message.substr(0, 8) == "not vali";
    ASSERT_GE(message.size(), 10u) << text;
    ASSERT_LE(message.size(), 1000u) << text;
    ASSERT_TRUE(std::all_of(message.begin(), message.end(), absl::ascii_isprint)) << text;
  }
  // All three sorts are reached, often.
  EXPECT_GT(accepted, kInputs / 50);
  EXPECT_GT(not_json, kInputs / 10);
  EXPECT_GT(kInputs - accepted - not_json, kInputs / 10);
  RecordProperty("accepted", accepted);
  RecordProperty("not_json", not_json);
}

INSTANTIATE_TEST_SUITE_P(Seeds, ConfigFuzzTest, ::testing::Range(0, 4));
INSTANTIATE_TEST_SUITE_P(MoreSeeds, ConfigFuzzTest, ::testing::Range(4, 20));

}  // namespace
}  // namespace brigade::gpt
