#include "brigade/collectives/bootstrap/job.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <map>
#include <string>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "brigade/tests/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::collectives {
namespace {

using ::brigade::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

const std::string& Hex() {
  static const auto& hex = *new std::string(std::string(63, '0') + "1");
  return hex;
}

std::string WriteFile(const std::string& name, const std::string& text, mode_t mode) {
  const std::string path = absl::StrCat(std::getenv("TEST_TMPDIR"), "/", name);
  std::ofstream(path) << text;
  chmod(path.c_str(), mode);
  return path;
}

TEST(JobSecretTest, ComesFromHexadecimalDigitsAndIsNotRepeatedInErrors) {
  const JobSecret secret = JobSecret::FromHex(absl::StrCat(" ", Hex(), "\n")).value();
  EXPECT_EQ(secret.ToHex(), Hex());
  EXPECT_NE(JobSecret::Random(), JobSecret::Random());
  for (const std::string& wrong :
       {std::string(), std::string(63, 'a'), std::string(65, 'a'), std::string(64, 'g'),
        std::string(32, 'a') + std::string(1, '\0') + std::string(31, 'a')}) {
    EXPECT_THAT(
        JobSecret::FromHex(wrong).status(),
        StatusIs(absl::StatusCode::kInvalidArgument, "not a secret of 64 hexadecimal digits"));
  }
}

TEST(JobSecretTest, IsReadFromAFileThatOnlyItsUserCanRead) {
  EXPECT_EQ(JobSecret::FromFile(WriteFile("good", Hex() + "\n", 0600)).value().ToHex(), Hex());
  const auto expect = [](const std::string& path, absl::StatusCode code, const char* why) {
    EXPECT_THAT(JobSecret::FromFile(path).status(),
                StatusIs(code, AllOf(HasSubstr(path), HasSubstr(why))));
  };
  const auto kWrong = absl::StatusCode::kFailedPrecondition;
  expect(WriteFile("open", Hex(), 0640), kWrong, "its mode must be 0600");
  expect(WriteFile("short", "12", 0600), absl::StatusCode::kInvalidArgument, "not a secret");
  const std::string folder = std::getenv("TEST_TMPDIR");
  expect(folder, kWrong, "not a regular file");
  expect(folder + "/missing", absl::StatusCode::kNotFound, "No such file");
  const std::string link = folder + "/link", fifo = folder + "/fifo";
  ASSERT_EQ(symlink((folder + "/good").c_str(), link.c_str()), 0);
  expect(link, kWrong, "symbolic link");
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  expect(fifo, kWrong, "not a regular file");
  expect("/dev/zero", kWrong, "not a regular file");
}

TEST(JobSecretTest, IsTakenFromTheEnvironment) {
  std::map<std::string, std::string> variables;
  const EnvironmentGetter get = [&](const char* name) {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  };
  EXPECT_FALSE(JobSecret::FromEnvironment(get).value().has_value());
  variables["BRIGADE_JOB_SECRET"] = Hex();
  EXPECT_EQ(JobSecret::FromEnvironment(get).value()->ToHex(), Hex());
  variables["BRIGADE_JOB_SECRET"] = "password";
  EXPECT_THAT(JobSecret::FromEnvironment(get).status(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(StartsWith("BRIGADE_JOB_SECRET: "), Not(HasSubstr("password")))));
  variables["BRIGADE_JOB_SECRET_FILE"] = WriteFile("of environment", Hex(), 0600);
  EXPECT_THAT(JobSecret::FromEnvironment(get).status(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("both set")));
  variables.erase("BRIGADE_JOB_SECRET");
  EXPECT_EQ(JobSecret::FromEnvironment(get).value()->ToHex(), Hex());
}

// With the key of RFC 4231, case 1: zeros behind a key change nothing in HMAC.
TEST(JobSecretTest, SignsAsHmacSha256) {
  const JobSecret key =
      JobSecret::FromHex("0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b000000000000000000000000")
          .value();
  // Of the packed list "8:Hi There", by another implementation (Python's hmac).
  EXPECT_EQ(absl::BytesToHexString(key.Sign({"Hi There"})),
            "81182aa010c3396205222646065346ea715849c82bf430c07d288a5e875a5777");
  const std::string signature = key.Sign({"a", "b"});
  EXPECT_TRUE(key.IsSignatureOf(signature, {"a", "b"}));
  EXPECT_FALSE(key.IsSignatureOf(signature, {"ab"}));
  EXPECT_FALSE(key.IsSignatureOf(signature, {"ab", ""}));
  EXPECT_FALSE(key.IsSignatureOf(signature.substr(0, 31), {"a", "b"}));
  EXPECT_FALSE(key.IsSignatureOf("", {"a", "b"}));
  EXPECT_FALSE(JobSecret::Random().IsSignatureOf(signature, {"a", "b"}));
}

TEST(JobValuesTest, DifferencesAreNamed) {
  const JobValues own = {{"seed", "7"}, {"data", "a"}};
  EXPECT_EQ(Differences(own, own), "");
  EXPECT_EQ(Differences({{"data", "a"}, {"seed", "7"}}, own), "");
  EXPECT_EQ(Differences({{"seed", "8"}, {"steps", "1"}}, own),
            "data is not given, here it is a; seed is 8, not 7; steps is 1, not given here");
  for (const JobValues& values : {own, JobValues()}) {
    EXPECT_EQ(UnpackValues(PackValues(values)).value(), values);
  }
  EXPECT_FALSE(UnpackValues("").ok());
  EXPECT_FALSE(UnpackValues("6:values1:a").ok());
}

TEST(JobValuesTest, ADigestTellsDataApart) {
  EXPECT_EQ(DigestOf("").size(), 16u);
  EXPECT_EQ(DigestOf("a"), DigestOf("a"));
  EXPECT_NE(DigestOf("a"), DigestOf("b"));
}

TEST(JobIdentityTest, ASecretThatWasGivenOrALaunchersNameTellsTheJob) {
  JobIdentity job;
  EXPECT_FALSE(AreOfOneJob(job, ""));
  job.secret = JobSecret::Random();
  EXPECT_TRUE(AreOfOneJob(job, ""));
  job.name = "slurm 1.0";
  EXPECT_FALSE(AreOfOneJob(job, "slurm 2.0"));
  EXPECT_TRUE(AreOfOneJob(job, "slurm 1.0"));
  // One that was started by hand, beside those of a launcher.
  EXPECT_TRUE(AreOfOneJob(job, ""));
  job.secret.reset();
  EXPECT_FALSE(AreOfOneJob(job, ""));
}

}  // namespace
}  // namespace brigade::collectives
