#include "brigade/data/text_dataset.h"

#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
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
constexpr int32_t kEnd = 256;

// Bytes, and a token that ends a document.
std::unique_ptr<BpeTokenizer> Bytes() {
  BpeTokens tokens;
  for (int i = 0; i < 256; ++i) tokens.tokens[i] = std::string(1, static_cast<char>(i));
  auto tokenizer = BpeTokenizer::Create(tokens, {.added = {{kEnd, "<|endoftext|>"}}});
  EXPECT_OK(tokenizer);
  return *std::move(tokenizer);
}

TEST(TextDatasetTest, CutsATextIntoWindowsOfWhichEachTokenIsALabelOnce) {
  const std::string path = Write(Folder("windows") + "/a.txt", "abcdefgh");
  const ByteTokenizer bytes;
  ASSERT_OK_AND_ASSIGN(const auto texts, TextDataset::Create(path, bytes, {.context = 3}));
  ASSERT_EQ(texts->size(), 3);
  EXPECT_EQ(texts->tokens(), 8);
  OwnRow own(3);
  ASSERT_OK(texts->Read(1, own.row()));
  EXPECT_THAT(own.ids, ElementsAre('d', 'e', 'f', 'g'));
  EXPECT_THAT(own.labels, ElementsAre('e', 'f', 'g'));
  EXPECT_THAT(own.positions, ElementsAre(0, 1, 2));
  EXPECT_THAT(own.segments, ElementsAre(0, 0, 0));
  EXPECT_EQ(texts->CountedLabels(1), 3);
  // The last one is short.
  ASSERT_OK(texts->Read(2, own.row()));
  EXPECT_THAT(own.ids, ElementsAre('g', 'h', 0, 0));
  EXPECT_THAT(own.labels, ElementsAre('h', kIgnored, kIgnored));
  EXPECT_THAT(own.segments, ElementsAre(0, 0, kPadding));
  EXPECT_EQ(texts->CountedLabels(2), 1);
}

TEST(TextDatasetTest, LengthsAroundAWindow) {
  const ByteTokenizer bytes;
  const std::string folder = Folder("lengths");
  for (int64_t length = 2; length < 14; ++length) {
    const std::string path = Write(folder + "/a", std::string(static_cast<size_t>(length), 'x'));
    ASSERT_OK_AND_ASSIGN(const auto texts, TextDataset::Create(path, bytes, {.context = 4}));
    EXPECT_EQ(texts->size(), (length - 1 + 3) / 4);
    OwnRow own(4);
    int64_t labels = 0;
    for (int64_t i = 0; i < texts->size(); ++i) {
      ASSERT_OK(texts->Read(i, own.row()));
      const auto counted = std::count(own.labels.begin(), own.labels.end(), 'x');
      EXPECT_EQ(counted, texts->CountedLabels(i));
      labels += counted;
    }
    EXPECT_EQ(labels, length - 1);
  }
}

// Letters are tokens, and nothing else is.
class Letters final : public Tokenizer {
 public:
  int64_t vocabulary() const override { return 128; }
  absl::Status Encode(absl::string_view text, SpecialText,
                      std::vector<int32_t>& ids) const override {
    for (const char c : text) {
      if (c >= 'a' && c <= 'z') ids.push_back(c);
    }
    return absl::OkStatus();
  }
  absl::Status Decode(absl::Span<const int32_t>, std::string&) const override {
    return absl::UnimplementedError("letters");
  }
  bool is_bytewise() const override { return true; }
  std::optional<int32_t> IdOf(absl::string_view) const override { return std::nullopt; }
  std::optional<int32_t> end_of_text() const override { return std::nullopt; }
};

TEST(TextDatasetTest, ATextWithoutTokensIsNoDocument) {
  const std::string folder = Folder("without_tokens");
  for (const auto& [name, text] : {std::pair("a", "?"), std::pair("b", "abc"), std::pair("c", "!"),
                                   std::pair("d", "1 2"), std::pair("e", "de")}) {
    Write(absl::StrCat(folder, "/", name), text);
  }
  ASSERT_OK_AND_ASSIGN(
      const auto texts,
      TextDataset::Create(folder, Letters(), {.context = 4, .separate_documents = true}));
  EXPECT_EQ(texts->documents(), 2);
  ASSERT_EQ(texts->size(), 1);
  OwnRow own(4);
  ASSERT_OK(texts->Read(0, own.row()));
  EXPECT_THAT(own.ids, ElementsAre('a', 'b', 'c', 'd', 'e'));
  EXPECT_THAT(own.labels, ElementsAre('b', 'c', kIgnored, 'e'));
  EXPECT_THAT(own.segments, ElementsAre(0, 0, 0, 1));
  EXPECT_EQ(texts->CountedLabels(0), 3);
}

