// A kernel that forbids io_uring, as those of many containers do: by a filter of system calls, in a
// process of its own.

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <string>
#include <utility>

#include "brigade/device/file/engines.h"
#include "brigade/tests/device/file/store_fixture.h"
#include "brigade/tests/testing/sanitizer.h"
#include "gmock/gmock.h"

namespace brigade::device {
namespace {

using ::brigade::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;

// From here on the call fails for this process, in all its threads.
bool Forbid(unsigned call, unsigned error) {
  sock_filter filter[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog program = {4, filter};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         syscall(__NR_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program) == 0;
}

class IoUringForbiddenTest : public ::testing::TestWithParam<std::pair<unsigned, unsigned>> {
 protected:
  void SetUp() override {
    if (brigade::testing::kSanitizer) GTEST_SKIP() << "it follows no fork";
    if (!internal::ChooseEngine(FileEngineKind::kIoUring).ok()) GTEST_SKIP() << "no io_uring";
  }
};
INSTANTIATE_TEST_SUITE_P(Calls, IoUringForbiddenTest,
                         ::testing::Values(std::pair(__NR_io_uring_setup, EPERM),
                                           std::pair(__NR_io_uring_setup, ENOSYS),
                                           std::pair(__NR_io_uring_enter, EPERM)));

TEST_P(IoUringForbiddenTest, AutoTakesThreadsAndSaysWhy) {
  TestDirectory directory;
  const int result = InAnotherProcess([&] {
    const auto [call, error] = GetParam();
    if (!Forbid(call, error)) return false;
    const std::string why =
        absl::StrCat(call == __NR_io_uring_setup ? "io_uring_setup: " : "io_uring_enter: ",
                     error == EPERM ? "Operation not permitted" : "Function not implemented");
    FileOptions options;
    options.directory = directory.path();
    auto context = CreateContext(CpuOptions());
    auto stream = context->CreateStream("files").value();
    const auto store = FileStore::Create(options, "state", {100'000});
    EXPECT_OK(store);
    EXPECT_EQ((*store)->engine(), FileEngineKind::kThreads);
    EXPECT_THAT((*store)->description(), HasSubstr("threads (no io_uring: " + why + ")"));
    std::vector<char> bytes = Bytes(100'000, 1), read(100'000);
    EXPECT_OK((*store)->Write(*stream, 0, bytes));
    EXPECT_OK((*store)->Commit(*stream));
    EXPECT_OK((*store)->Read(*stream, 0, absl::MakeSpan(read)));
    EXPECT_OK(stream->Synchronize());
    EXPECT_EQ(bytes, read);

    options.engine = FileEngineKind::kIoUring;
    EXPECT_THAT(FileStore::Create(options, "other", {1}),
                StatusIs(absl::StatusCode::kUnavailable, HasSubstr(why)));
    return true;
  });
  if (result == kNotPermitted) GTEST_SKIP() << "no filter";
  EXPECT_EQ(result, 0);
}

// What was permitted at Create and is no more: no request hangs.
TEST_F(IoUringForbiddenTest, ForbiddenLaterIsAnErrorOfTheStream) {
  TestDirectory directory;
  const int result = InAnotherProcess([&] {
    FileOptions options;
    options.directory = directory.path();
    options.engine = FileEngineKind::kIoUring;
    options.block_bytes = 4096;
    auto context = CreateContext(CpuOptions());
    auto stream = context->CreateStream("files").value();
    const auto store = FileStore::Create(options, "state", {100'000}).value();
    const std::vector<char> bytes = Bytes(100'000, 1);
    EXPECT_OK(store->Write(*stream, 0, bytes));
    EXPECT_OK(stream->Synchronize());
    if (!Forbid(__NR_io_uring_enter, EPERM)) return false;
    EXPECT_OK(store->Write(*stream, 0, bytes));
    EXPECT_THAT(stream->Synchronize(), StatusIs(absl::StatusCode::kPermissionDenied,
                                                HasSubstr("Operation not permitted")));
    return true;
  });
  if (result == kNotPermitted) GTEST_SKIP() << "no filter";
  EXPECT_EQ(result, 0);
}

TEST_F(IoUringForbiddenTest, AutoTakesItWhereItWorks) {
  const auto chosen = internal::ChooseEngine(FileEngineKind::kAuto).value();
  EXPECT_EQ(chosen.kind, FileEngineKind::kIoUring);
}

}  // namespace
}  // namespace brigade::device
