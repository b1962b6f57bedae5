#include "brigade/models/config.h"

#include <string>

#include "brigade/tests/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace brigade::models {
namespace {

using ::brigade::testing::StatusIs;
using nlohmann::json;
using ::testing::HasSubstr;

constexpr absl::StatusCode kInvalid = absl::StatusCode::kInvalidArgument;

json Llama() {
  return json::parse(R"({"model_type": "llama", "vocab_size": 37, "hidden_size": 16,
    "intermediate_size": 20, "num_hidden_layers": 2, "num_attention_heads": 4,
    "max_position_embeddings": 64, "torch_dtype": "bfloat16", "bos_token_id": 1})");
}
json Gpt2() {
  return json::parse(R"({"model_type": "gpt2", "vocab_size": 37, "n_embd": 16, "n_layer": 2,
    "n_head": 2, "n_positions": 24, "attn_pdrop": 0.1, "n_inner": null})");
}

DecoderConfig Parsed(const json& document) {
  const auto config = ParseConfig(document.dump());
  EXPECT_OK(config);
  return config.value_or(DecoderConfig{});
}

TEST(ConfigTest, WhatIsMissingIsAsTheReferenceHasIt) {
  const DecoderConfig llama = Parsed(Llama());
  EXPECT_EQ(llama.architecture, Architecture::kLlama);
  EXPECT_EQ(llama.key_value_heads, 4);
  EXPECT_EQ(llama.head_width, 4);
  EXPECT_EQ(llama.norm_epsilon, 1e-6);
  EXPECT_EQ(llama.rotary_base, 10000);
  EXPECT_FALSE(llama.rotary_scaling.has_value());
  EXPECT_FALSE(llama.tied || llama.attention_bias || llama.mlp_bias);
  const DecoderConfig gpt2 = Parsed(Gpt2());
  EXPECT_EQ(gpt2.architecture, Architecture::kGpt2);
  EXPECT_EQ(gpt2.inner, 64);
  EXPECT_EQ(gpt2.norm_epsilon, 1e-5);
  EXPECT_EQ(gpt2.head_width, 8);
  EXPECT_TRUE(gpt2.tied);
}

TEST(ConfigTest, TakesASlidingWindowThatIsOff) {
  json document = Llama();
  document.update({{"sliding_window", nullptr}});
  EXPECT_OK(ParseConfig(document.dump()));
  document.update({{"sliding_window", 4096}, {"use_sliding_window", false}});
  EXPECT_OK(ParseConfig(document.dump()));
}

TEST(ConfigTest, ReadsTheRotaryScalingOfOldAndNewFiles) {
  json document = Llama();
  document["rope_theta"] = 500000.0;
  document["rope_scaling"] = {{"rope_type", "llama3"},
                              {"factor", 8.0},
                              {"low_freq_factor", 1.0},
                              {"high_freq_factor", 4.0},
                              {"original_max_position_embeddings", 8192}};
  const DecoderConfig old = Parsed(document);
  EXPECT_EQ(old.rotary_base, 500000);
  ASSERT_TRUE(old.rotary_scaling.has_value());
  EXPECT_EQ(old.rotary_scaling->factor, 8);
  EXPECT_EQ(old.rotary_scaling->low_frequency_factor, 1);
  EXPECT_EQ(old.rotary_scaling->high_frequency_factor, 4);
  EXPECT_EQ(old.rotary_scaling->original_positions, 8192);

  document = Llama();
  document["rope_parameters"] = {{"rope_type", "linear"}, {"factor", 2}, {"rope_theta", 100}};
  const DecoderConfig recent = Parsed(document);
  EXPECT_EQ(recent.rotary_base, 100);
  ASSERT_TRUE(recent.rotary_scaling.has_value());
  EXPECT_EQ(recent.rotary_scaling->factor, 2);
  EXPECT_EQ(recent.rotary_scaling->high_frequency_factor, 0);

  document["rope_parameters"] = {{"rope_type", "default"}, {"rope_theta", 100}};
  EXPECT_FALSE(Parsed(document).rotary_scaling.has_value());
}

