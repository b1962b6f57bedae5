#include "brigade/examples/gpt/json_reader.h"

#include <optional>

#include "brigade/tests/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::gpt {
namespace {

using ::brigade::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
constexpr auto kUnimplemented = absl::StatusCode::kUnimplemented;

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
              StatusIs(kInvalid, "not valid JSON: byte 2 is a NUL"));
}

TEST(ParseJsonTest, RefusesNumbersThatADoubleCannotHold) {
  EXPECT_THAT(ParseJson("{\"a\": 1e999}"),
              StatusIs(kInvalid, "not valid JSON: number overflow parsing '1e999'"));
  EXPECT_THAT(ParseJson("[-1e309]"),
              StatusIs(kInvalid, "not valid JSON: number overflow parsing '-1e309'"));
}

TEST(ParseJsonTest, RefusesNumbersThatBecomeZero) {
  EXPECT_THAT(
      ParseJson(R"({"a": [0, {"b\"1e-999": 2, "lr": 1e-400}]})"),
      StatusIs(kInvalid, "a.[].lr is 1e-400; it is too close to 0 for a number of 64 bits"));
  EXPECT_THAT(ParseJson("{\"lr\": -0.00000001e-330, \"b\": 1}"),
              StatusIs(kInvalid, HasSubstr("lr is -0.00000001e-330; it is too close to 0")));
  // Zeros, and the smallest number.
  for (const char* number : {"0", "0.0", "-0.00e-999", "0e5", "5e-324", "1e-310"}) {
    EXPECT_OK(ParseJson(absl::StrCat("{\"lr\": ", number, "}")).status()) << number;
  }
}

TEST(ParseJsonTest, RefusesAKeyThatComesTwice) {
  EXPECT_THAT(ParseJson(R"({"a": {"b": 1, "c": {}, "b": 1}})"),
              StatusIs(kInvalid, "a.b is given twice"));
  EXPECT_THAT(ParseJson(R"({"a": 1, "b": {"a": 2}, "a": 1})"),
              StatusIs(kInvalid, "a is given twice"));
  EXPECT_THAT(ParseJson(R"({"a": [1, {"b": 1, "b": 2}]})"),
              StatusIs(kInvalid, "a.[].b is given twice"));
  EXPECT_OK(ParseJson(R"({"a": {"a": 1}, "b": {"a": 1}, "c": [{"a": 1}, {"a": 1}]})"));
}

TEST(ParseJsonTest, RefusesTextThatIsTooDeepOrTooLong) {
  EXPECT_OK(ParseJson(Repeated(32, "[") + Repeated(32, "]")));
  EXPECT_THAT(ParseJson(Repeated(33, "[") + Repeated(33, "]")),
              StatusIs(kInvalid, "more than 32 objects and arrays within each other"));
  EXPECT_THAT(ParseJson(Repeated(1 << 17, "{\"a\":") + "1" + Repeated(1 << 17, "}")),
              StatusIs(kInvalid, "more than 32 objects and arrays within each other"));
  const std::string longest = "\"" + std::string(kMaxJsonBytes - 2, 'x') + "\"";
  EXPECT_OK(ParseJson(longest));
  EXPECT_THAT(ParseJson(longest + " "),
              StatusIs(kInvalid, "the config has 1048577 bytes, more than 1048576"));
}

struct Values {
  bool flag = false;
  double number = 0.0;
  std::optional<int64_t> whole;
  double first = 0.0;
  double second = 0.0;
  int word = 0;
  int type = 0;
  double size = 0.0;
};

Keys KeysOf(Values& v) {
  constexpr NumberRange kRange = {0.0, 10.0, "0 to 10"};
  return {
      {"flag", Flag(&v.flag), {}, {}, "say so"},
      {"numbers",
       nullptr,
       {{"real", Number(&v.number, kRange)},
        {"whole", Whole(&v.whole, kRange)},
        {"pair", Pair(&v.first, &v.second, kRange)}}},
      {"word", OneOf<int>(&v.word, {{"one", 1}, {"two", 2}})},
      {"fixed", Only(true, "it is always so")},
      {"choice",
       nullptr,
       {},
       {{"Round", Set(&v.type, 1), {{"radius", Number(&v.size, kRange), {}, {}, "no circle"}}},
        {"Square", Set(&v.type, 2), {{"side", Number(&v.size, kRange)}}},
        {"Triangle"}}},
      {"later"},
  };
}

absl::Status ReadText(absl::string_view text, Values& values) {
  return ReadObject(*ParseJson(text), KeysOf(values));
}

TEST(ReadObjectTest, PutsValuesWhereTheKeysSay) {
  Values v;
  ASSERT_OK(ReadText(R"({"flag": true, "numbers": {"real": 1.5, "whole": 5e0, "pair": [2, 3.5]},
                         "word": "two", "fixed": true,
                         "choice": {"type": "square", "params": {"side": 10}}})",
                     v));
  EXPECT_TRUE(v.flag);
  EXPECT_EQ(v.number, 1.5);
  EXPECT_EQ(v.whole, 5);
  EXPECT_EQ(v.first, 2.0);
  EXPECT_EQ(v.second, 3.5);
  EXPECT_EQ(v.word, 2);
  EXPECT_EQ(v.type, 2);
  EXPECT_EQ(v.size, 10.0);
}

