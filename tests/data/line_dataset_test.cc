#include "brigade/data/line_dataset.h"

#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "brigade/data/line_reader.h"
#include "brigade/data/open.h"
#include "brigade/data/tokenizer_text.h"
#include "brigade/data/tokenizers/bpe_tokenizer.h"
#include "brigade/data/tokenizers/byte_tokenizer.h"
#include "brigade/tests/data/written.h"
#include "brigade/tests/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::data {
namespace {

using ::brigade::testing::StatusIs;
using ::testing::AllOf;
using ::testing::ElementsAre;
using testing::Folder;
using ::testing::HasSubstr;
using testing::OwnRow;
using testing::Write;

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
constexpr int32_t kEnd = 256, kTurn = 257;

// Bytes, the end of a text, and a token that begins a turn.
std::unique_ptr<BpeTokenizer> Bytes() {
  BpeTokens tokens;
  for (int i = 0; i < 256; ++i) tokens.tokens[i] = std::string(1, static_cast<char>(i));
  auto tokenizer =
      BpeTokenizer::Create(tokens, {.added = {{kEnd, "<|endoftext|>"}, {kTurn, "<turn>"}}});
  EXPECT_OK(tokenizer);
  return *std::move(tokenizer);
}

ChatTemplate Preset(const std::string& name) {
  auto preset = ChatTemplate::FromNameOrFile(name);
  EXPECT_OK(preset);
  return *std::move(preset);
}

// A row's ids as text, with { and } around what counts and a bar between segments; the end is $, a
// turn ^.
std::string Shown(const Dataset& dataset, int64_t sample) {
  OwnRow own(dataset.context());
  EXPECT_OK(dataset.Read(sample, own.row()));
  std::string shown;
  bool counts = false;
  int64_t counted = 0;
  for (size_t i = 0; i < own.ids.size(); ++i) {
    const bool is_label = i > 0 && own.labels[i - 1] != kIgnored;
    // Behind the last position there is a token only if it is a label.
    if (!is_label && (i == own.labels.size() || own.segments[i] == kPadding)) break;
    if (is_label) {
      EXPECT_EQ(own.labels[i - 1], own.ids[i]);
    }
    if (is_label != counts) shown += is_label ? "{" : "}";
    counts = is_label;
    counted += is_label ? 1 : 0;
    if (i > 0 && i < own.labels.size() && own.segments[i] != own.segments[i - 1]) {
      shown += "|";
      EXPECT_EQ(own.positions[i], 0);
    }
    const int32_t id = own.ids[i];
    shown += id == kEnd ? '$' : id == kTurn ? '^' : static_cast<char>(id);
  }
  EXPECT_EQ(counted, dataset.CountedLabels(sample));
  return shown + (counts ? "}" : "");
}

TEST(LineDatasetTest, CountsAnswersAlone) {
  const std::string path =
      Write(Folder("answers") + "/a.jsonl",
            R"({"prompt": "Say hi", "answer": "hi", "other": [{"a": [1]}]})"
            "\n\n  \r\n"
            R"({"answer": "b<turn>", "system": "S", "prompt": "<turn>"})"
            "\r\n"
            R"({"messages": [{"role": "user", "content": "x", "id": {"role": 1}},)"
            R"( {"content": "y", "role": "assistant"},)"
            R"( {"role": "user", "content": "z"},)"
            R"( {"role": "assistant", "content": "w"}]})"
            "\n"
            R"({"text": "plain"})");
  const auto tokenizer = Bytes();
  LineOptions options = {.context = 64, .chat = Preset("plain")};
  ASSERT_OK_AND_ASSIGN(const auto lines, LineDataset::Create(path, *tokenizer, options));
  ASSERT_EQ(lines->size(), 4);
  EXPECT_EQ(Shown(*lines, 0), "Say hi\n{hi$}");
  // What the data says is text.
  EXPECT_EQ(Shown(*lines, 1), "S\n<turn>\n{b<turn>$}");
  EXPECT_EQ(Shown(*lines, 2), "x\n{y$}z\n{w$}");
  EXPECT_EQ(Shown(*lines, 3), "p{lain$}");

  options.chat = {
      .begin = "<", .user = {"<turn>", ";"}, .assistant = {"<turn>a:", "<turn>"}, .trims = true};
  ASSERT_OK_AND_ASSIGN(const auto other, LineDataset::Create(path, *tokenizer, options));
  EXPECT_EQ(Shown(*other, 0), "<^Say hi;^a:{hi^}");
  EXPECT_EQ(Shown(*other, 2), "<^x;^a:{y^}^z;^a:{w^}");
}

TEST(LineDatasetTest, CutsAndTakes) {
  const std::string path = Write(Folder("cut") + "/a.jsonl", R"({"prompt": "ab", "answer": "cdef"}
{"prompt": "0123456789", "answer": "x"}
{"prompt": "a", "answer": "b"}
{"prompt": "c", "answer": "d"}
)");
  const auto tokenizer = Bytes();
  LineOptions options = {.context = 16, .cutoff_len = 5, .chat = Preset("plain")};
  EXPECT_THAT(LineDataset::Create(path, *tokenizer, options),
              StatusIs(kInvalid, HasSubstr(path + ":2: of the line's 13 tokens none that counts is "
                                                  "among the first 5")));
  options.on_error = OnError::kSkip;
  options.max_samples = 2;
  ASSERT_OK_AND_ASSIGN(const auto lines, LineDataset::Create(path, *tokenizer, options));
  ASSERT_EQ(lines->size(), 2);
  EXPECT_EQ(lines->cut(), 1);
  EXPECT_EQ(lines->skipped().lines, 1);
  EXPECT_EQ(Shown(*lines, 0), "ab\n{cd}");
  EXPECT_EQ(Shown(*lines, 1), "a\n{b$}");
  for (const int64_t cutoff : {-1, 1, 18}) {
    options.cutoff_len = cutoff;
    EXPECT_THAT(LineDataset::Create(path, *tokenizer, options),
                StatusIs(kInvalid, HasSubstr(absl::StrCat("cutoff_len is ", cutoff))));
  }
}

TEST(LineDatasetTest, PacksLinesAsSegments) {
  std::mt19937 random(3);
  std::string text;
  for (int i = 0; i < 300; ++i) {
    absl::StrAppend(&text, "{\"prompt\": \"", std::string(random() % 9, 'p'), "\", \"answer\": \"",
                    std::string(random() % 9, static_cast<char>('a' + i % 26)), "\"}\n");
  }
  const std::string path = Write(Folder("pack") + "/a.jsonl", text);
  const auto tokenizer = Bytes();
  LineOptions options = {.context = 19, .chat = Preset("plain")};
  ASSERT_OK_AND_ASSIGN(const auto apart, LineDataset::Create(path, *tokenizer, options));
  options.pack = true;
  ASSERT_OK_AND_ASSIGN(const auto packed, LineDataset::Create(path, *tokenizer, options));
  EXPECT_EQ(apart->size(), 300);
  EXPECT_EQ(packed->lines(), 300);
  EXPECT_LT(packed->size(), 200);
  // The same lines, each once, with the same labels; nothing of one in another's segment.
  std::multiset<std::string> wanted, found;
  for (int64_t i = 0; i < apart->size(); ++i) wanted.insert(Shown(*apart, i));
  int64_t labels = 0;
  for (int64_t i = 0; i < packed->size(); ++i) {
    labels += packed->CountedLabels(i);
    std::string row = Shown(*packed, i);
    for (size_t bar; (bar = row.find('|')) != std::string::npos; row = row.substr(bar + 1)) {
      found.insert(row.substr(0, bar));
    }
    found.insert(row);
  }
  EXPECT_EQ(found, wanted);
}

TEST(LineDatasetTest, NamesFileLineAndColumn) {
  const std::string folder = Folder("bad");
  const ByteTokenizer bytes;
  const auto expect = [&](const std::string& line, const std::string& where,
                          const std::string& what) {
    const std::string path =
        Write(folder + "/a.jsonl", "{\"prompt\": \"a\", \"answer\": \"b\"}\n" + line);
    const LineOptions options = {.context = 32, .chat = Preset("plain"), .most_line_bytes = 100};
    EXPECT_THAT(LineDataset::Create(path, bytes, options),
                StatusIs(kInvalid, AllOf(HasSubstr(path + ":2" + where + ": "), HasSubstr(what))))
        << line;
    // Left out, the rest is as without it.
    LineOptions skip = options;
    skip.on_error = OnError::kSkip;
    const auto left = LineDataset::Create(path, bytes, skip);
    ASSERT_OK(left);
    EXPECT_EQ((*left)->size(), 1);
    EXPECT_EQ((*left)->skipped().lines, 1);
  };
  expect("{\"prompt\": \"a\"", ":15", "not valid JSON: syntax error");
  expect("{\"prompt\": \"a\", \"answer\": \"b", ":29", "missing closing quote");
  expect("{\"prompt\": \"\xff\", \"answer\": \"b\"}", ":13", "invalid string");
  expect(std::string("{\"prompt\": \"\0\", \"answer\": \"b\"}", 30), ":13", "NUL");
  expect("{\"prompt\": 3, \"answer\": \"b\"}", ":12", "prompt is 3, not a string");
  expect("{\"prompt\": {\"a\": 1}, \"answer\": \"b\"}", ":12", "prompt is an object, not a string");
  expect("{\"prompt\": \"a\", \"prompt\": \"b\", \"answer\": \"b\"}", ":24",
         "prompt is given twice");
  expect("[1]", ":1", "the line is an array, not an object");
  expect("\"a\"", ":3", "the line is a string, not an object");
  expect("{} {}", ":4", "not valid JSON");
  expect("{\"a\": 1e999}", ":11", "number overflow");
  expect("{}", "", "the line has nothing to read; it needs messages, or text, or prompt and");
  expect("{\"prompt\": \"a\"}", "", "the line has no answer");
  expect("{\"text\": \"a\", \"prompt\": \"a\", \"answer\": \"b\"}", "",
         "the line has prompt and answer and text");
  expect("{\"messages\": \"a\"}", ":16", "messages is a string, not an array");
  expect("{\"messages\": [1]}", ":15", "messages[0] is 1, not an object");
  expect("{\"messages\": [\"a\"]}", ":17", "messages[0] is a string, not an object");
  expect("{\"messages\": [{\"role\": \"user\"}]}", ":30", "messages[0] has no content");
  expect("{\"messages\": [{\"role\": \"tool\", \"content\": \"\"}]}", ":45",
         "the role \"tool\" is none of system, user, assistant");
  expect("{\"messages\": [{\"role\": \"user\", \"content\": []}]}", ":43",
         "messages[0].content is an array, not a string");
  expect("{\"messages\": [{\"role\": \"user\", \"content\": \"\"}]}", "",
         "no turn of the assistant");
  expect("{\"text\": \"" + std::string(100, 'x') + "\"}", "", "more than 100 bytes");
  expect(std::string(50, '['), ":1", "the line is an array");
}

TEST(LineDatasetTest, DeepValuesThatAreNotReadAreNoTrouble) {
  const std::string deep = std::string(1 << 20, '[') + std::string(1 << 20, ']');
  const std::string path = Write(Folder("deep") + "/a.jsonl",
                                 "{\"x\": " + deep + ", \"prompt\": \"a\", \"answer\": \"b\"}");
  EXPECT_OK(LineDataset::Create(path, ByteTokenizer(), {.context = 32, .chat = Preset("plain")}));
}

TEST(LineReaderTest, ReadsLinesOverBlocks) {
  // Lines of lengths around a block, with ends of all kinds.
  constexpr auto kBlock = static_cast<size_t>(LineReader::kBlockBytes);
  std::vector<std::string> wanted = {"",
                                     "a",
                                     std::string(kBlock - 3, 'b'),
                                     std::string(kBlock, 'c'),
                                     "d",
                                     std::string(2 * kBlock + 7, 'e'),
                                     "",
                                     "f"};
  for (const std::string end : {"\n", "\r\n"}) {
    for (const bool has_last_end : {true, false}) {
      std::string text;
      for (const std::string& line : wanted) text += line + end;
      if (!has_last_end) text.resize(text.size() - end.size());
      const std::string path = Write(Folder("blocks") + "/a", text);
      auto reader = LineReader::Open(path, 3 * LineReader::kBlockBytes);
      ASSERT_OK(reader);
      Line line;
      for (size_t i = 0; i < wanted.size(); ++i) {
        ASSERT_OK_AND_ASSIGN(const bool is_line, reader->Next(line));
        ASSERT_TRUE(is_line);
        EXPECT_EQ(line.number, static_cast<int64_t>(i) + 1);
        EXPECT_FALSE(line.is_too_long);
        EXPECT_TRUE(line.text == wanted[i]) << i;
      }
      ASSERT_OK_AND_ASSIGN(const bool is_line, reader->Next(line));
      EXPECT_FALSE(is_line);
    }
  }
  // What is too long is passed over, in its block and over several.
  const std::string path = Write(Folder("long") + "/a", std::string(3 * kBlock, 'x') + "\nab\n" +
                                                            std::string(20, 'y') + "\ncd");
  auto reader = LineReader::Open(path, 10);
  ASSERT_OK(reader);
  Line line;
  for (const auto& [text, is_too_long] : std::vector<std::pair<std::string, bool>>{
           {"", true}, {"ab", false}, {"", true}, {"cd", false}}) {
    ASSERT_OK_AND_ASSIGN(const bool is_line, reader->Next(line));
    EXPECT_TRUE(is_line);
    EXPECT_EQ(line.is_too_long, is_too_long);
    EXPECT_EQ(line.text, text);
  }
}

TEST(ChatTemplateTest, HasPresets) {
  const std::vector<Turn> turns = {
      {ChatRole::kSystem, "S"}, {ChatRole::kUser, " U "}, {ChatRole::kAssistant, "A"}};
  const auto whole = [&](const std::string& name) {
    std::string text;
    for (const ChatPart& part : Preset(name).Render(turns)) {
      absl::StrAppend(&text, part.counts ? "{" : "", part.is_end ? "$" : part.text,
                      part.counts ? "}" : "");
    }
    return text;
  };
  EXPECT_EQ(whole("plain"), "S\n U \n{A}{$}");
  EXPECT_EQ(whole("alpaca"), "S\n\n### Instruction:\n U \n\n### Response:\n{A}{$}");
  EXPECT_EQ(whole("chatml"),
            "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\n U <|im_end|>\n"
            "<|im_start|>assistant\n{A}{<|im_end|>\n}");
  EXPECT_EQ(whole("llama3"),
            "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\nS<|eot_id|>"
            "<|start_header_id|>user<|end_header_id|>\n\nU<|eot_id|>"
            "<|start_header_id|>assistant<|end_header_id|>\n\n{A}{<|eot_id|>}");
}

TEST(ChatTemplateTest, ReadsFiles) {
  const std::string folder = Folder("template");
  const std::string path =
      Write(folder + "/t.json",
            R"({"begin": "B", "user": ["Q", "!"], "assistant": ["R", ""], "trims": true})");
  ASSERT_OK_AND_ASSIGN(const ChatTemplate chat, ChatTemplate::FromNameOrFile(path));
  EXPECT_THAT(chat.Render({{ChatRole::kUser, " x "}, {ChatRole::kAssistant, "y"}}),
              ElementsAre(ChatPart{"B", true}, ChatPart{"Q", true}, ChatPart{"x"},
                          ChatPart{"!", true}, ChatPart{"R", true}, ChatPart{"y", false, true}));
  const auto expect = [&](const std::string& text, const std::string& what) {
    EXPECT_THAT(ChatTemplate::FromNameOrFile(Write(path, text)),
                StatusIs(kInvalid, AllOf(HasSubstr(path), HasSubstr(what))));
  };
  expect("{", "line 1, column 2");
  expect("{}", "there is no key assistant");
  expect("[]", "not an object");
  expect(R"({"assistant": ["a"]})", "not the two strings around a turn");
  expect(R"({"assistant": ["a", "b"], "trims": 1})", "trims is 1, not true or false");
  expect(R"({"assistant": ["a", "b"], "begins": ""})", "\"begins\" is none of begin, system");
  EXPECT_THAT(ChatTemplate::FromNameOrFile("chat-ml"),
              StatusIs(absl::StatusCode::kNotFound,
                       HasSubstr("a chat template is alpaca, chatml, llama3, plain or a file")));
}

TEST(OpenTest, TellsTextsFromLines) {
  const std::string folder = Folder("open");
  Write(folder + "/lines/a.jsonl", R"({"prompt": "a", "answer": "b"})");
  Write(folder + "/texts/a.txt", "some text");
  const auto open = [&](const DataOptions& options) { return OpenData(options, ByteTokenizer()); };
  ASSERT_OK_AND_ASSIGN(const OpenedData lines, open({.path = folder + "/lines", .context = 4}));
  EXPECT_THAT(lines.description, HasSubstr("1 lines, 3 tokens, 0 lines cut, 1 samples of 4"));
  ASSERT_OK_AND_ASSIGN(const OpenedData texts, open({.path = folder + "/texts", .context = 4}));
  EXPECT_THAT(texts.description, HasSubstr("1 texts, 9 tokens, 2 samples of 4 positions"));
  EXPECT_THAT(open({.path = folder, .context = 4}),
              StatusIs(kInvalid, HasSubstr("of the 2 files in " + folder + " 1 end with .jsonl")));
  EXPECT_THAT(open({.path = folder + "/texts", .context = 4, .pack = true}),
              StatusIs(kInvalid, HasSubstr("pack are of JSON lines")));
  EXPECT_THAT(open({.path = folder + "/lines", .context = 4, .separate_documents = true}),
              StatusIs(kInvalid, HasSubstr("separate_documents is of texts")));
  EXPECT_THAT(OpenTokenizer("words"),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("\"byte\" or a tokenizer.json")));
  EXPECT_THAT(ParseOnError("ignore"), StatusIs(kInvalid, HasSubstr("neither refuse nor skip")));
}

TEST(ForTextsTest, GivesAllThatIsSaid) {
  const std::string folder = Folder("for_texts");
  Write(folder + "/a.jsonl", R"({"system": "s", "prompt": "p", "answer": "q"})"
                             "\n{bad\n{\"text\": \"t\"}\n");
  Write(folder + "/b.txt", "text\n\xff\nmore\n");
  BadData bad(OnError::kSkip);
  std::vector<std::string> all;
  ASSERT_OK(ForTexts(folder, {}, bad, [&](absl::string_view text) {
    all.emplace_back(text);
    return absl::OkStatus();
  }));
  EXPECT_THAT(all, ElementsAre("s", "p", "q", "t", "text\nmore\n"));
  EXPECT_EQ(bad.skipped().lines, 2);
}

}  // namespace
}  // namespace brigade::data
