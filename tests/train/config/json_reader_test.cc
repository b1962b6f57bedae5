#include "brigade/train/config/json_reader.h"

#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "brigade/checkpoint/strict_json.h"
#include "brigade/tests/testing/status_matchers.h"
#include "brigade/train/config/json_values.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::train {
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
      {"flag", Flag(&v.flag)},
      {.name = "numbers",
       .keys = {{"real", Number(&v.number, kRange)},
                {"whole", Whole(&v.whole, kRange)},
                {"pair", Pair(&v.first, &v.second, kRange)}}},
      {"word", OneOf<int>(&v.word, {{"one", 1}, {"two", 2}})},
      {"fixed", Only(true, "it is always so")},
      {.name = "choice",
       .types = {{"Round",
                  Set(&v.type, 1),
                  "",
                  {{.name = "radius", .value = Number(&v.size, kRange), .required = "no circle"}}},
                 {"Square", Set(&v.type, 2), "", {{"side", Number(&v.size, kRange)}}},
                 {"Triangle", NotSupported()}}},
      {"later", NotSupported()},
  };
}

absl::Status ReadText(absl::string_view text, Values& values) {
  return StatusOf(ReadObject(*checkpoint::ParseJson(text), KeysOf(values)).refusals);
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
  expect(R"({"flag": 1})", "flag is 1; it must be true or false");
  expect("null", "the config is null; it must be an object");
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
  expect(R"({"choice": {"params": {"side": 1}}})",
         "choice.type is not given; it must be one of Round, Square");
  expect(R"({"choice": {"type": 1}})",
         "choice.type is 1; it must be a string, one of Round, Square");
  expect(R"({"choice": {"type": "Rond"}})",
         "choice.type is \"Rond\", a string; there is no such type, the nearest is Round; it must "
         "be one of Round, Square");
  expect(R"({"choice": {"type": "Round"}})", "choice.params.radius is not given; no circle");
  expect(R"({"choice": {"type": "Round", "params": {}}})",
         "choice.params.radius is not given; no circle");
}

TEST(ReadObjectTest, NamesAKeyThatIsMissing) {
  bool flag = false;
  const Keys keys = {
      {.name = "section",
       .keys = {{.name = "flag", .value = Flag(&flag), .required = "say so", .also = "switch"}}}};
  const auto read = [&keys](absl::string_view text) {
    return StatusOf(ReadObject(*checkpoint::ParseJson(text), keys).refusals);
  };
  EXPECT_OK(read("{}"));
  EXPECT_THAT(read(R"({"section": {}})"), StatusIs(kInvalid, "section.flag is not given; say so"));
  EXPECT_THAT(read(R"({"section": {"flag": null}})"),
              StatusIs(kInvalid, "section.flag is not given; say so"));
  // A name that is most likely meant to be it stands for it.
  EXPECT_THAT(read(R"({"section": {"flagg": true}})"),
              StatusIs(kInvalid,
                       "section.flagg is true; there is no such key, the nearest is section.flag"));
  EXPECT_OK(read(R"({"section": {"switch": true}})"));
  EXPECT_TRUE(flag);
  EXPECT_THAT(read(R"({"section": {"switch": true, "flag": true}})"),
              StatusIs(kInvalid,
                       "section.switch is true; it is another name of section.flag, which is given "
                       "as well"));
}

TEST(ReadObjectTest, TakesNullAsNothing) {
  Values v;
  ASSERT_OK(ReadText(R"({"flag": null, "numbers": null, "word": null, "fixed": null,
                         "choice": null, "later": null})",
                     v));
  ASSERT_OK(ReadText(R"({"numbers": {"real": null, "whole": null, "pair": null},
                         "choice": {"type": "Square", "params": null}})",
                     v));
  EXPECT_THAT(ReadText(R"({"choice": {"type": "Round", "params": null}})", v),
              StatusIs(kInvalid, "choice.params.radius is not given; no circle"));
  for (const char* none : {"{}", R"({"type": null})", R"({"type": null, "params": {}})"}) {
    EXPECT_OK(ReadText(absl::StrCat("{\"choice\": ", none, "}"), v)) << none;
  }
  // But a key that there is not is one.
  EXPECT_THAT(ReadText(R"({"flags": null})", v),
              StatusIs(kInvalid, "flags is null; there is no such key, the nearest is flag"));
  const Json json = *checkpoint::ParseJson(R"({"a": {"b": null, "c": 1}, "d": null})");
  EXPECT_EQ(Find(json, "a.b"), nullptr);
  EXPECT_EQ(Find(json, "d.e"), nullptr);
  EXPECT_EQ(Find(json, "a.c.d"), nullptr);
  EXPECT_EQ(*Find(json, "a.c"), Json(1));
}

