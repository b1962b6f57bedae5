// Byte pairs: merging, training, added tokens; what the reference says of them is in
// reference_test.

#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "brigade/data/tokenizers/bpe_tokenizer.h"
#include "brigade/data/tokenizers/bpe_training.h"
#include "brigade/data/tokenizers/byte_symbols.h"
#include "brigade/data/tokenizers/byte_tokenizer.h"
#include "brigade/data/tokenizers/split_pattern.h"
#include "brigade/data/tokenizers/utf8.h"
#include "brigade/tests/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::data {
namespace {

using ::brigade::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

TEST(Utf8Test, KnowsWhatIsValid) {
  for (const std::string good :
       {"", "a", "é", "漢", "😀", "\xf4\x8f\xbf\xbf", "\xed\x9f\xbf", "\xee\x80\x80"}) {
    EXPECT_EQ(ValidUtf8Prefix(good), good.size());
    EXPECT_EQ(ValidUtf8Prefix("12345678" + good + "x"), good.size() + 9);
  }
  // Overlong, surrogates, beyond the last code, cut off, alone.
  for (const std::string bad :
       {"\xc0\x80", "\xc1\xbf", "\xe0\x9f\xbf", "\xf0\x8f\xbf\xbf", "\xed\xa0\x80",
        "\xf4\x90\x80\x80", "\xf5\x80\x80\x80", "\xe6\xbc", "\xf0\x9f\x98", "\x80", "\xff"}) {
    EXPECT_EQ(ValidUtf8Prefix("é" + bad), 2u);
    EXPECT_EQ(ValidUtf8Prefix("12345678" + bad + "12345678"), 8u);
  }
  for (uint32_t code = 0; code < 0x110000; code += code < 0x900 ? 1 : 97) {
    if (code >= 0xd800 && code < 0xe000) continue;
    std::string text = "x";
    AppendUtf8(code, text);
    ASSERT_EQ(ValidUtf8Prefix(text), text.size()) << code;
    ASSERT_EQ(CharacterAt(text, 1).code, code);
    ASSERT_EQ(CharacterAt(text, 1).bytes, text.size() - 1);
    ASSERT_EQ(CharacterBefore(text, text.size()), 1u);
  }
}

TEST(ByteSymbolsTest, AreGpt2s) {
  EXPECT_EQ(SymbolsOf(" a\n\x7f\xa0\xad\xff"), "ĠaĊġłŃÿ");
  for (int byte = 0; byte < 256; ++byte) {
    const std::string bytes(1, static_cast<char>(byte));
    EXPECT_EQ(BytesOf(SymbolsOf(bytes)), bytes);
  }
  EXPECT_EQ(BytesOf(" "), std::nullopt);
  EXPECT_EQ(BytesOf("\u0144"), std::nullopt);
  EXPECT_EQ(BytesOf("漢"), std::nullopt);
}

std::vector<std::string> Pieces(SplitPattern pattern, const std::string& text) {
  std::vector<std::string> pieces;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = PieceEnd(pattern, text, begin);
    pieces.push_back(text.substr(begin, end - begin));
    begin = end;
  }
  return pieces;
}

TEST(SplitPatternTest, CutsAsTheExpressionsDo) {
  const std::string text = "Don't  SHOUT'LL 12345 x²\n\n !?\t\r\ny  ";
  EXPECT_THAT(Pieces(SplitPattern::kGpt2, text),
              ElementsAre("Don", "'t", " ", " SHOUT", "'", "LL", " 12345", " x", "²", "\n\n", " !?",
                          "\t\r", "\n", "y", "  "));
  EXPECT_THAT(Pieces(SplitPattern::kLlama3, text),
              ElementsAre("Don", "'t", " ", " SHOUT", "'LL", " ", "123", "45", " x", "²", "\n\n",
                          " !?", "\t\r\n", "y", "  "));
  EXPECT_THAT(Pieces(SplitPattern::kQwen2, "a123 'ſ"), ElementsAre("a", "1", "2", "3", " '", "ſ"));
  EXPECT_THAT(Pieces(SplitPattern::kNone, text), ElementsAre(text));
  for (const SplitPattern pattern :
       {SplitPattern::kGpt2, SplitPattern::kLlama3, SplitPattern::kQwen2}) {
    EXPECT_EQ(PatternOf(RegexOf(pattern)), pattern);
  }
  EXPECT_EQ(PatternOf("\\w+"), std::nullopt);
}

// Bytes and what merges make of them, in the order of merges, from id 256 on.
BpeTokens TokensOf(const std::vector<std::pair<int32_t, int32_t>>& merges) {
  BpeTokens tokens;
  for (int i = 0; i < 256; ++i) tokens.tokens[i] = std::string(1, static_cast<char>(i));
  for (const auto& [left, right] : merges) {
    const auto next = static_cast<int32_t>(tokens.tokens.size());
    tokens.tokens[next] = tokens.tokens.at(left) + tokens.tokens.at(right);
  }
  tokens.merges = merges;
  return tokens;
}