TEST(ConfigTest, WhatIsWrittenIsReadTheSame) {
  json document = Llama();
  document["rope_scaling"] = {{"rope_type", "llama3"},
                              {"factor", 8.0},
                              {"low_freq_factor", 1.0},
                              {"high_freq_factor", 4.0},
                              {"original_max_position_embeddings", 32}};
  document["num_key_value_heads"] = 2;
  document["head_dim"] = 6;
  document["attention_bias"] = document["mlp_bias"] = document["tie_word_embeddings"] = true;
  for (const json& each : {Llama(), document, Gpt2()}) {
    const DecoderConfig config = Parsed(each);
    const std::string text = ConfigJson(config);
    const auto again = ParseConfig(text);
    ASSERT_OK(again);
    EXPECT_EQ(ConfigJson(*again), text);
    EXPECT_EQ(again->key_value_heads, config.key_value_heads);
    EXPECT_EQ(again->head_width, config.head_width);
    EXPECT_EQ(again->tied, config.tied);
    EXPECT_EQ(again->attention_bias, config.attention_bias);
    EXPECT_EQ(again->rotary_scaling.has_value(), config.rotary_scaling.has_value());
  }
}

TEST(ConfigTest, ErrorsNameTheKeyAndItsValue) {
  struct Case {
    json change;
    const char* says;
    bool gpt2 = false;
  };
  for (const Case& c : std::vector<Case>{
           {{{"model_type", "qwen2"}}, R"("model_type" is "qwen2"; it must be gpt2 or llama)"},
           {{{"hidden_size", nullptr}}, R"("hidden_size" is missing)"},
           {{{"hidden_size", "16"}}, R"("hidden_size" is "16"; it must be a whole number)"},
           {{{"hidden_size", -16}}, R"("hidden_size" is -16)"},
           {{{"hidden_size", 16.5}}, R"("hidden_size" is 16.5)"},
           {{{"hidden_size", 1e300}}, R"("hidden_size" is)"},
           {{{"vocab_size", 0}}, R"("vocab_size" is 0; it must be 1 to)"},
           {{{"num_hidden_layers", 0}}, R"("num_hidden_layers" is 0)"},
           {{{"num_attention_heads", 0}}, R"("num_attention_heads" is 0)"},
           {{{"num_key_value_heads", 3}},
            R"("num_key_value_heads" is 3; it must divide "num_attention_heads", 4)"},
           {{{"num_key_value_heads", 0}}, R"("num_key_value_heads" is 0)"},
           {{{"head_dim", 5}}, R"("head_dim" is 5; it must be even)"},
           {{{"head_dim", 258}}, R"("head_dim" is 258; it must be 1 to 256)"},
           {{{"rms_norm_eps", 0}}, R"("rms_norm_eps" is 0; it must be positive and finite)"},
           {{{"rope_theta", -1}}, R"("rope_theta" is -1)"},
           {{{"hidden_act", "gelu"}}, R"("hidden_act" is "gelu"; it must be silu)"},
           {{{"sliding_window", 4096}}, R"("sliding_window" is 4096, which is not supported)"},
           {{{"sliding_window", 8}, {"use_sliding_window", true}}, R"("sliding_window" is 8)"},
           {{{"use_sliding_window", 0}}, R"("use_sliding_window" is 0; it must be true or false)"},
           {{{"attention_bias", 1}}, R"("attention_bias" is 1; it must be true or false)"},
           {{{"rope_scaling", "linear"}}, R"("rope_scaling" must be an object)"},
           {{{"rope_scaling", {{"rope_type", "yarn"}, {"factor", 2}}}},
            R"("rope_scaling.rope_type" is "yarn"; it must be default or linear or llama3)"},
           {{{"rope_scaling", {{"type", "linear"}}}}, R"("rope_scaling.factor" is missing)"},
           {{{"activation_function", "relu"}}, R"("activation_function" is "relu")", true},
           {{{"scale_attn_by_inverse_layer_idx", true}},
            R"("scale_attn_by_inverse_layer_idx" is true, which is not supported)",
            true},
           {{{"n_head", 3}}, R"("n_embd" is 16; it must be a multiple of "n_head", 3)", true},
           {{{"n_positions", nullptr}}, R"("n_positions" is missing)", true}}) {
    json document = c.gpt2 ? Gpt2() : Llama();
    document.update(c.change);
    EXPECT_THAT(ParseConfig(document.dump()), StatusIs(kInvalid, HasSubstr(c.says)));
  }
  EXPECT_THAT(ParseConfig("[]"), StatusIs(kInvalid, HasSubstr("must be an object")));
  EXPECT_THAT(ParseConfig("{"), StatusIs(kInvalid, HasSubstr("line 1")));
  EXPECT_THAT(ReadConfig("/nowhere"),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("/nowhere/config.json")));
}

}  // namespace
}  // namespace brigade::models
