#include "brigade/models/module_pattern.h"

#include <string>
#include <vector>

#include "brigade/tests/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::models {
namespace {

using ::brigade::testing::StatusIs;
using ::testing::HasSubstr;

constexpr absl::StatusCode kInvalid = absl::StatusCode::kInvalidArgument;

// What Python's re.fullmatch says of each.
TEST(ModulePatternTest, MatchesWholeNamesAsPythonDoes) {
  struct Case {
    std::string pattern;
    std::vector<std::string> matched, others;
  };
  const std::string q0 = "model.layers.0.self_attn.q_proj",
                    k12 = "model.layers.12.self_attn.k_proj";
  for (const Case& each : std::vector<Case>{
           {"q_proj", {"q_proj"}, {q0, "q_proj2", "q_pro", ""}},
           {".*\\.(q|v)_proj", {q0, "a.v_proj"}, {k12, "q_proj", q0 + "x"}},
           {"model\\.layers\\.(?:[0-9]|1[01])\\..*", {q0}, {k12}},
           {".*[^qv]_proj", {k12}, {q0}},
           {".*layers\\.\\d{2}\\..+?", {k12}, {q0}},
           {"a{2,3}b?", {"aa", "aaa", "aab", "aaab"}, {"a", "aaaa", "aabb", "b"}},
           {"a{2,}", {"aa", "aaaaaaa"}, {"a", ""}},
           {"a{0,1}?", {"", "a"}, {"aa"}},
           {"(a|b|)c*", {"", "a", "b", "acc", "c"}, {"ab", "ca"}},
           {"[]a-c.]+", {"]", "abc.", "..."}, {"d", "", "ab-"}},
           {"[a-]+", {"a-a"}, {"b"}},
           {"[\\w.]*", {q0, ""}, {"a b", "a/b"}},
           {"\\W\\D\\S", {".ab"}, {"aab", ".1b", ".a "}},
           {"x\\.y", {"x.y"}, {"xay"}},
           {"(a*)*b", {"b", "aaab"}, {"a", "aaac"}},
           {"", {""}, {"a"}},
           {"a\\\\b", {"a\\b"}, {"ab"}},
       }) {
    SCOPED_TRACE(each.pattern);
    const auto pattern = ModulePattern::Parse(each.pattern);
    ASSERT_OK(pattern);
    for (const std::string& name : each.matched) EXPECT_TRUE(pattern->Matches(name)) << name;
    for (const std::string& name : each.others) EXPECT_FALSE(pattern->Matches(name)) << name;
    EXPECT_FALSE(pattern->Matches("q\xc3\xa9"));
  }
}

TEST(ModulePatternTest, NamesWhatItDoesNotKnow) {
  for (const auto& [pattern, what] : std::vector<std::pair<std::string, std::string>>{
           {"(a", "a ( without its )"},
           {"a)", "a ) without its ("},
           {"[a", "a [ without its ]"},
           {"[", "a [ without its ]"},
           {"[]", "a [ without its ]"},
           {"[z-a]", "a range that ends before it begins"},
           {"*a", "nothing to repeat"},
           {"a**", "repeated twice"},
           {"a{3,2}", "most is below its least"},
           {"a{1001}", "more than 1000"},
           {"a{99999999999999}", "more than 1000"},
           {"a{,2}", "write \\{"},
           {"a{2", "a { without its }"},
           {"^a$", "^ and $ are not supported"},
           {"(?=a)", "only (?:...)"},
           {"(a)\\1", "of escaped letters only"},
           {"\\ba", "of escaped letters only"},
           {"a\\", "nothing behind a backslash"},
           {"\xc3\xa9", "only ASCII"},
           {"[\xc3]", "only ASCII"},
           {std::string(60, '(') + std::string(60, ')'), "within each other"},
           {"((a{1000}){1000}){1000}", "states"},
           {"(((){1000}){1000}){1000}", "states"},
           {"(((((a?){9})*){999})*){999}", "states"},
       }) {
    EXPECT_THAT(ModulePattern::Parse(pattern), StatusIs(kInvalid, HasSubstr(what))) << pattern;
  }
}

// By trying one way after the other this would take 2^60 steps.
TEST(ModulePatternTest, TakesNoLongerForSomePatterns) {
  const auto pattern = ModulePattern::Parse("(a|a)*(a*)*(a|aa)+b");
  ASSERT_OK(pattern);
  EXPECT_FALSE(pattern->Matches(std::string(60, 'a')));
  EXPECT_TRUE(pattern->Matches(std::string(60, 'a') + "b"));
}

}  // namespace
}  // namespace brigade::models
