// A disk that is full in truth: a small file system in memory, which a process mounts for itself.

#include <sched.h>
#include <sys/mount.h>
#include <unistd.h>

#include <vector>

#include "brigade/device/file/file_store.h"
#include "brigade/tests/device/file/store_fixture.h"
#include "brigade/tests/testing/sanitizer.h"
#include "gmock/gmock.h"

namespace brigade::device {
namespace {

using ::brigade::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int64_t kDiskBytes = 1 << 20;

class FullDiskTest : public FileStoreTest {
 protected:
  // Runs the body in a process that has such a disk in the test's directory.
  void OnSmallDisk(const std::function<void()>& body) {
    if (brigade::testing::kSanitizer) GTEST_SKIP() << "it follows no fork";
    const int result = InAnotherProcess([&] {
      // A process with one thread may; root may in any case.
      if (unshare(CLONE_NEWNS) != 0 && unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) return false;
      if (mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) return false;
      if (mount("disk", directory_.path().c_str(), "tmpfs", 0, "size=1m") != 0) return false;
      body();
      return true;
    });
    if (result == kNotPermitted) GTEST_SKIP() << "no file system may be mounted";
    EXPECT_EQ(result, 0);
  }
};
BRIGADE_FILE_STORE_TESTS(FullDiskTest);

TEST_P(FullDiskTest, CreateTakesAllTheRoomOrNone) {
  OnSmallDisk([&] {
    EXPECT_THAT(FileStore::Create(options_, "large", {kDiskBytes}),
                StatusIs(absl::StatusCode::kResourceExhausted,
                         AllOf(HasSubstr("cannot take 2105344 bytes for two slots of each of 1 "
                                         "chunks, which have 1048576 bytes, in " +
                                         directory_.path() + "/large, where 1048576 are free"),
                               HasSubstr("No space left on device"))));
    EXPECT_TRUE(std::filesystem::is_empty(directory_.path()));
    const std::vector<int64_t> sizes = {kDiskBytes / 2 - 4096};
    auto context = CreateContext(CpuOptions());
    auto stream = context->CreateStream("files").value();
    const std::vector<char> bytes = Bytes(sizes[0], 1);
    // What has its room needs no more.
    const auto store = FileStore::Create(options_, "state", sizes);
    EXPECT_OK(store);
    for (int i = 0; i < 4; ++i) {
      EXPECT_OK((*store)->Write(*stream, 0, bytes));
      EXPECT_OK((*store)->Commit(*stream));
    }
    EXPECT_OK(stream->Synchronize());
    EXPECT_THAT(FileStore::Create(options_, "more", {1}),
                StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("where 0 are free")));
  });
}

}  // namespace
}  // namespace brigade::device