TEST(ReadObjectTest, ReadsNothingElseWhereTheSwitchIsOff) {
  bool enabled = true;
  const auto read = [&enabled](absl::string_view text, std::optional<Json> of_flag = {}) {
    const Keys keys = {
        {.name = "section",
         .keys = {{.name = "enabled",
                   .value = Flag(&enabled),
                   .automatic = FromFlag("--on", of_flag.has_value(), of_flag.value_or(nullptr))},
                  {"side", Flag(&enabled)}},
         .has_switch = true}};
    return StatusOf(ReadObject(*checkpoint::ParseJson(text), keys).refusals);
  };
  EXPECT_OK(read(R"({"section": {"enabled": false, "side": 1, "sides": 2}})"));
  EXPECT_OK(read(R"({"section": {"enabled": "auto", "side": 1}})", false));
  for (const char* on : {"true", "null", "\"auto\""}) {
    EXPECT_THAT(read(absl::StrCat("{\"section\": {\"enabled\": ", on, ", \"side\": 1}}"), true),
                StatusIs(kInvalid, "section.side is 1; it must be true or false"));
  }
  EXPECT_THAT(read(R"({"section": {"side": 1}})"),
              StatusIs(kInvalid, "section.side is 1; it must be true or false"));
}

TEST(ReadObjectTest, TellsWhetherAPathIsKnown) {
  const auto refused = [](absl::string_view paths, const Refusal& refusal) {
    return AnyRefused(paths, {refusal});
  };
  EXPECT_TRUE(refused("a.b", {"a.b", ""}));
  EXPECT_TRUE(refused("a.b", {"a", ""}));
  EXPECT_TRUE(refused("x a.b", {"a.b", ""}));
  EXPECT_TRUE(refused("a.b", {.path = "a.bb", .text = "", .hidden = "a.b"}));
  EXPECT_TRUE(refused("a.b.c", {.path = "aa", .text = "", .hidden = "a"}));
  // That it is given is known, whatever is inside.
  EXPECT_FALSE(refused("a", {"a.b", ""}));
  EXPECT_FALSE(refused("a", {.path = "b", .text = "", .hidden = "a.b"}));
  EXPECT_FALSE(refused("a.b", {"a.bb", ""}));
  EXPECT_FALSE(refused("a.b", {"a.c", ""}));
  EXPECT_FALSE(refused("", {"a.c", ""}));
  EXPECT_FALSE(refused("a.b", {"", "there is no such file"}));
}

TEST(ReadObjectTest, ListsAllRefusalsWithTheirPaths) {
  Values v;
  const Reading reading = ReadObject(
      *checkpoint::ParseJson(R"({"flags": 1, "numbers": {"real": "x", "whole": 7, "pair": 3},
                                 "choice": {"type": "Triangle", "sort": 1}, "later": 2})"),
      KeysOf(v));
  std::vector<std::string> paths;
  for (const Refusal& refusal : reading.refusals) paths.push_back(refusal.path);
  // Params of no type are not read.
  EXPECT_EQ(reading.refusals[0].hidden, "choice.params");
  EXPECT_THAT(paths, ::testing::ElementsAre("choice.type", "choice.sort", "flags", "later",
                                            "numbers.pair", "numbers.real"));
  EXPECT_EQ(v.whole, 7);
  EXPECT_THAT(StatusOf(reading.refusals),
              StatusIs(kInvalid,
                       "6 keys are refused:\n"
                       "  choice.type is \"Triangle\", a string; DeepSpeed knows it, but it is not "
                       "supported yet; it must be one of Round, Square\n"
                       "  choice.sort is 1; there is no such key\n"
                       "  flags is 1; there is no such key, the nearest is flag\n"
                       "  later is 2; DeepSpeed knows it, but it is not supported yet\n"
                       "  numbers.pair is 3; it must be an array of two numbers, 0 to 10\n"
                       "  numbers.real is \"x\", a string; it must be a number, 0 to 10"));
  // What is not supported is another error, where it is all.
  EXPECT_THAT(ReadText(R"({"later": 1, "choice": {"type": "Triangle"}})", v),
              StatusIs(kUnimplemented, HasSubstr("2 keys are refused:\n  choice.type is")));
}

