#include "brigade/launch/hosts.h"

#include <string>
#include <vector>

#include "brigade/tests/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::launch {
namespace {

using ::brigade::testing::StatusIs;
using ::testing::HasSubstr;

std::vector<Host> TwoOfFour() { return HostsFromText("a slots=4\nb slots=4\n", "file").value(); }

std::string Text(const absl::StatusOr<std::vector<Host>>& hosts) {
  if (!hosts.ok()) return std::string(hosts.status().message());
  std::string text;
  for (const Host& host : *hosts) {
    text += host.name + ":";
    for (const int slot : host.slots) text += " " + std::to_string(slot);
    text += "; ";
  }
  return text;
}

TEST(HostsTest, AHostfileIsNamesAndSlots) {
  EXPECT_EQ(Text(HostsFromText("# of the rack\n\n  worker-1.lan slots=2 # all of it\r\n"
                               "\tb_2\tslots=1\n",
                               "file")),
            "worker-1.lan: 0 1; b_2: 0; ");
}

TEST(HostsTest, AnErrorNamesFileLineAndWord) {
  const struct {
    const char* text;
    const char* error;
  } cases[] = {
      {"", "hostfile hosts has no host"},
      {"# nobody\n\n", "has no host"},
      {"a slots=1\nw slots=4abc", "line 2: \"slots=4abc\" is not slots=N"},
      {"w slots=0", "line 1: \"slots=0\" is not slots=N"},
      {"w slots=-1", "\"slots=-1\" is not slots=N"},
      {"w slots=+1", "\"slots=+1\" is not slots=N"},
      {"w slots=", "\"slots=\" is not slots=N"},
      {"w slots=99999999999999999999", "is not slots=N"},
      {"w", "line 1: there is no slots=N behind w"},
      {"w gpus=4", "\"gpus=4\" is not slots=N"},
      {"w x slots=4", "\"x\" is not slots=N"},
      {"w slots=4 x", "\"x\" follows slots=4"},
      {"w slots=1\nv slots=1\nw slots=2", "line 3: w has been there before"},
      {"-oProxyCommand=x slots=1", "line 1: \"-oProxyCommand=x\" is no name of a host"},
      {"a;b slots=1", "\"a;b\" is no name of a host"},
      {"a:1 slots=1", "is no name of a host"},
      {"\x1b[2J slots=1", "\"\\x1b[2J\" is no name of a host"},
  };
  for (const auto& each : cases) {
    EXPECT_THAT(HostsFromText(each.text, "hosts").status(),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(each.error)))
        << each.text;
  }
}

TEST(HostsTest, AHostfileMayHaveSoManyRanksAndNoMore) {
  std::string text;
  for (int host = 0; host < kMostRanks / kMostSlots; ++host) {
    text += "h" + std::to_string(host) + " slots=" + std::to_string(kMostSlots) + "\n";
  }
  EXPECT_TRUE(HostsFromText(text, "hosts").ok());
  EXPECT_EQ(HostsFromText(text + "more slots=1", "hosts").status().message(),
            "hostfile hosts, line 257: there are more than 1048576 slots");
}

// What is right where DeepSpeed's filter and its whole command line differ.
TEST(HostsTest, IncludeTakesWhatItNames) {
  const struct {
    const char* text;
    const char* left;
  } cases[] = {
      {"a", "a: 0 1 2 3; "},
      {"a@b:0,2", "a: 0 1 2 3; b: 0 2; "},
      {"b:0,3", "b: 0 3; "},
      {"b:3,0,3", "b: 0 3; "},
      {"b@a", "a: 0 1 2 3; b: 0 1 2 3; "},
      {"a:1@a:0,1", "a: 0 1; "},
      {"a@a:1", "a: 0 1 2 3; "},
      {"b:7", "--include=b:7: b has no slot 7, but 4 of them from 0 to 3"},
      {"jeff", "--include=jeff: there is no host \"jeff\"; there are a, b"},
      {"a:", "--include=a:: \"\" is no slot of a: a number is needed"},
      {"a:0-1", "--include=a:0-1: \"0-1\" is no slot of a: a number is needed"},
      {"a:-1", "--include=a:-1: \"-1\" is no slot of a: a number is needed"},
      {"a@", "--include=a@: there is no host \"\"; there are a, b"},
  };
  for (const auto& each : cases) {
    EXPECT_EQ(Text(Filter(TwoOfFour(), Choice::kInclude, each.text)), each.left) << each.text;
  }
}

TEST(HostsTest, ExcludeLeavesTheRest) {
  const struct {
    const char* text;
    const char* left;
  } cases[] = {
      {"b:0", "a: 0 1 2 3; b: 1 2 3; "},
      {"b", "a: 0 1 2 3; "},
      {"a:0,1@b:3", "a: 2 3; b: 0 1 2; "},
      {"a@a:1", "b: 0 1 2 3; "},
      {"b:7", "--exclude=b:7: b has no slot 7, but 4 of them from 0 to 3"},
      {"jeff", "--exclude=jeff: there is no host \"jeff\"; there are a, b"},
      {"a@b", "--exclude=a@b leaves no slot"},
  };
  for (const auto& each : cases) {
    EXPECT_EQ(Text(Filter(TwoOfFour(), Choice::kExclude, each.text)), each.left) << each.text;
  }
}

TEST(HostsTest, TheFirstOfThemMustBeThere) {
  EXPECT_EQ(Text(FirstOf(TwoOfFour(), 1, 2)), "a: 0 1; ");
  EXPECT_EQ(Text(FirstOf(TwoOfFour(), 0, 0)), "a: 0 1 2 3; b: 0 1 2 3; ");
  EXPECT_EQ(Text(FirstOf(TwoOfFour(), 3, 0)), "--num_nodes is 3, and there are 2 hosts");
  EXPECT_EQ(Text(FirstOf(TwoOfFour(), 2, 5)), "--num_gpus is 5, and a has 4 slots");
}

TEST(HostsTest, AListIsHostsWithoutAFile) {
  EXPECT_EQ(Text(HostsFromList("b:3,1@a")), "b: 1 3; a: 0; ");
  for (const char* const text : {"", "a:", "a@a", "a:x", "-a", "a:0,,1", "a@@b"}) {
    EXPECT_THAT(HostsFromList(text).status(),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("is not HOST[:SLOT,...]")))
        << text;
  }
}

}  // namespace
}  // namespace brigade::launch
