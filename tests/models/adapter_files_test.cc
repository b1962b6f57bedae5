#include "brigade/models/adapter_files.h"

#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "brigade/tests/models/lab.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::models {
namespace {

using ::brigade::testing::StatusIs;
using precision::DType;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr absl::StatusCode kInvalid = absl::StatusCode::kInvalidArgument;

std::string Answers() {
  static const std::string folder = [] {
    const std::string copy = absl::StrCat(::testing::TempDir(), "/peft_files");
    std::filesystem::remove_all(copy);
    std::filesystem::copy("tests/models/peft_answers", copy,
                          std::filesystem::copy_options::recursive);
    return copy;
  }();
  return folder;
}

std::string Text(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}
void Write(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

// A new name for each call.
std::string New(const std::string& name) {
  const std::string path = absl::StrCat(::testing::TempDir(), "/", name);
  std::filesystem::remove_all(path);
  return path;
}

// PEFT's own of the folder.
ModelLab LabOf(const std::string& name) {
  const auto config = ReadConfig(Answers() + "/" + name + "/base");
  EXPECT_OK(config);
  const auto lora = ReadAdapterConfig(Answers() + "/" + name + "/adapter");
  EXPECT_OK(lora);
  return ModelLab(*config, {.dtype = DType::kFloat32, .trains = false, .lora = *lora});
}

TEST(AdapterFilesTest, WhatIsSavedIsReadAsItWas) {
  for (const std::string name : {"llama", "gpt2"}) {
    ModelLab lab = LabOf(name), again = LabOf(name);
    ASSERT_OK(
        LoadAdapter(Answers() + "/" + name + "/adapter", lab.model(), lab.arrays(), lab.context()));
    const std::string saved = New("saved");
    ASSERT_OK(SaveAdapter(saved, lab.model(), lab.arrays(), lab.context(), "base/\"\xff"));
    EXPECT_THAT(SaveAdapter(saved, lab.model(), lab.arrays(), lab.context()),
                StatusIs(absl::StatusCode::kAlreadyExists, HasSubstr("is there already")));
    const auto config = ReadAdapterConfig(saved);
    ASSERT_OK(config);
    const LoraOptions& options = *lab.model().options().lora;
    EXPECT_EQ(config->rank, options.rank);
    EXPECT_EQ(config->scale(), options.scale());
    EXPECT_EQ(config->targets, options.targets);
    ASSERT_OK(LoadAdapter(saved, again.model(), again.arrays(), again.context()));
    for (const LoraModule& module : lab.model().modules()) {
      for (const int p : {module.a, module.b}) {
        EXPECT_EQ(again.Read(again.arrays().weights(p), again.arrays().size_of(p)),
                  lab.Read(lab.arrays().weights(p), lab.arrays().size_of(p)));
      }
    }
  }
}

TEST(AdapterFilesTest, AConfigurationThatComputesSomethingElseIsRefusedByItsKey) {
  const std::string whole = R"({"peft_type": "LORA", "r": 4, "lora_alpha": 8,
      "target_modules": ["q_proj"], "bias": "none", "use_dora": false, "rank_pattern": {}})";
  ASSERT_OK(ParseAdapterConfig(whole));
  const auto pattern =
      ParseAdapterConfig(R"({"peft_type": "LORA", "r": 2, "lora_alpha": 0.5, "lora_dropout": 0.1,
                             "target_modules": ".*q_proj", "use_rslora": true})");
  ASSERT_OK(pattern);
  EXPECT_EQ(pattern->pattern, ".*q_proj");
  EXPECT_TRUE(pattern->rank_stabilized);
  EXPECT_EQ(pattern->alpha, 0.5);
  EXPECT_EQ(pattern->dropout, 0.1);
  for (const auto& [from, to, what] :
       std::vector<std::tuple<std::string, std::string, std::string>>{
           {"\"LORA\"", "\"IA3\"", "it must be LORA"},
           {"\"r\": 4", "\"r\": 4.5", "a whole number"},
           {"\"r\": 4", "\"r\": 0", "a whole number"},
           {"\"r\": 4", "\"r\": 99999999999999999999", "\"r\""},
           {"\"r\": 4", "\"rr\": 4", "\"r\" is missing"},
           {"\"lora_alpha\": 8", "\"lora_alpha\": \"8\"", "\"lora_alpha\" is \"8\""},
           {"\"none\"", "\"all\"", "only none is supported"},
           {"\"use_dora\": false", "\"use_dora\": true", "\"use_dora\" is true"},
           {"{}", "{\"q\": 3}", "\"rank_pattern\" is {\"q\":3}"},
           {"{}", "{}, \"modules_to_save\": [\"lm_head\"]", "\"modules_to_save\""},
           {"{}", "{}, \"layers_to_transform\": [1]", "\"layers_to_transform\""},
           {"{}", "{}, \"new_feature_2030\": 1", "\"new_feature_2030\" is 1"},
           {"{}", "{}, \"init_lora_weights\": \"pissa\"", "\"init_lora_weights\""},
           {"{}", "{}, \"use_rslora\": 1", "true or false"},
           {"{}", "{}, \"lora_dropout\": 1.5", "dropout is 1.5"},
           {"[\"q_proj\"]", "[3]", "a list of strings"},
           {"[\"q_proj\"]", "\"\"", "must not be empty"},
           {"[\"q_proj\"]", "{}", "a list of strings"},
       }) {
    EXPECT_THAT(ParseAdapterConfig(absl::StrReplaceAll(whole, {{from, to}})),
                StatusIs(kInvalid, HasSubstr(what)));
  }
  EXPECT_THAT(ParseAdapterConfig("[]"), StatusIs(kInvalid, HasSubstr("no object")));
  const std::string folder = New("configuration");
  std::filesystem::create_directory(folder);
  Write(folder + "/" + kAdapterConfigName, "{");
  EXPECT_THAT(ReadAdapterConfig(folder), StatusIs(kInvalid, HasSubstr(folder)));
}