TEST(ReadObjectTest, TakesAutoWhereAFlagFillsItIn) {
  std::optional<int64_t> number;
  int64_t steps = 5;
  const NumberRange range = {1.0, 10.0, "1 to 10"};
  int of_flag = 3;
  const auto keys = [&](bool is_given) -> Keys {
    return {{.name = "number",
             .value = Whole(&number, range),
             .automatic = FromFlag("--number", is_given, of_flag)},
            {"steps", Whole(&steps, range)},
            {.name = "must", .value = Number(&steps, range), .required = "say so"}};
  };
  const Json all = *checkpoint::ParseJson(R"({"number": "auto", "steps": 1, "must": 2})");
  EXPECT_OK(StatusOf(ReadObject(all, keys(true)).refusals));
  EXPECT_EQ(number, 3);
  of_flag = 30;
  EXPECT_THAT(
      StatusOf(ReadObject(all, keys(true)).refusals),
      StatusIs(kInvalid,
               "--number is 30, which number is, being \"auto\"; it must be a whole number, "
               "1 to 10"));
  number = std::nullopt;
  steps = 5;
  EXPECT_THAT(StatusOf(ReadObject(all, keys(false)).refusals),
              StatusIs(kInvalid,
                       "number is \"auto\", which nothing fills in here: give --number, or write a "
                       "whole number, 1 to 10"));
  const Json others = *checkpoint::ParseJson(R"({"steps": "auto", "must": "auto"})");
  EXPECT_THAT(StatusOf(ReadObject(others, keys(true)).refusals),
              StatusIs(kInvalid,
                       "2 keys are refused:\n"
                       "  must is \"auto\", which nothing fills in here: write a number, 1 to 10\n"
                       "  steps is \"auto\", which nothing fills in here: leave the key out for 1, "
                       "or write a whole number, 1 to 10"));
}

TEST(ReadObjectTest, NamesWhatHasNoEffect) {
  const Keys keys = {{"speed", Tuning(1e9, "it is always fast")},
                     {"side", Tuning(true, "there is one side")},
                     {"any", Tuning(nullptr, "nobody asks")},
                     {"free", Either(false, "both are right")}};
  const auto read = [&keys](absl::string_view text) {
    return ReadObject(*checkpoint::ParseJson(text), keys);
  };
  const Reading same = read(R"({"speed": 1000000000, "side": true, "any": null, "free": true})");
  EXPECT_TRUE(same.refusals.empty());
  EXPECT_THAT(same.without_effect, ::testing::IsEmpty());
  const Reading other = read(R"({"speed": "auto", "side": false, "any": [1]})");
  EXPECT_TRUE(other.refusals.empty());
  EXPECT_THAT(other.without_effect,
              ::testing::ElementsAre("any is [1], an array: nobody asks",
                                     "side is false: there is one side",
                                     "speed is \"auto\", a string: it is always fast"));
  EXPECT_THAT(StatusOf(read(R"({"speed": true, "side": 1, "free": "yes"})").refusals),
              StatusIs(kInvalid,
                       "3 keys are refused:\n"
                       "  free is \"yes\", a string; it must be true or false\n"
                       "  side is 1; it must be true or false\n"
                       "  speed is true; it must be a number"));
}

TEST(ReadObjectTest, TakesSectionsThatAreOff) {
  const Keys keys = {{"off", Off("there is another way")}, {"on", Off("", ByDefault::kOn)}};
  const auto read = [&keys](absl::string_view text) {
    return StatusOf(ReadObject(*checkpoint::ParseJson(text), keys).refusals);
  };
  for (const char* text :
       {R"({"off": {}})", R"({"off": null})", R"({"off": false})", R"({"off": {"path": "a"}})",
        R"({"off": {"enabled": false, "inside": {"enabled": true}}})",
        R"({"off": {"inside": {"enabled": false}}})", R"({"off": {"deepcompile": false}})",
        R"({"on": {"enabled": false, "mode": 1}})"}) {
    EXPECT_OK(read(text)) << text;
  }
  constexpr char kText[] = "; DeepSpeed knows it, but it is not supported yet";
  for (const char* value : {"true", R"({"enabled":true}, an object)",
                            R"({"deepcompile":true,"enabled":false}, an object)",
                            R"({"inside":{"enabled":true}}, an object)"}) {
    const std::string json(
        absl::string_view(value).substr(0, absl::string_view(value).find(", an object")));
    EXPECT_THAT(
        read("{\"off\": " + json + "}"),
        StatusIs(kUnimplemented, absl::StrCat("off is ", value, kText, ": there is another way")));
  }
  EXPECT_THAT(
      read(R"({"off": {"enabled": "auto"}})"),
      StatusIs(kUnimplemented, absl::StrCat("off is {\"enabled\":\"auto\"}, an object", kText,
                                            ": \"enabled\" is \"auto\", which nothing fills in "
                                            "here: write false; there is another way")));
  EXPECT_THAT(read(R"({"on": {}})"),
              StatusIs(kUnimplemented, absl::StrCat("on is {}, an object", kText)));
  EXPECT_THAT(read(R"({"off": 1})"),
              StatusIs(kInvalid, "off is 1; it must be an object that says \"enabled\": false"));
}