TEST(ReadObjectTest, NamesPathValueAndWhatItMustBe) {
  Values v;
  const auto expect = [&v](absl::string_view text, const std::string& message) {
    EXPECT_THAT(ReadText(text, v), StatusIs(kInvalid, message)) << text;
  };
  expect("[]", "the config is [], an array; it must be an object");
  expect("{}", "flag is not given; say so");
  expect(R"({"flag": 1})", "flag is 1; it must be true or false");
  expect(R"({"flag": null})", "flag is null; it must be true or false");
  expect(R"({"numbers": 1})", "numbers is 1; it must be an object");
  expect(R"({"numbers": {"real": "0.1"}})",
         "numbers.real is \"0.1\", a string; it must be a number, 0 to 10");
  expect(R"({"numbers": {"real": -0.5}})", "numbers.real is -0.5; it must be a number, 0 to 10");
  expect(R"({"numbers": {"whole": 1.5}})",
         "numbers.whole is 1.5; it must be a whole number, 0 to 10");
  expect(R"({"numbers": {"whole": 18446744073709551615}})",
         "numbers.whole is 18446744073709551615; it must be a whole number, 0 to 10");
  expect(R"({"numbers": {"pair": [1]}})",
         "numbers.pair is [1], an array; it must be an array of two numbers, 0 to 10");
  expect(R"({"numbers": {"pair": [1, 11]}})",
         "numbers.pair is [1,11], an array; it must be an array of two numbers, 0 to 10");
  expect(R"({"word": "three"})", R"(word is "three", a string; it must be "one" or "two")");
  expect(R"({"fixed": false})", "fixed is false; it must be true: it is always so");
  expect(R"({"choice": 1})", "choice is 1; it must be an object");
  expect(R"({"choice": {"params": {}}})",
         "choice.type is not given; it must be one of Round, Square");
  expect(R"({"choice": {"type": 1}})", "choice.type is 1; it must be a string");
  expect(R"({"choice": {"type": "Rond"}})",
         "choice.type is \"Rond\", a string; there is no such type, the nearest is Round");
  expect(R"({"choice": {"type": "Round"}})", "choice.params.radius is not given; no circle");
  expect(R"({"choice": {"type": "Round", "params": {}}})",
         "choice.params.radius is not given; no circle");
}

TEST(ReadObjectTest, NamesTheNearestOfAllKeys) {
  Values v;
  const auto expect = [&v](absl::string_view text, const std::string& message) {
    EXPECT_THAT(ReadText(text, v), StatusIs(kInvalid, message)) << text;
  };
  expect(R"({"flags": 1})", "flags is 1; there is no such key, the nearest is flag");
  expect(R"({"numbers": {"Whol": 1}})",
         "numbers.Whol is 1; there is no such key, the nearest is numbers.whole");
  expect(R"({"whole": 1})", "whole is 1; there is no such key, the nearest is numbers.whole");
  expect(R"({"numbers": {"word": "x"}})",
         "numbers.word is \"x\", a string; there is no such key, the nearest is word");
  expect(R"({"choice": {"type": "Round", "params": {"side": 1}}})",
         "choice.params.side is 1; there is no such key, the nearest is choice.params.side of "
         "type Square");
  expect(R"({"latr": 1})",
         "latr is 1; there is no such key, the nearest is later, which is not supported yet");
  expect("{\"flag\\n\\u001b[\": {}}",
         "flag\\x0a\\x1b[ is {}, an object; there is no such key, the nearest is flag");
  EXPECT_THAT(ReadText("{\"" + std::string(1000, 'x') + "\": 1}", v),
              StatusIs(kInvalid, HasSubstr(std::string(160, 'x') + "... is 1; there is no")));
}

TEST(ReadObjectTest, CountsAReplacedLetterAsOneEdit) {
  bool flag = false;
  EXPECT_THAT(
      ReadObject(*ParseJson(R"({"abcd": 1})"), {{"ab", Flag(&flag)}, {"axcd", Flag(&flag)}}),
      StatusIs(kInvalid, "abcd is 1; there is no such key, the nearest is axcd"));
}

TEST(ReadObjectTest, SaysWhatIsNotSupportedYet) {
  Values v;
  EXPECT_THAT(ReadText(R"({"later": {"a": 1}})", v),
              StatusIs(kUnimplemented,
                       "later is {\"a\":1}, an object; DeepSpeed knows it, but it is not "
                       "supported yet"));
  EXPECT_THAT(ReadText(R"({"choice": {"type": "triangle", "params": {"x": 1}}})", v),
              StatusIs(kUnimplemented,
                       "choice.type is \"triangle\", a string; DeepSpeed knows it, "
                       "but it is not supported yet"));
}

}  // namespace
}  // namespace brigade::gpt
