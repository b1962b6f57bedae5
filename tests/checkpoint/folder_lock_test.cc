#include "brigade/checkpoint/folder_lock.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "brigade/device/file/system_calls.h"
#include "brigade/tests/checkpoint/crash_file_system.h"
#include "brigade/tests/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::checkpoint {
namespace {

using ::brigade::testing::StatusIs;
using testing::CrashFileSystem;
using ::testing::HasSubstr;

constexpr auto kPrecondition = absl::StatusCode::kFailedPrecondition;
constexpr char kOne[] = "0123456789abcdef", kOther[] = "fedcba9876543210";

std::string NewFolder(const std::string& name) {
  const std::string folder = ::testing::TempDir() + "/" + name;
  EXPECT_EQ(device::SystemCalls::Real().MakeFolder(folder, 0777), 0);
  return folder;
}

TEST(FolderLockTest, RanksOfOneTrainingHaveItAndNoOtherTrainingDoes) {
  device::SystemCalls& system = device::SystemCalls::Real();
  const std::string folder = NewFolder("shared"), another = NewFolder("another");
  auto first = FolderLock::Take(system, folder, kOne);
  ASSERT_OK(first);
  {
    auto second = FolderLock::Take(system, folder, kOne);
    ASSERT_OK(second);
    std::optional<FolderLock> moved(*std::move(second));
  }
  EXPECT_THAT(FolderLock::Take(system, folder, kOther).status(),
              StatusIs(kPrecondition, "another training saves to " + folder));
  EXPECT_OK(FolderLock::Take(system, another, kOther));
  // What the first one has written is no sign of it once it is gone.
  std::optional<FolderLock> moved(*std::move(first));
  moved.reset();
  EXPECT_OK(FolderLock::Take(system, folder, kOther));
}

// Who comes next waits for its end.
TEST(FolderLockTest, AKilledProcessHasItNoLonger) {
  device::SystemCalls& system = device::SystemCalls::Real();
  const std::string folder = NewFolder("killed");
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t child = fork();
  if (child == 0) {
    const auto lock = FolderLock::Take(system, folder, kOne);
    const char is_taken = lock.ok() ? 1 : 0;
    if (write(ready[1], &is_taken, 1) != 1) _exit(1);
    while (true) pause();
  }
  char is_taken = 0;
  ASSERT_EQ(read(ready[0], &is_taken, 1), 1);
  EXPECT_EQ(is_taken, 1);
  std::thread kills([&] {
    absl::SleepFor(absl::Milliseconds(200));
    EXPECT_EQ(kill(child, SIGKILL), 0);
  });
  const absl::Time begin = absl::Now();
  EXPECT_OK(FolderLock::Take(system, folder, kOther));
  EXPECT_GE(absl::Now() - begin, absl::Milliseconds(150));
  kills.join();
  EXPECT_EQ(waitpid(child, nullptr, 0), child);
  close(ready[0]);
  close(ready[1]);
}

TEST(FolderLockTest, AFileSystemWithoutLocksIsNoError) {
  for (const int error : {ENOLCK, EOPNOTSUPP}) {
    CrashFileSystem system;
    ASSERT_EQ(system.MakeFolder("/f", 0777), 0);
    system.set_fault(
        [&](const std::string& call, const std::string&) { return call == "lock" ? error : 0; });
    const auto one = FolderLock::Take(system, "/f", kOne);
    EXPECT_OK(one);
    EXPECT_OK(FolderLock::Take(system, "/f", kOther));
    EXPECT_EQ(system.open_files(), 0);
  }
}

TEST(FolderLockTest, ErrorsNameTheFile) {
  for (const std::string fails : {"open", "write"}) {
    CrashFileSystem system;
    ASSERT_EQ(system.MakeFolder("/f", 0777), 0);
    system.set_fault(
        [&](const std::string& call, const std::string&) { return call == fails ? EACCES : 0; });
    EXPECT_THAT(
        FolderLock::Take(system, "/f", kOne).status(),
        StatusIs(absl::StatusCode::kPermissionDenied, HasSubstr("cannot " + fails + " /f/.lock")));
    EXPECT_EQ(system.open_files(), 0);
  }
}

}  // namespace
}  // namespace brigade::checkpoint
