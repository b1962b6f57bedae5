// What the README shows of a model of one's own is the header that own_model_test trains.

#include <algorithm>
#include <fstream>
#include <iterator>
#include <string>

#include "absl/strings/match.h"
#include "gtest/gtest.h"

namespace brigade {
namespace {

std::string Read(const char* path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(OwnModelTest, IsWhatTheReadmeShows) {
  const std::string readme = Read("nn/README.md"), header = Read("tests/nn/own_model.h");
  const size_t begin = readme.find("```cpp\n"), end = readme.find("```", begin + 1);
  ASSERT_NE(end, std::string::npos);
  const std::string shown = readme.substr(begin + 7, end - begin - 7);
  EXPECT_TRUE(absl::StrContains(
      header, "nn/README.md shows what follows.\n\n" + shown + "\n}  // namespace brigade"));
  EXPECT_LE(std::count(shown.begin(), shown.end(), '\n'), 60);
}

}  // namespace
}  // namespace brigade