TEST(TextDatasetTest, DocumentsMayBeApart) {
  const std::string folder = Folder("documents");
  Write(folder + "/b/2.txt", "xyz");
  Write(folder + "/a.txt", "ab");
  Write(folder + "/.hidden", "no");
  std::filesystem::create_directory_symlink(folder, folder + "/circle");
  const auto tokenizer = Bytes();
  ASSERT_OK_AND_ASSIGN(
      const auto apart,
      TextDataset::Create(folder, *tokenizer, {.context = 4, .separate_documents = true}));
  EXPECT_EQ(apart->documents(), 2);
  // a b end x y z end: labels in windows of 4 and 2.
  ASSERT_EQ(apart->size(), 2);
  OwnRow own(4);
  ASSERT_OK(apart->Read(0, own.row()));
  EXPECT_THAT(own.ids, ElementsAre('a', 'b', kEnd, 'x', 'y'));
  EXPECT_THAT(own.labels, ElementsAre('b', kEnd, kIgnored, 'y'));
  EXPECT_THAT(own.positions, ElementsAre(0, 1, 2, 0));
  EXPECT_THAT(own.segments, ElementsAre(0, 0, 0, 1));
  EXPECT_EQ(apart->CountedLabels(0), 3);
  ASSERT_OK(apart->Read(1, own.row()));
  EXPECT_THAT(own.labels, ElementsAre('z', kEnd, kIgnored, kIgnored));
  EXPECT_EQ(apart->CountedLabels(1), 2);

  ASSERT_OK_AND_ASSIGN(const auto together,
                       TextDataset::Create(folder, *tokenizer, {.context = 4}));
  ASSERT_OK(together->Read(0, own.row()));
  EXPECT_THAT(own.labels, ElementsAre('b', kEnd, 'x', 'y'));
  EXPECT_THAT(own.segments, ElementsAre(0, 0, 0, 0));
}

TEST(TextDatasetTest, ReadsTextsOfMoreThanAPiece) {
  std::string text((1 << 20) * 2 + 5, ' ');
  for (size_t i = 0; i < text.size(); ++i) text[i] = static_cast<char>(i % 251);
  const std::string path = Write(Folder("pieces") + "/a", text);
  ASSERT_OK_AND_ASSIGN(const auto texts,
                       TextDataset::Create(path, ByteTokenizer(), {.context = 1 << 20}));
  EXPECT_EQ(texts->tokens(), std::ssize(text));
  EXPECT_EQ(texts->size(), 3);
  OwnRow own(1 << 20);
  for (size_t i = 0; i < 2; ++i) {
    ASSERT_OK(texts->Read(static_cast<int64_t>(i), own.row()));
    for (const size_t t : {size_t{0}, size_t{1}, size_t{(1 << 20) - 1}, size_t{1 << 20}}) {
      EXPECT_EQ(own.ids[t], static_cast<int32_t>(((i << 20) + t) % 251));
    }
  }
}

TEST(TextDatasetTest, TakesTheFirstWindows) {
  const std::string path = Write(Folder("max") + "/a", "abcdefghijkl");
  const ByteTokenizer bytes;
  ASSERT_OK_AND_ASSIGN(const auto texts,
                       TextDataset::Create(path, bytes, {.context = 2, .max_samples = 3}));
  EXPECT_EQ(texts->size(), 3);
}

TEST(TextDatasetTest, NamesFileLineAndColumnOfWhatIsNotUtf8) {
  const std::string folder = Folder("utf8");
  const std::string path =
      Write(folder + "/a", "one\ntwo \xff\nthree\nfo\xc3\x28ur\n\xe2\x82\nfive\xed\xa0\x80");
  const auto tokenizer = Bytes();
  EXPECT_THAT(TextDataset::Create(path, *tokenizer, {.context = 4}),
              StatusIs(kInvalid, HasSubstr(path + ":2:5: byte 255 is not valid UTF-8")));
  ASSERT_OK_AND_ASSIGN(
      const auto left,
      TextDataset::Create(path, *tokenizer, {.context = 9, .on_error = OnError::kSkip}));
  EXPECT_EQ(left->skipped().lines, 4);
  EXPECT_THAT(left->skipped().messages,
              ElementsAre(HasSubstr(":2:5: byte 255"), HasSubstr(":4:3: byte 195"),
                          HasSubstr(":5:1: byte 226"), HasSubstr(":6:5: byte 237")));
  EXPECT_THAT(left->skipped().Text(), HasSubstr("4 lines were left out\n  "));
  OwnRow own(9);
  ASSERT_OK(left->Read(0, own.row()));
  EXPECT_EQ(std::string(own.ids.begin(), own.ids.end()), "one\nthree\n");
  // Bytes are bytes.
  EXPECT_OK(TextDataset::Create(path, ByteTokenizer(), {.context = 4}));
}

