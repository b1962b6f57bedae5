#include "brigade/checkpoint/strict_json.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "brigade/tests/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::checkpoint {
namespace {

using ::brigade::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

std::string Repeated(int times, absl::string_view text) {
  std::string all;
  for (int i = 0; i < times; ++i) absl::StrAppend(&all, text);
  return all;
}

TEST(ParseJsonTest, SaysLineAndColumnOfWhatIsNotJson) {
  const auto expect = [](absl::string_view text, const std::string& where) {
    EXPECT_THAT(
        ParseJson(text),
        StatusIs(kInvalid, AllOf(HasSubstr("not valid JSON: parse error at "), HasSubstr(where))))
        << text;
  };
  expect("", "line 1, column 1");
  expect("{\n  \"a\": 1,\n}", "line 3, column 1");
  expect("{\"a\": 1", "line 1, column 8");
  expect("{} {}", "line 1, column 4");
  expect("{} // comment", "line 1, column 4");
  expect("{\"a\": NaN}", "line 1, column 7");
  expect("{\"a\": 01}", "line 1, column 8");
  expect("{'a': 1}", "line 1, column 2");
  expect("{\"a\": \"\xff\"}", "ill-formed UTF-8 byte");
  // Where the parser would end.
  EXPECT_THAT(ParseJson(absl::string_view("{}\0garbage", 10)).status(),
              StatusIs(kInvalid, "not valid JSON: byte 2 is a NUL, at line 1, column 3"));
}

TEST(ParseJsonTest, RefusesNumbersThatADoubleCannotHold) {
  EXPECT_THAT(
      ParseJson("{\"a\": 1e999}"),
      StatusIs(kInvalid, "not valid JSON: number overflow parsing '1e999', at line 1, column 11"));
  EXPECT_THAT(
      ParseJson("[-1e309]"),
      StatusIs(kInvalid, "not valid JSON: number overflow parsing '-1e309', at line 1, column 7"));
  EXPECT_THAT(ParseJson("[1,\n 1e999"),
              StatusIs(kInvalid, HasSubstr("parsing '1e999', at line 2, column 6")));
}

TEST(ParseJsonTest, RefusesNumbersThatBecomeZero) {
  EXPECT_THAT(
      ParseJson(R"({"a": [0, {"b\"1e-999": 2, "lr": 1e-400}]})"),
      StatusIs(
          kInvalid,
          "a.[].lr is 1e-400; it is too close to 0 for a number of 64 bits, at line 1, column 39"));
  EXPECT_THAT(ParseJson("{\"lr\": -0.00000001e-330, \"b\": 1}"),
              StatusIs(kInvalid, HasSubstr("lr is -0.00000001e-330; it is too close to 0")));
  // Zeros, and the smallest number.
  for (const char* number : {"0", "0.0", "-0.00e-999", "0e5", "5e-324", "1e-310"}) {
    EXPECT_OK(ParseJson(absl::StrCat("{\"lr\": ", number, "}")).status()) << number;
  }
}

TEST(ParseJsonTest, RefusesAKeyThatComesTwice) {
  EXPECT_THAT(ParseJson(R"({"a": {"b": 1, "c": {}, "b": 1}})"),
              StatusIs(kInvalid, "a.b is given twice, again at line 1, column 27"));
  EXPECT_THAT(ParseJson(R"({"a": 1, "b": {"a": 2}, "a": 1})"),
              StatusIs(kInvalid, "a is given twice, again at line 1, column 27"));
  EXPECT_THAT(ParseJson(R"({"a": [1, {"b": 1, "b": 2}]})"),
              StatusIs(kInvalid, "a.[].b is given twice, again at line 1, column 22"));
  EXPECT_THAT(ParseJson("{\"a\": {\"b\": 1,\n  \"b\": {\"c\": 1, \"c\": 2}},\n\n \"a\": 3}"),
              StatusIs(kInvalid,
                       "3 keys are given twice:\n"
                       "  a.b is given twice, again at line 2, column 5\n"
                       "  a.b.c is given twice, again at line 2, column 19\n"
                       "  a is given twice, again at line 4, column 4"));
  EXPECT_THAT(ParseJson("{" + Repeated(100, "\"a\": 1, ") + "\"a\": 1}"),
              StatusIs(kInvalid, AllOf(HasSubstr("100 keys are given twice:\n  a is"),
                                       HasSubstr("\n  and 36 more"))));
  EXPECT_OK(ParseJson(R"({"a": {"a": 1}, "b": {"a": 1}, "c": [{"a": 1}, {"a": 1}]})"));
}