TEST(AdapterFilesTest, AnotherModelsAdaptersAreRefused) {
  ModelLab llama = LabOf("llama");
  EXPECT_THAT(
      LoadAdapter(Answers() + "/gpt2/adapter", llama.model(), llama.arrays(), llama.context()),
      StatusIs(kInvalid, AllOf(HasSubstr("rank 4"), HasSubstr("rank 3"))));
  const auto load = [&](LoraOptions lora, DecoderConfig config) {
    ModelLab lab(config, {.dtype = DType::kFloat32, .trains = false, .lora = lora});
    return LoadAdapter(Answers() + "/llama/adapter", lab.model(), lab.arrays(), lab.context());
  };
  const LoraOptions own = *llama.model().options().lora;
  const DecoderConfig config = llama.model().config();
  LoraOptions other = own;
  other.targets.push_back("k_proj");
  EXPECT_THAT(load(other, config), StatusIs(kInvalid, HasSubstr("there is no tensor")));
  other.targets = {"q_proj"};
  EXPECT_THAT(load(other, config), StatusIs(kInvalid, HasSubstr("is of no adapter of the model")));
  DecoderConfig wider = config;
  wider.vocabulary += 1;
  EXPECT_THAT(load(own, wider), StatusIs(kInvalid, HasSubstr("and not [")));
  ModelLab plain(config, {.dtype = DType::kFloat32, .trains = false});
  EXPECT_THAT(
      LoadAdapter(Answers() + "/llama/adapter", plain.model(), plain.arrays(), plain.context()),
      StatusIs(kInvalid, HasSubstr("a model without adapters")));
  EXPECT_THAT(SaveAdapter(New("plain"), plain.model(), plain.arrays(), plain.context()),
              StatusIs(kInvalid, HasSubstr("a model without adapters")));
}

// Both files with bytes changed, cut or doubled: read, or refused by name, and never more.
TEST(AdapterFilesTest, MutatedFilesAreReadOrNamed) {
  ModelLab lab = LabOf("llama");
  const std::string from = Answers() + "/llama/adapter", folder = New("mutated");
  std::filesystem::create_directory(folder);
  std::mt19937 random(4);
  int refused = 0;
  constexpr int kTimes = 200;
  for (int i = 0; i < kTimes; ++i) {
    for (const char* const name : {kAdapterConfigName, kAdapterWeightsName}) {
      std::string bytes = Text(from + "/" + name);
      if ((name == std::string(kAdapterConfigName)) == (i % 2 == 0)) {
        // The header is in front.
        const size_t reach = std::min<size_t>(bytes.size(), 900);
        for (size_t n = 0, changes = 1 + random() % 3; n < changes; ++n) {
          const size_t at =
              std::min(bytes.size(), random() % (random() % 4 == 0 ? bytes.size() : reach));
          switch (random() % 4) {
            case 0:
              bytes.resize(at);
              break;
            case 1:
              bytes.insert(at, bytes.substr(random() % (bytes.size() + 1), random() % 20));
              break;
            default:
              if (at < bytes.size()) bytes[at] = static_cast<char>(random() % 256);
          }
          if (bytes.empty()) bytes = "x";
        }
      }
      Write(folder + "/" + name, bytes);
    }
    const absl::Status status = LoadAdapter(folder, lab.model(), lab.arrays(), lab.context());
    if (status.ok()) continue;
    ++refused;
    EXPECT_THAT(std::string(status.message()), HasSubstr(folder));
    EXPECT_LE(status.message().size(), 2000u);
  }
  EXPECT_GT(refused, kTimes / 3);
  EXPECT_LT(refused, kTimes);
}

}  // namespace
}  // namespace brigade::models
