#include "brigade/benchmarks/collectives/sizes.h"

#include <cstdint>
#include <string>
#include <vector>

#include "absl/flags/parse.h"
#include "absl/flags/reflection.h"
#include "absl/status/status.h"
#include "brigade/tests/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::benchmarks {
namespace {

using ::brigade::testing::StatusIs;
using ::testing::ElementsAre;

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

// Of a program whose defaults are 8 bytes to 1 KiB, times 4.
class SizesTest : public ::testing::Test {
 protected:
  void Parse(std::vector<std::string> words) {
    words.insert(words.begin(), "program");
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    NcclTestsArguments arguments(static_cast<int>(argv.size()), argv.data());
    ASSERT_EQ(arguments.argv()[arguments.argc()], nullptr);
    SetDefaultSizes(8, 1024, 4);
    EXPECT_EQ(absl::ParseCommandLine(arguments.argc(), arguments.argv()).size(), 1u);
  }

 private:
  const absl::FlagSaver saver_;
};

TEST_F(SizesTest, HaveTheProgramsDefaults) {
  Parse({});
  ASSERT_OK_AND_ASSIGN(const std::vector<int64_t> sizes, SizesOfFlags());
  EXPECT_THAT(sizes, ElementsAre(8, 32, 128, 512));
  ASSERT_OK_AND_ASSIGN(const int iterations, IterationsOfFlags());
  EXPECT_EQ(iterations, 0);
}

TEST_F(SizesTest, TakesTheNamesOfNcclTestsInAllTheirSpellings) {
  const std::vector<std::vector<std::string>> spellings = {
      {"-b", "8", "-e", "1M", "-f", "128", "-n", "20"},
      {"-b8", "-e1M", "-f128", "-n20"},
      {"-b=8", "-e=1M", "-f=128", "-n=20"},
      {"--minbytes", "8", "--maxbytes", "1M", "--stepfactor", "128", "--iters", "20"},
      {"--minbytes=8", "--maxbytes=1M", "--stepfactor=128", "--iters=20"},
      {"--min_bytes=8", "--max_bytes=1M", "--factor=128", "--iterations=20"}};
  for (const auto& words : spellings) {
    Parse(words);
    ASSERT_OK_AND_ASSIGN(const std::vector<int64_t> sizes, SizesOfFlags());
    EXPECT_THAT(sizes, ElementsAre(8, 1024, 131072)) << words[0];
    ASSERT_OK_AND_ASSIGN(const int iterations, IterationsOfFlags());
    EXPECT_EQ(iterations, 20) << words[0];
  }
}

TEST_F(SizesTest, EndsAtTheLargestSizeWithoutOverflow) {
  Parse({"-b", "1", "-e", "1", "-f", "2"});
  ASSERT_OK_AND_ASSIGN(const std::vector<int64_t> one, SizesOfFlags());
  EXPECT_THAT(one, ElementsAre(1));
  Parse({"-b", "4T", "-e", "9223372036854775807", "-f", "4611686018427387904"});
  ASSERT_OK_AND_ASSIGN(const std::vector<int64_t> large, SizesOfFlags());
  EXPECT_THAT(large, ElementsAre(int64_t{4} << 40));
}

TEST_F(SizesTest, RefusesSizesThatNeverEndAndNone) {
  Parse({"-f", "1"});
  EXPECT_THAT(SizesOfFlags().status(), StatusIs(kInvalid, "--factor is 1; it must be 2 or more"));
  Parse({"-f", "2", "-b", "1K", "-e", "8"});
  EXPECT_THAT(SizesOfFlags().status(),
              StatusIs(kInvalid, "--min_bytes is 1024, more than --max_bytes, 8"));
  Parse({"-n", "-1"});
  EXPECT_THAT(IterationsOfFlags().status(),
              StatusIs(kInvalid, "--iterations is -1; it must be 0 or more"));
}

}  // namespace
}  // namespace brigade::benchmarks