TEST(ReadObjectTest, SaysWhereWhatIsInsideIsSwitchedOff) {
  const Keys keys = {{"off", Off("")}};
  const auto read = [&keys](absl::string_view text) {
    return ReadObject(*checkpoint::ParseJson(text), keys);
  };
  const Reading reading = read(R"({"off": {"enabled": false, "a": {"b": {"enabled": true}}}})");
  EXPECT_THAT(reading.refusals, ::testing::IsEmpty());
  EXPECT_THAT(reading.without_effect,
              ::testing::ElementsAre(
                  "off is {\"a\":{\"b\":{\"enabled\":true}},\"enabled\":false}, an object: "
                  "\"enabled\": false switches off what is inside too"));
  EXPECT_THAT(read(R"({"off": {"enabled": false, "a": {"enabled": false}}})").without_effect,
              ::testing::IsEmpty());
}

TEST(ReadObjectTest, RefusesSectionsInsideThatAreOnWhateverIsAroundThem) {
  const Keys keys = {{"off", Off("", ByDefault::kOff, {"a.b"})}};
  const auto read = [&keys](absl::string_view text) {
    return StatusOf(ReadObject(*checkpoint::ParseJson(text), keys).refusals);
  };
  for (const char* text : {R"({"off": {"a": {"b": {}}}})", R"({"off": {"enabled": false, "a": 1}})",
                           R"({"off": {"enabled": false, "a": {"b": true}}})",
                           R"({"off": {"enabled": false, "a": {"enabled": true}}})"}) {
    EXPECT_OK(read(text)) << text;
  }
  EXPECT_THAT(read(R"({"off": {"enabled": false, "a": {"enabled": false,
                                                       "b": {"enabled": true}}}})"),
              StatusIs(kUnimplemented, HasSubstr("not supported yet")));
}

TEST(ReadObjectTest, CountsFlagsThatAreRefused) {
  EXPECT_THAT(StatusOf({{"--a", "--a is 1"}, {"--b", "--b is 2"}}),
              StatusIs(kInvalid, "2 flags are refused:\n  --a is 1\n  --b is 2"));
  EXPECT_THAT(StatusOf({{"a", "a is 1"}, {"--b", "--b is 2"}}),
              StatusIs(kInvalid, "2 keys and flags are refused:\n  a is 1\n  --b is 2"));
  // What is of no one name may be of both.
  for (const char* other : {"", "--", "--b", "b"}) {
    EXPECT_THAT(StatusOf({{"", "a is b"}, {other, "c is d"}}),
                StatusIs(kInvalid, "2 keys and flags are refused:\n  a is b\n  c is d"));
  }
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
  expect(R"({"choice": {"type": "Round", "params": {"side": 1, "radius": 1}}})",
         "choice.params.side is 1; there is no such key, the nearest is choice.params.side of "
         "type Square");
  expect(R"({"latr": 1})",
         "latr is 1; there is no such key, the nearest is later, which is not supported yet");
  expect("{\"flag\\n\\u001b[\": {}}", "flag\\x0a\\x1b[ is {}, an object; there is no such key");
  EXPECT_THAT(ReadText("{\"" + std::string(1000, 'x') + "\": 1}", v),
              StatusIs(kInvalid, HasSubstr(std::string(160, 'x') + "... is 1; there is no")));
  // Beside it more may be wrong than elsewhere, and the same name elsewhere is as good.
  expect(R"({"numbers": {"wrd": "x"}})", "numbers.wrd is \"x\", a string; there is no such key");
  expect(R"({"wrd": "x"})", "wrd is \"x\", a string; there is no such key, the nearest is word");
  expect(R"({"choice": {"type": "Oval"}})",
         "choice.type is \"Oval\", a string; there is no such type: it must be one of Round, "
         "Square");
}

TEST(ReadObjectTest, CountsAReplacedLetterAsOneEdit) {
  bool flag = false;
  const Keys keys = {{"ab", Flag(&flag)}, {"axcd", Flag(&flag)}};
  EXPECT_THAT(StatusOf(ReadObject(*checkpoint::ParseJson(R"({"abcd": 1})"), keys).refusals),
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
                       "but it is not supported yet; it must be one of Round, Square"));
}

}  // namespace
}  // namespace brigade::train
