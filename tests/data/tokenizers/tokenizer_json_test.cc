#include "brigade/data/tokenizers/tokenizer_json.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "brigade/data/tokenizers/bpe_training.h"
#include "brigade/tests/data/written.h"
#include "brigade/tests/testing/full_disk.h"
#include "brigade/tests/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace brigade::data {
namespace {

using ::brigade::testing::StatusIs;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Json = nlohmann::json;

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
constexpr auto kNotSupported = absl::StatusCode::kUnimplemented;

Json Small() {
  return Json::parse(R"({"added_tokens": [{"id": 4, "content": "<s>", "special": true}],
    "normalizer": null, "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false},
    "decoder": {"type": "ByteLevel"},
    "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2, "Ġ": 3, "<s>": 4},
              "merges": ["a b"]}})");
}

TEST(TokenizerJsonTest, ReadsAFile) {
  ASSERT_OK_AND_ASSIGN(const auto tokenizer, ParseTokenizerJson(Small().dump()));
  std::vector<int32_t> ids;
  ASSERT_OK(tokenizer->Encode("ab ba<s>", SpecialText::kIsToken, ids));
  EXPECT_THAT(ids, ElementsAre(2, 3, 1, 0, 4));
  EXPECT_EQ(tokenizer->options().pattern, SplitPattern::kGpt2);
}

TEST(TokenizerJsonTest, WritesWhatItReads) {
  ASSERT_OK_AND_ASSIGN(BpeTraining training,
                       BpeTraining::Create({.vocabulary = 300,
                                            .pattern = SplitPattern::kLlama3,
                                            .special_tokens = {"<|endoftext|>", "été", "<b>"}}));
  ASSERT_OK(training.Add("some text, some texts, some more text: été été"));
  ASSERT_OK_AND_ASSIGN(const auto first, training.Train());
  BpeOptions options = first->options();
  options.before_text = {2, 0};
  options.after_text = {0};
  ASSERT_OK_AND_ASSIGN(const auto tokenizer,
                       BpeTokenizer::Create(first->model().tokens(), options));
  const std::string path = testing::Folder("written") + "/tokenizer.json";
  ASSERT_OK(WriteTokenizerJson(*tokenizer, path));
  // In the vocabulary, too, a special token stands for itself, not for its bytes' symbols.
  EXPECT_EQ(Json::parse(TokenizerJson(*tokenizer))["model"]["vocab"]["été"], 1);
  ASSERT_OK_AND_ASSIGN(const auto again, ReadTokenizerJson(path));
  EXPECT_EQ(TokenizerJson(*again), TokenizerJson(*tokenizer));
  EXPECT_EQ(again->model().tokens().tokens, tokenizer->model().tokens().tokens);
  EXPECT_EQ(again->model().tokens().merges, tokenizer->model().tokens().merges);
  EXPECT_THAT(again->before_text(), ElementsAre(2, 0));
  EXPECT_THAT(again->after_text(), ElementsAre(0));
  {
    const brigade::testing::FullDisk full(100);
    EXPECT_THAT(WriteTokenizerJson(*tokenizer, path),
                StatusIs(absl::StatusCode::kUnavailable, HasSubstr(path)));
  }
  EXPECT_OK(ReadTokenizerJson(path));
}

