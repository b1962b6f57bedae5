#include "brigade/collectives/bootstrap/error_file.h"

#include <sys/stat.h>

#include <string>

#include "absl/strings/numbers.h"
#include "absl/time/clock.h"
#include "brigade/device/files.h"
#include "brigade/tests/testing/status_matchers.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace brigade::collectives {
namespace {

using ::brigade::testing::StatusIs;
using ::testing::HasSubstr;

EnvironmentGetter File(const char* path) {
  return [path](const char* name) {
    return std::string(name) == "TORCHELASTIC_ERROR_FILE" ? path : nullptr;
  };
}

TEST(ErrorFileTest, HoldsTheMessageAndTheTime) {
  const std::string path = ::testing::TempDir() + "/error.json";
  const int64_t before = absl::ToUnixSeconds(absl::Now());
  // A name that is no UTF-8.
  EXPECT_OK(WriteErrorFile(absl::NotFoundError("no \"text\xff\"\n"), File(path.c_str())));
  const auto content = nlohmann::json::parse(device::ReadFile(path).value());
  EXPECT_EQ(content["message"]["message"], "NOT_FOUND: no \"text\xef\xbf\xbd\"\n");
  int64_t seconds = 0;
  EXPECT_TRUE(
      absl::SimpleAtoi(content["message"]["extraInfo"]["timestamp"].get<std::string>(), &seconds));
  EXPECT_GE(seconds, before);
  EXPECT_LE(seconds, absl::ToUnixSeconds(absl::Now()));
}

TEST(ErrorFileTest, IsNotWrittenWithoutANameOrWhereNoneCanBe) {
  EXPECT_OK(WriteErrorFile(absl::NotFoundError("a"), File(nullptr)));
  EXPECT_OK(WriteErrorFile(absl::NotFoundError("a"), File("")));
  const std::string pipe = ::testing::TempDir() + "/pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_THAT(WriteErrorFile(absl::NotFoundError("a"), File(pipe.c_str())),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(pipe)));
}

}  // namespace
}  // namespace brigade::collectives