// By its definition: all pairs looked at, again and again.
std::vector<int32_t> Slowly(const BpeTokens& tokens, const std::string& piece) {
  std::vector<int32_t> ids;
  for (const char byte : piece) ids.push_back(static_cast<uint8_t>(byte));
  while (true) {
    size_t rank = tokens.merges.size(), place = 0;
    for (size_t i = 0; i + 1 < ids.size(); ++i) {
      for (size_t r = 0; r < rank; ++r) {
        if (tokens.merges[r] != std::pair(ids[i], ids[i + 1])) continue;
        rank = r;
        place = i;
      }
    }
    if (rank == tokens.merges.size()) return ids;
    ids[place] = static_cast<int32_t>(256 + rank);
    ids.erase(ids.begin() + static_cast<ptrdiff_t>(place) + 1);
  }
}

TEST(BpeModelTest, MergesTheFirstPairFirst) {
  std::mt19937 random(5);
  for (int round = 0; round < 40; ++round) {
    std::vector<std::pair<int32_t, int32_t>> merges;
    std::set<std::string> made;
    BpeTokens tokens = TokensOf({});
    for (int i = 0; i < 30; ++i) {
      const auto any = [&] {
        const auto made_before = static_cast<int32_t>(merges.size());
        const auto pick = static_cast<int32_t>(random() % static_cast<uint32_t>(3 + made_before));
        return pick < 3 ? 'a' + pick : 253 + pick;
      };
      const std::pair<int32_t, int32_t> merge = {any(), any()};
      if (!made.insert(tokens.tokens.at(merge.first) + tokens.tokens.at(merge.second)).second)
        continue;
      merges.push_back(merge);
      tokens = TokensOf(merges);
    }
    ASSERT_OK_AND_ASSIGN(const BpeModel model, BpeModel::Create(tokens));
    // Lengths for both ways of finding the first merge.
    for (const size_t length : {0, 1, 2, 3, 7, 47, 48, 49, 50, 200}) {
      std::string piece;
      for (size_t i = 0; i < length; ++i) piece.push_back(static_cast<char>('a' + random() % 3));
      std::vector<int32_t> ids = {-1};
      ASSERT_OK(model.EncodePiece(piece, ids));
      std::vector<int32_t> wanted = Slowly(tokens, piece);
      wanted.insert(wanted.begin(), -1);
      ASSERT_EQ(ids, wanted) << piece;
    }
  }
}

TEST(BpeModelTest, RefusesWhatCannotBe) {
  const auto expect = [](BpeTokens tokens, const char* text) {
    EXPECT_THAT(BpeModel::Create(std::move(tokens)), StatusIs(kInvalid, HasSubstr(text)));
  };
  BpeTokens tokens = TokensOf({{'a', 'b'}});
  tokens.merges.emplace_back('b', 'a');
  expect(tokens, "merge 1 makes \"ba\", which is no token");
  tokens.merges.back() = {'a', 999};
  expect(tokens, "merge 1 is of token 999, which is not there");
  tokens = TokensOf({});
  tokens.tokens[300] = "a";
  expect(tokens, "tokens 97 and 300 are both \"a\"");
  tokens.tokens[300] = "aa";
  tokens.tokens[-4] = "bb";
  expect(tokens, "has the id -4");
}

TEST(BpeTokenizerTest, NamesBytes) {
  BpeTokens tokens;
  tokens.tokens = {{0, "a"}, {1, "b"}};
  ASSERT_OK_AND_ASSIGN(const auto tokenizer, BpeTokenizer::Create(tokens, {.added = {{7, "<x>"}}}));
  EXPECT_EQ(tokenizer->vocabulary(), 8);
  std::vector<int32_t> ids = {5};
  EXPECT_THAT(tokenizer->Encode("abc", SpecialText::kIsText, ids),
              StatusIs(kInvalid, HasSubstr("the tokenizer has no token for byte 99")));
  EXPECT_THAT(tokenizer->Encode("ab\xff", SpecialText::kIsText, ids),
              StatusIs(kInvalid, HasSubstr("byte 2 of the text is 255, which is not valid UTF-8")));
  EXPECT_THAT(ids, ElementsAre(5));
  ASSERT_OK(tokenizer->Encode("ab<x>a", SpecialText::kIsToken, ids));
  EXPECT_THAT(ids, ElementsAre(5, 0, 1, 7, 0));
  std::string text;
  EXPECT_THAT(tokenizer->Decode({0, 2}, text), StatusIs(kInvalid, HasSubstr("id 2 is no token")));
  EXPECT_THAT(tokenizer->Decode({-1}, text), StatusIs(kInvalid, HasSubstr("id -1 is no token")));
  EXPECT_THAT(BpeTokenizer::Create(tokens, {.added = {{7, ""}}}),
              StatusIs(kInvalid, HasSubstr("no text")));
  EXPECT_THAT(BpeTokenizer::Create(tokens, {.added = {{7, "x"}, {8, "x"}}}),
              StatusIs(kInvalid, HasSubstr("is there twice")));
  EXPECT_THAT(BpeTokenizer::Create(tokens, {.end_of_text = "<y>"}),
              StatusIs(kInvalid, HasSubstr("is no added token")));
  EXPECT_THAT(BpeTokenizer::Create(tokens, {.before_text = {9}}),
              StatusIs(kInvalid, HasSubstr("id 9 around a text")));
}