TEST(ParseJsonTest, RefusesTextThatIsTooDeepOrTooLong) {
  EXPECT_OK(ParseJson(Repeated(32, "[") + Repeated(32, "]")));
  EXPECT_THAT(ParseJson("\n" + Repeated(33, "[") + Repeated(33, "]")),
              StatusIs(kInvalid,
                       "more than 32 objects and arrays within each other, at line 2, column 33"));
  EXPECT_THAT(ParseJson(Repeated(1 << 17, "{\"a\":") + "1" + Repeated(1 << 17, "}")),
              StatusIs(kInvalid, HasSubstr("objects and arrays within each other, at line 1, ")));
  const std::string longest = "\"" + std::string(JsonLimits().bytes - 2, 'x') + "\"";
  EXPECT_OK(ParseJson(longest));
  EXPECT_THAT(ParseJson(longest + " "),
              StatusIs(kInvalid, "JSON of 1048577 bytes, more than 1048576"));
}

TEST(ParseJsonTest, GivesWhatTheTextSays) {
  const std::string text = R"({"a":[1,-2,2.5,true,null,[],{}],)"
                           R"("b":{"":"\u0000\"","c":{"d":[[0],{"e":18446744073709551615}]}}})";
  EXPECT_EQ(ParseJson(text).value().dump(), text);
  for (const char* scalar : {"0", "-1", "\"x\"", "false", "null", "[]", "{}"}) {
    EXPECT_EQ(ParseJson(scalar).value().dump(), scalar);
  }
}

// In linear time: a search of the array after each of them takes half a minute.
TEST(ParseJsonTest, ReadsAnArrayOfManyObjects) {
  constexpr int kObjects = 500'000;
  const std::string text = absl::StrCat("[", Repeated(kObjects - 1, "{},"), "{}]");
  const absl::Time begin = absl::Now();
  EXPECT_EQ(ParseJson(text, {.bytes = text.size()}).value().size(), kObjects);
  EXPECT_LT(absl::Now() - begin, absl::Seconds(20));
}

// Against the library's own way, which throws.
TEST(JsonStringTest, IsTheTextBetweenQuotesOrSaysThatItIsNoUtf8) {
  int refused = 0;
  const auto expect_as_the_library = [&](const std::string& text) {
    const absl::StatusOr<std::string> quoted = JsonString(text);
    try {
      EXPECT_EQ(quoted.value_or("none"), nlohmann::json(text).dump());
    } catch (const nlohmann::json::exception&) {
      ++refused;
      EXPECT_THAT(quoted, StatusIs(kInvalid, HasSubstr(" is no UTF-8")));
    }
  };
  for (int first = 0; first < 256; ++first) {
    for (int second = 0; second < 256; ++second) {
      expect_as_the_library({static_cast<char>(first), static_cast<char>(second)});
    }
  }
  EXPECT_GT(refused, 256 * 64);
  for (const char* text : {"", "\"\\\n", "\xef\xbf\xbd", "a\xef\xbf\xbd\xff", "\xff\xef\xbf\xbd",
                           "\xed\xa0\x80", "\xf0\x9f\x98\x80", "\xf0\x9f\x98", "\\ufffd"}) {
    expect_as_the_library(text);
  }
}

}  // namespace
}  // namespace brigade::checkpoint