TEST(TextDatasetTest, NamesFilesThatCannotBeRead) {
  const std::string folder = Folder("files");
  Write(folder + "/a", "some text\n");
  Write(folder + "/b", "");
  std::filesystem::create_symlink("nothing", folder + "/c");
  const ByteTokenizer bytes;
  EXPECT_THAT(TextDataset::Create(folder, bytes, {.context = 4}),
              StatusIs(kInvalid, HasSubstr(folder + "/b is empty")));
  ASSERT_OK_AND_ASSIGN(
      const auto left,
      TextDataset::Create(folder, bytes, {.context = 4, .on_error = OnError::kSkip}));
  EXPECT_EQ(left->skipped().files, 2);
  EXPECT_THAT(left->skipped().Text(), AllOf(HasSubstr("2 files were left out"), HasSubstr("/c")));
  if (geteuid() != 0) {
    std::filesystem::create_directory(folder + "/d");
    std::filesystem::permissions(folder + "/d", std::filesystem::perms::none);
    EXPECT_THAT(TextDataset::Create(folder, bytes, {.context = 4}),
                StatusIs(absl::StatusCode::kPermissionDenied));
  }
  EXPECT_THAT(TextDataset::Create(folder + "/none", bytes, {.context = 4}),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr(folder + "/none")));
  EXPECT_THAT(TextDataset::Create("/dev/null", bytes, {.context = 4}),
              StatusIs(kInvalid, HasSubstr("/dev/null is neither a file nor a folder")));
  EXPECT_THAT(TextDataset::Create(folder, bytes, {.context = 4, .ending = ".txt"}),
              StatusIs(kInvalid, HasSubstr("has no files that end with .txt")));
  EXPECT_THAT(TextDataset::Create(Write(folder + "/one", "x"), bytes, {.context = 4}),
              StatusIs(kInvalid, HasSubstr("makes one token, and a sample needs two")));
  EXPECT_THAT(TextDataset::Create(folder + "/b", bytes, {.context = 4, .on_error = OnError::kSkip}),
              StatusIs(kInvalid, AllOf(HasSubstr("makes no token"), HasSubstr("b is empty"))));
  EXPECT_THAT(TextDataset::Create(folder + "/a", bytes, {.context = 0}),
              StatusIs(kInvalid, HasSubstr("a context of 0")));
}

TEST(TextDatasetTest, RefusesRowsAndSamplesThatAreNone) {
  const std::string path = Write(Folder("rows") + "/a", "abcdef");
  const ByteTokenizer bytes;
  ASSERT_OK_AND_ASSIGN(const auto texts, TextDataset::Create(path, bytes, {.context = 4}));
  OwnRow small(3), right(4);
  EXPECT_THAT(texts->Read(0, small.row()),
              StatusIs(kInvalid, HasSubstr("a row of 4 ids, 3 labels")));
  EXPECT_THAT(texts->Read(2, right.row()),
              StatusIs(absl::StatusCode::kOutOfRange, HasSubstr("sample 2 of a data set of 2")));
  EXPECT_THAT(texts->Read(-1, right.row()), StatusIs(absl::StatusCode::kOutOfRange));
}

TEST(TokenStoreTest, KeepsIdsOfAllWidths) {
  for (const int64_t vocabulary : {2, 256, 257, 65536, 65537, INT32_MAX}) {
    TokenStore store(vocabulary);
    const auto last = static_cast<int32_t>(vocabulary - 1);
    const std::vector<int32_t> ids = {0, last, 1, last / 2, last};
    store.Append(ids);
    store.Append({1});
    ASSERT_EQ(store.size(), 6);
    std::vector<int32_t> read(4);
    store.Read(1, absl::MakeSpan(read));
    EXPECT_THAT(read, ElementsAre(last, 1, last / 2, last));
  }
}

}  // namespace
}  // namespace brigade::data