TEST(ByteTokenizerTest, BytesAreIds) {
  const ByteTokenizer tokenizer;
  std::vector<int32_t> ids;
  ASSERT_OK(tokenizer.Encode(std::string("a\0\xff", 3), SpecialText::kIsToken, ids));
  EXPECT_THAT(ids, ElementsAre('a', 0, 255));
  std::string text;
  ASSERT_OK(tokenizer.Decode(ids, text));
  EXPECT_EQ(text, std::string("a\0\xff", 3));
  EXPECT_THAT(tokenizer.Decode({256}, text), StatusIs(kInvalid, HasSubstr("id 256 is no byte")));
}

std::vector<std::string> Learned(const BpeTokenizer& tokenizer, int32_t from) {
  std::vector<std::string> tokens;
  for (auto id = from; id < tokenizer.vocabulary(); ++id) {
    tokens.push_back(*tokenizer.model().TokenOf(id));
  }
  return tokens;
}

// By hand: Sennrich, Haddow and Birch's words. "es" and "st" come 9 times, then "est"; e (68) and s
// (82) have smaller ids than s and t, so "es" is first. "lo" and "low" come 7 times.
TEST(BpeTrainingTest, LearnsWhatComesMostOften) {
  ASSERT_OK_AND_ASSIGN(BpeTraining training, BpeTraining::Create({.vocabulary = 1 + 256 + 5}));
  const auto add = [&](int times, const std::string& word) {
    for (int i = 0; i < times; ++i) ASSERT_OK(training.Add(word));
  };
  add(5, "low");
  add(2, "lower");
  add(6, "newest");
  add(3, "widest");
  EXPECT_EQ(training.pieces(), 16);
  EXPECT_EQ(training.different_pieces(), 4);
  ASSERT_OK_AND_ASSIGN(const auto tokenizer, training.Train());
  EXPECT_THAT(Learned(*tokenizer, 257), ElementsAre("es", "est", "lo", "low", "ew"));
  EXPECT_EQ(tokenizer->end_of_text(), 0);
  std::vector<int32_t> ids;
  ASSERT_OK(tokenizer->Encode("lowest<|endoftext|>", SpecialText::kIsToken, ids));
  EXPECT_THAT(ids, ElementsAre(260, 258, 0));
}

TEST(BpeTrainingTest, OfEqualPairsTheOneWithSmallerIdsIsFirst) {
  ASSERT_OK_AND_ASSIGN(BpeTraining training,
                       BpeTraining::Create({.vocabulary = 256 + 4, .special_tokens = {}}));
  for (const char* word : {"bc", "ac", "ab", "ba", "ba", "ab", "ac", "bc"})
    ASSERT_OK(training.Add(word));
  ASSERT_OK_AND_ASSIGN(const auto tokenizer, training.Train());
  EXPECT_THAT(Learned(*tokenizer, 256), ElementsAre("ab", "ac", "ba", "bc"));
}

TEST(BpeTrainingTest, EndsWhereNoPairIsLeft) {
  ASSERT_OK_AND_ASSIGN(BpeTraining training,
                       BpeTraining::Create({.vocabulary = 100000, .special_tokens = {}}));
  ASSERT_OK(training.Add("abab abab xy"));
  ASSERT_OK_AND_ASSIGN(const auto tokenizer, training.Train());
  EXPECT_THAT(Learned(*tokenizer, 256), ElementsAre("ab", "abab"));
}

TEST(BpeTrainingTest, RefusesWhatCannotBe) {
  const auto expect = [](BpeTrainingOptions options, const char* text) {
    EXPECT_THAT(BpeTraining::Create(std::move(options)), StatusIs(kInvalid, HasSubstr(text)));
  };
  expect({.vocabulary = 256}, "a vocabulary of 256 tokens; 256 bytes and 1 special tokens make at");
  expect({.vocabulary = 300, .least_count = 0}, "a least count of 0");
  expect({.vocabulary = 300, .special_tokens = {"ab", "ab"}}, "or there twice");
  expect({.vocabulary = 300, .special_tokens = {"a"}}, "is too short");
  ASSERT_OK_AND_ASSIGN(BpeTraining training, BpeTraining::Create({.vocabulary = 300}));
  EXPECT_THAT(training.Add("a\x80"), StatusIs(kInvalid, HasSubstr("byte 1 of the text is 128")));
}

}  // namespace
}  // namespace brigade::data
