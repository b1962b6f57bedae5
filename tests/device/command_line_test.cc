#include "brigade/device/command_line.h"

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

ABSL_FLAG(brigade::device::Count, things, {1'500}, "how many there are");
ABSL_FLAG(std::string, without_default, "", "anything");
ABSL_FLAG(std::optional<int>, stage, std::nullopt, "0 to 3");
ABSL_FLAG(int64_t, layers, 4, "of the model");
ABSL_FLAG(double, rate, 0.5, "0 to 1");
ABSL_FLAG(bool, noisy, false, "prints more");

namespace brigade::device {
namespace {

using ::testing::ExitedWithCode;
using ::testing::HasSubstr;
using ::testing::Not;

int RunMain(std::vector<std::string> words, absl::Status result = absl::OkStatus()) {
  words.insert(words.begin(), "folder/program");
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  return RunProgram(static_cast<int>(words.size()), argv.data(), "Counts things.",
                    [&] { return result; });
}

TEST(CommandLineDeathTest, HelpEndsWithZeroBeforeAnythingIsDone) {
  for (const char* const help : {"--help", "-help", "-h"}) {
    EXPECT_EXIT(RunMain({"--no_flag", "stray", help}, absl::InternalError("it ran")),
                ExitedWithCode(0), "^$");
  }
}

TEST(CommandLineTest, HelpListsTheFlagsOfTheProgramAlone) {
  const std::string help = HelpText("program", "Counts things.");
  EXPECT_THAT(help, HasSubstr("usage: program [--FLAG=VALUE...]\n\nCounts things.\n"));
  EXPECT_THAT(help, HasSubstr("\n  --things (default: 1.5K)\n      how many there are\n"));
  EXPECT_THAT(help, HasSubstr("\n  --without_default (no default)\n      anything\n"));
  EXPECT_THAT(help, Not(HasSubstr("flagfile")));
}

TEST(CommandLineTest, FlagsWithoutAValueAreEmpty) {
  const auto empty = [](std::vector<std::string> words) {
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    return EmptyFlags(static_cast<int>(argv.size()), argv.data());
  };
  EXPECT_THAT(empty({"program", "--things=", "-without_default", "", "--no_flag="}),
              ::testing::ElementsAre("things", "without_default"));
  EXPECT_THAT(empty({"program", "--things=1", "--without_default==", "-", "", "--", "--things="}),
              ::testing::IsEmpty());
}

// A process parses once.
TEST(CommandLineDeathTest, AWordThatIsNoFlagIsAnErrorNamingIt) {
  EXPECT_EXIT(std::exit(RunMain({"--things=2", "stray\x1b"})), ExitedWithCode(1),
              "^INVALID_ARGUMENT: \"stray.x1b\" is no flag; see --help\n");
  EXPECT_EXIT(std::exit(RunMain({"--", "--help"})), ExitedWithCode(1),
              "\"--help\" is no flag; see --help\n");
  EXPECT_EXIT(RunMain({"--no_flag"}), ExitedWithCode(1), "Unknown command line flag 'no_flag'");
}

TEST(CommandLineDeathTest, ARefusedValueIsToldWithWhatTheFlagTakes) {
  EXPECT_EXIT(
      std::exit(RunMain({"--stage=q\x1b", "-layers", "1.5", "--rate", "fast"})), ExitedWithCode(1),
      "^INVALID_ARGUMENT: --stage is \"q.x1b\"; it must be a whole number. --stage: 0 to 3\n"
      "--layers is \"1.5\"; it must be a whole number. --layers: of the model\n"
      "--rate is \"fast\"; it must be a number. --rate: 0 to 1\n$");
  EXPECT_EXIT(
      std::exit(RunMain({"--things=7GB"})), ExitedWithCode(1),
      "^INVALID_ARGUMENT: --things is \"7GB\"; it must be a number like .*. --things: how many "
      "there are\n$");
  EXPECT_EXIT(std::exit(RunMain({"--noisy=often"})), ExitedWithCode(1),
              "--noisy is \"often\"; it must be true or false. --noisy: prints more\n$");
  // What follows a flag that is on or off is no value of it, and behind -- nothing is.
  EXPECT_EXIT(std::exit(RunMain({"--noisy", "often"})), ExitedWithCode(1),
              "\"often\" is no flag; see --help\n$");
  EXPECT_EXIT(std::exit(RunMain({"--stage=3", "--nonoisy", "--layers=-2", "--rate=1e-3"})),
              ExitedWithCode(0), "^$");
}

TEST(CommandLineDeathTest, AnErrorOfTheProgramIsPrinted) {
  EXPECT_EXIT(std::exit(RunMain({"--things=7B"})), ExitedWithCode(0), "");
  EXPECT_EXIT(std::exit(RunMain({}, absl::NotFoundError("no things"))), ExitedWithCode(1),
              "^NOT_FOUND: no things\n");
}

TEST(CommandLineDeathTest, WhatCouldNotBePrintedIsAnError) {
  const auto end = [](const char* to) {
    char name[] = "program";
    char* words[] = {name, nullptr};
    if (std::freopen(to, "w", stdout) == nullptr) std::exit(2);
    std::exit(RunProgram(1, words, "Prints.", [] {
      std::printf("figures\n");
      return absl::OkStatus();
    }));
  };
  EXPECT_EXIT(end("/dev/full"), ::testing::ExitedWithCode(1), "cannot write all that was printed");
  EXPECT_EXIT(end("/dev/null"), ::testing::ExitedWithCode(0), "");
}

TEST(CommandLineTest, CountsArePowersOf1000) {
  const auto parsed = [](const char* text) -> int64_t {
    Count count = {-1};
    std::string error;
    return AbslParseFlag(text, &count, &error) ? count.value : -1;
  };
  EXPECT_EQ(parsed("0"), 0);
  EXPECT_EQ(parsed("7"), 7);
  EXPECT_EQ(parsed("7B"), 7'000'000'000);
  EXPECT_EQ(parsed("7b"), 7'000'000'000);
  EXPECT_EQ(parsed("1.3B"), 1'300'000'000);
  EXPECT_EQ(parsed("350M"), 350'000'000);
  EXPECT_EQ(parsed("16K"), 16'000);
  EXPECT_EQ(parsed("1T"), 1'000'000'000'000);
  EXPECT_EQ(parsed("7.5e9"), 7'500'000'000);
  EXPECT_EQ(parsed("0.1"), 0);
  for (const char* const text : {"", "B", "-1", "7BB", "7GB", "x", "nan", "inf", "1e30", "1e5T"}) {
    EXPECT_EQ(parsed(text), -1) << text;
  }
  Count count = {};
  std::string error;
  EXPECT_FALSE(AbslParseFlag("7GB", &count, &error));
  EXPECT_EQ(error, "it must be a number like 7000000000, 7e9, 7B, 1.3B, 350M, 16K or 1T");
  for (const int64_t value : {int64_t{0}, int64_t{999}, int64_t{1'234}, int64_t{1'300'000'000},
                              int64_t{7'500'000'000}, int64_t{175'000'000'000}}) {
    EXPECT_EQ(parsed(AbslUnparseFlag({value}).c_str()), value);
  }
  EXPECT_EQ(AbslUnparseFlag({7'500'000'000}), "7.5B");
}

}  // namespace
}  // namespace brigade::device