TEST(TokenizerJsonTest, NamesWhatIsWrongOrNotSupported) {
  const auto expect = [](const char* pointer, const char* value, absl::StatusCode code,
                         const char* text) {
    Json file = Small();
    file[Json::json_pointer(pointer)] = Json::parse(value);
    EXPECT_THAT(ParseTokenizerJson(file.dump()), StatusIs(code, HasSubstr(text))) << pointer;
  };
  expect("/model/type", "\"WordPiece\"", kNotSupported, "model is \"WordPiece\"; supported is BPE");
  expect("/model", "3", kNotSupported, "model is 3");
  expect("/normalizer", R"({"type": "NFC"})", kNotSupported, "normalizer is {\"type\":\"NFC\"}");
  expect("/pre_tokenizer", R"({"type": "Whitespace"})", kNotSupported, "pre_tokenizer is");
  expect("/pre_tokenizer", "null", kNotSupported, "pre_tokenizer is null");
  expect("/pre_tokenizer", R"({"type": "Sequence", "pretokenizers": [{"type": "Split", "pattern":
         {"Regex": "\\w+"}, "behavior": "Isolated"}, {"type": "ByteLevel", "use_regex": false}]})",
         kNotSupported,
         R"(pretokenizers[0].pattern is {"Regex":"\\w+"}; supported are the regexes)");
  expect("/decoder", R"({"type": "Fuse"})", kNotSupported, "decoder is");
  expect("/post_processor", R"({"type": "BertProcessing"})", kNotSupported, "post_processor is");
  expect("/post_processor", R"({"type": "TemplateProcessing", "single": []})", kInvalid,
         "post_processor.single has no Sequence");
  expect("/post_processor",
         R"({"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "x"}}]})", kInvalid,
         "single[0] is");
  expect("/post_processor",
         R"({"type": "RobertaProcessing", "cls": ["<s>", 99], "sep": ["<s>", 4]})", kInvalid,
         "id 99 around a text");
  expect("/model/dropout", "0.1", kNotSupported, "model.dropout is 0.1");
  expect("/model/unk_token", "\"<s>\"", kNotSupported,
         "unk_token is given, and byte 0 has no token");
  expect("/model/byte_fallback", "true", kNotSupported, "byte_fallback is given");
  expect("/model/end_of_word_suffix", "\"</w>\"", kNotSupported, "end_of_word_suffix is");
  expect("/model/vocab/a", "-1", kInvalid, "model.vocab[\"a\"] is -1, not an id");
  expect("/model/vocab/a", "1.5", kInvalid, "not an id");
  expect("/model/vocab/a", "4294967296", kInvalid, "not an id");
  expect("/model/vocab/a", "1", kInvalid, "which is the id of");
  expect("/model/vocab/漢", "9", kNotSupported, "has characters that stand for no byte");
  expect("/model/vocab/", "9", kNotSupported, "has characters that stand for no byte");
  expect("/model/vocab", "[]", kInvalid, "model.vocab is [], not an object");
  expect("/model/merges", "{}", kInvalid, "model.merges is {}, not an array");
  expect("/model/merges/0", "\"ab\"", kInvalid,
         "model.merges[0] is \"ab\", not two tokens of vocab");
  expect("/model/merges/0", "[\"a\"]", kInvalid, "model.merges[0]");
  expect("/model/merges/0", "\"b a\"", kInvalid, "merge 0 makes \"ba\", which is no token");
  expect("/added_tokens", "{}", kInvalid, "added_tokens is {}, not an array");
  expect("/added_tokens/0/content", "1", kInvalid, "added_tokens[0].content is 1, not a string");
  expect("/added_tokens/0/content", "\"\"", kInvalid, "no text");
  expect("/added_tokens/0/id", "\"a\"", kInvalid, "added_tokens[0].id is");
  expect("/added_tokens/0/lstrip", "1", kInvalid, "added_tokens[0].lstrip is 1, not true or false");
  expect("/added_tokens/0/single_word", "true", kNotSupported, "single_word is true");
  EXPECT_THAT(ParseTokenizerJson("[]"), StatusIs(kInvalid, HasSubstr("it is [], not an object")));
  EXPECT_THAT(ParseTokenizerJson("{\n 1"), StatusIs(kInvalid, HasSubstr("line 2, column 2")));
  EXPECT_THAT(ReadTokenizerJson("/none.json"),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("/none.json")));
  const std::string path = testing::Write(testing::Folder("named") + "/t.json", "{}");
  EXPECT_THAT(ReadTokenizerJson(path),
              StatusIs(kNotSupported, HasSubstr(path + ": pre_tokenizer")));
}

}  // namespace
}  // namespace brigade::data
