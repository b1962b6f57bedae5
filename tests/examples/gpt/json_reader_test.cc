#include "brigade/examples/gpt/json_reader.h"

#include <optional>

#include "brigade/checkpoint/strict_json.h"
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
  return ReadObject(*checkpoint::ParseJson(text), KeysOf(values));
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
  EXPECT_THAT(ReadObject(*checkpoint::ParseJson(R"({"abcd": 1})"),
                         {{"ab", Flag(&flag)}, {"axcd", Flag(&flag)}}),
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
