// Data files with a few bytes changed, cut or doubled: read, or refused by name, and never more.

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "brigade/data/line_dataset.h"
#include "brigade/data/text_dataset.h"
#include "brigade/data/tokenizers/bpe_training.h"
#include "brigade/data/tokenizers/tokenizer_json.h"
#include "brigade/tests/data/written.h"
#include "brigade/tests/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::data {

int mutations = 300;

namespace {

using testing::Folder;
using ::testing::HasSubstr;
using testing::OwnRow;
using testing::Write;

std::string Mutated(std::string bytes, std::mt19937& random) {
  const auto below = [&](size_t bound) { return bound == 0 ? 0 : random() % bound; };
  static const std::vector<std::string> kPieces = {"\"",
                                                   "\\",
                                                   "{",
                                                   "}",
                                                   "[",
                                                   "]",
                                                   ":",
                                                   ",",
                                                   "\n",
                                                   "\r",
                                                   std::string(1, '\0'),
                                                   "\xff",
                                                   "\xc3",
                                                   "\xe2\x82",
                                                   "\xed\xa0\x80",
                                                   "\\ud800",
                                                   "\\u0000",
                                                   "1e999",
                                                   "null",
                                                   "\xef\xbb\xbf",
                                                   "-",
                                                   "99999999999",
                                                   "\"prompt\":",
                                                   "\"messages\":[",
                                                   "<|endoftext|>"};
  for (size_t i = 0, changes = 1 + below(4); i < changes; ++i) {
    const size_t at = below(bytes.size() + 1);
    const size_t length = std::min(bytes.size() - at, below(below(8) == 0 ? 200 : 6));
    switch (below(6)) {
      case 0:
        bytes.erase(at, length);
        break;
      case 1:
        bytes.insert(at, bytes.substr(below(bytes.size() + 1), length));
        break;
      case 2:
        bytes.insert(at, kPieces[below(kPieces.size())]);
        break;
      case 3:
        bytes.resize(at);
        break;
      default:
        if (at < bytes.size()) bytes[at] = static_cast<char>(below(256));
    }
  }
  return bytes;
}

void CheckMessage(const absl::Status& status, const std::string& path) {
  EXPECT_THAT(std::string(status.message()), HasSubstr(path));
  for (const absl::string_view line : absl::StrSplit(status.message(), '\n')) {
    EXPECT_LE(line.size(), 2000u);
    EXPECT_TRUE(std::all_of(line.begin(), line.end(), [](char c) { return c >= ' ' && c <= '~'; }))
        << line;
  }
}

// All rows: labels are the ids that follow, and as many as is said.
void CheckRows(const Dataset& dataset) {
  OwnRow own(dataset.context());
  for (int64_t i = 0; i < dataset.size(); ++i) {
    ASSERT_OK(dataset.Read(i, own.row()));
    int64_t counted = 0;
    for (size_t t = 0; t < own.labels.size(); ++t) {
      ASSERT_TRUE(own.ids[t] >= 0 && own.ids[t] < dataset.vocabulary());
      if (own.labels[t] == kIgnored) continue;
      ASSERT_EQ(own.labels[t], own.ids[t + 1]);
      ASSERT_NE(own.segments[t], kPadding);
      ++counted;
    }
    ASSERT_EQ(counted, dataset.CountedLabels(i));
  }
}

std::unique_ptr<BpeTokenizer> Trained(const std::string& text) {
  auto training = BpeTraining::Create({.vocabulary = 280});
  EXPECT_OK(training);
  EXPECT_OK(training->Add(text));
  auto tokenizer = training->Train();
  EXPECT_OK(tokenizer);
  return *std::move(tokenizer);
}

const char kLines[] =
    "{\"prompt\": \"What is it?\", \"answer\": \"A na\\u00efve caf\xc3\xa9, \\ud83d\\ude00.\"}\n"
    "{\"messages\": [{\"role\": \"system\", \"content\": \"Be kind.\"}, {\"role\": \"user\", "
    "\"content\": "
    "\"Hi\"}, {\"role\": \"assistant\", \"content\": \"Hello\\n\"}], \"id\": [1, {\"a\": 2.5e3}]}\n"
    "{\"text\": \"A text.\"}\r\n\n{\"answer\": \"4\", \"prompt\": \"2 + 2\", \"system\": \"\"}\n";
const char kText[] =
    "One line\nNa\xc3\xafve \xe6\xbc\xa2\xe5\xad\x97 \xf0\x9f\x98\x80's line\n\n  \t12345 end\r\n";

TEST(MutationTest, LinesAreReadOrNamed) {
  std::mt19937 random(1);
  const std::string folder = Folder("lines");
  const auto tokenizer = Trained(kText);
  const auto chat = ChatTemplate::FromNameOrFile("plain");
  ASSERT_OK(chat);
  int refused = 0;
  for (int i = 0; i < mutations; ++i) {
    const std::string path = Write(folder + "/a.jsonl", Mutated(kLines, random));
    LineOptions options = {
        .context = 24, .pack = i % 2 == 0, .chat = *chat, .most_line_bytes = 300};
    const auto strict = LineDataset::Create(path, *tokenizer, options);
    options.on_error = OnError::kSkip;
    const auto left = LineDataset::Create(path, *tokenizer, options);
    if (strict.ok()) {
      CheckRows(**strict);
      ASSERT_OK(left);
      EXPECT_EQ((*left)->skipped().lines, 0);
    } else {
      ++refused;
      CheckMessage(strict.status(), path);
    }
    if (left.ok()) {
      CheckRows(**left);
      EXPECT_EQ((*left)->skipped().lines > 0, !strict.ok());
    } else {
      CheckMessage(left.status(), path);
    }
    if (HasFailure()) FAIL() << i;
  }
  EXPECT_GT(refused, mutations / 3);
  EXPECT_LT(refused, mutations);
}

TEST(MutationTest, TextsAreReadOrNamed) {
  std::mt19937 random(2);
  const std::string folder = Folder("texts");
  const auto tokenizer = Trained(kText);
  for (int i = 0; i < mutations / 2; ++i) {
    const std::string path = Write(folder + "/a", Mutated(kText, random));
    for (const OnError on_error : {OnError::kRefuse, OnError::kSkip}) {
      const auto texts =
          TextDataset::Create(path, *tokenizer, {.context = 7, .on_error = on_error});
      if (texts.ok()) {
        CheckRows(**texts);
      } else {
        CheckMessage(texts.status(), path);
      }
    }
    if (HasFailure()) FAIL() << i;
  }
}

TEST(MutationTest, TokenizersAreReadOrNamed) {
  std::mt19937 random(3);
  const std::string folder = Folder("tokenizers");
  const std::string whole = TokenizerJson(*Trained(kText));
  int read = 0;
  for (int i = 0; i < mutations / 4; ++i) {
    const std::string path = Write(folder + "/tokenizer.json", Mutated(whole, random));
    const auto tokenizer = ReadTokenizerJson(path);
    if (!tokenizer.ok()) {
      CheckMessage(tokenizer.status(), path);
    } else {
      ++read;
      std::vector<int32_t> ids;
      // A token may be gone.
      const absl::Status encoded = (*tokenizer)->Encode(kText, SpecialText::kIsToken, ids);
      if (encoded.ok()) {
        std::string text;
        EXPECT_OK((*tokenizer)->Decode(ids, text));
      }
    }
    if (HasFailure()) FAIL() << i;
  }
  EXPECT_GT(read, 0);
}

}  // namespace
}  // namespace brigade::data

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  if (argc > 1) brigade::data::mutations = std::atoi(argv[1]);
  return RUN_ALL_TESTS();
}
