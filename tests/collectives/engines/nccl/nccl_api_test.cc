// NCCL as it is found, or not, at run time; and its errors in our words.

#include "brigade/collectives/engines/nccl/api.h"

#include "brigade/collectives/engines/nccl/status.h"
#include "brigade/emulator/nccl/emulated_nccl.h"
#include "brigade/tests/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::collectives {
namespace {

using ::brigade::testing::StatusIs;
using emulator::EmulatedNccl;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr char kFolder[] = "tests/collectives/engines/nccl/";

TEST(NcclApiTest, WhatIsMissingIsNamed) {
  EXPECT_THAT(LoadNccl("libnccl_that_is_not.so.2"),
              StatusIs(absl::StatusCode::kUnavailable,
                       AllOf(HasSubstr("NCCL is not to be found: libnccl_that_is_not.so.2: "),
                             HasSubstr("No such file"))));
}

TEST(NcclApiTest, AVersionThatIsTooOldIsNamedBesideTheOldestThatIsNot) {
  EXPECT_THAT(
      LoadNccl(std::string(kFolder) + "libold_nccl.so"),
      StatusIs(
          absl::StatusCode::kUnavailable,
          "NCCL 2.18.5 at tests/collectives/engines/nccl/libold_nccl.so is older than 2.19.0"));
}

TEST(NcclApiTest, FunctionsThatAreMissingAreNamed) {
  EXPECT_THAT(LoadNccl(std::string(kFolder) + "libsmall_nccl.so"),
              StatusIs(absl::StatusCode::kUnavailable,
                       AllOf(HasSubstr("libsmall_nccl.so has no ncclGetErrorString, ncclGetLast"),
                             HasSubstr("ncclRecv"), ::testing::Not(HasSubstr("Revoke")))));
}

TEST(NcclStatusTest, EachErrorHasACodeAndItsName) {
  const NcclApi api = EmulatedNccl::Api();
  const auto status = [&](NcclResult result) {
    return NcclStatus(api, result, "ncclSend", nullptr);
  };
  using Code = absl::StatusCode;
  EXPECT_OK(status(NcclResult::kSuccess));
  EXPECT_THAT(
      status(NcclResult::kSystemError),
      StatusIs(Code::kUnavailable, "ncclSend: ncclSystemError (a fault of the test): said last"));
  EXPECT_THAT(status(NcclResult::kRemoteError),
              StatusIs(Code::kUnavailable, HasSubstr("ncclRemoteError")));
  EXPECT_THAT(status(NcclResult::kUnhandledCudaError),
              StatusIs(Code::kInternal, HasSubstr("ncclUnhandledCudaError")));
  EXPECT_THAT(status(NcclResult::kInternalError),
              StatusIs(Code::kInternal, HasSubstr("ncclInternalError")));
  EXPECT_THAT(status(NcclResult::kInvalidArgument),
              StatusIs(Code::kInvalidArgument, HasSubstr("ncclInvalidArgument")));
  EXPECT_THAT(status(NcclResult::kInvalidUsage),
              StatusIs(Code::kFailedPrecondition, HasSubstr("ncclInvalidUsage")));
  EXPECT_THAT(status(NcclResult::kInProgress),
              StatusIs(Code::kDeadlineExceeded, HasSubstr("ncclInProgress")));
  EXPECT_THAT(status(static_cast<NcclResult>(77)),
              StatusIs(Code::kInternal, HasSubstr("ncclSend: result 77 (")));
}

}  // namespace
}  // namespace brigade::collectives
