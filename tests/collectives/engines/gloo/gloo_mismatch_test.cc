// Calls that differ between processes.

#include <functional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "brigade/device/status_macros.h"
#include "brigade/tests/collectives/engines/gloo/gloo_ranks.h"
#include "brigade/tests/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::collectives::testing {
namespace {

using ::brigade::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;

const char* const kAllReduce64 = "all_reduce(sum of 64 float32, direct)";

// Calls that differ: all ranks name both, no process dies, and the communicator has ended.
using OddCall = std::function<absl::Status(Rank& self, Arrays& arrays, bool odd)>;
void ExpectMismatch(const OddCall& call, const std::string& usual, const std::string& different) {
  for (const int odd : {1, 0}) {
    const auto reports = OnProcesses(3, kNever, [&](Rank& self, Arrays& arrays, Fault& fault) {
      BRIGADE_RETURN_IF_ERROR(AddOnes(*self.communicator, self, arrays, 128));
      fault.Begin();
      const auto own = static_cast<float>(10 + self.rank);
      arrays.input.assign(128, own);
      absl::Status status = call(self, arrays, self.rank == odd);
      if (status.ok()) status = self.stream->Synchronize();
      // A call may end on a rank that has no message for the odd one; then the group ends after it.
      while (self.communicator->status().ok()) absl::SleepFor(absl::Milliseconds(1));
      if (status.ok()) status = self.communicator->status();
      for (const float value : arrays.output) {
        if (value != 3.0f && value != own) return Wrong("payload of another call was written");
      }
      status = Ended(self, status);
      BRIGADE_RETURN_IF_ERROR(self.stream->Reset());
      if (self.communicator->Barrier(*self.stream) != status) return Wrong("another error");
      // They agree who is there, so they can go on.
      auto again = self.communicator->Shrink({});
      if (!again.ok()) return again.status();
      BRIGADE_RETURN_IF_ERROR(AddOnes(**again, self, arrays, 64));
      BRIGADE_RETURN_IF_ERROR((*again)->Barrier(*self.stream));
      BRIGADE_RETURN_IF_ERROR(self.stream->Synchronize());
      return status;
    });
    ExpectReports(reports, -1,
                  StatusIs(absl::StatusCode::kInvalidArgument,
                           AllOf(HasSubstr(absl::StrCat("rank ", 1 - odd, " calls ", usual)),
                                 HasSubstr(absl::StrCat("rank ", odd, " calls ", different)),
                                 HasSubstr("as its call 1"))));
  }
}

absl::Status AllReduce(Rank& self, Arrays& arrays, int64_t count,
                       precision::DType dtype = precision::DType::kFloat32) {
  return self.communicator->AllReduce(arrays.input.data(), arrays.output.data(), count, dtype, {},
                                      *self.stream);
}

TEST(GlooMismatchTest, CountsThatDiffer) {
  ExpectMismatch(
      [](Rank& self, Arrays& arrays, bool odd) { return AllReduce(self, arrays, odd ? 65 : 64); },
      kAllReduce64, "all_reduce(sum of 65 float32, direct)");
}

TEST(GlooMismatchTest, TypesThatDiffer) {
  ExpectMismatch(
      [](Rank& self, Arrays& arrays, bool odd) {
        return AllReduce(self, arrays, 64,
                         odd ? precision::DType::kInt32 : precision::DType::kFloat32);
      },
      kAllReduce64, "all_reduce(sum of 64 int32, direct)");
}

TEST(GlooMismatchTest, RootsThatDiffer) {
  ExpectMismatch(
      [](Rank& self, Arrays& arrays, bool odd) {
        return self.communicator->Broadcast(arrays.input.data(), arrays.output.data(), 8, kFloat32,
                                            odd ? 1 : 0, *self.stream);
      },
      "broadcast(8 float32, from rank 0)", "broadcast(8 float32, from rank 1)");
}

TEST(GlooMismatchTest, OrdersThatDiffer) {
  ExpectMismatch(
      [](Rank& self, Arrays& arrays, bool odd) {
        BRIGADE_RETURN_IF_ERROR(odd ? self.communicator->Barrier(*self.stream)
                                    : AllReduce(self, arrays, 64));
        return odd ? AllReduce(self, arrays, 64) : self.communicator->Barrier(*self.stream);
      },
      kAllReduce64, "barrier()");
}

TEST(GlooMismatchTest, ASendThatOthersDoNotKnowOf) {
  const auto reports = OnProcesses(3, kNever, [&](Rank& self, Arrays& arrays, Fault& fault) {
    BRIGADE_RETURN_IF_ERROR(AddOnes(*self.communicator, self, arrays, 64));
    fault.Begin();
    if (self.rank != 1) return AddOnesUntilItEnds(self, arrays, 64);
    BRIGADE_RETURN_IF_ERROR(
        self.communicator->Send(arrays.input.data(), 4, kFloat32, 2, *self.stream));
    return self.stream->Synchronize();
  });
  ExpectReports(reports, -1,
                StatusIs(absl::StatusCode::kInvalidArgument,
                         AllOf(HasSubstr("rank 1 calls send(4 float32, from rank 1) as its call 0"),
                               HasSubstr(absl::StrCat("calls ", kAllReduce64, " as its call 1")))));
}

TEST(GlooMismatchTest, ASplitThatOthersDoNotKnowOf) {
  const auto reports = OnProcesses(3, kNever, [&](Rank& self, Arrays& arrays, Fault& fault) {
    BRIGADE_RETURN_IF_ERROR(AddOnes(*self.communicator, self, arrays, 64));
    fault.Begin();
    if (self.rank != 1) return AddOnesUntilItEnds(self, arrays, 64);
    return self.communicator->Split(0, 0).status();
  });
  ExpectReports(reports, -1,
                StatusIs(absl::StatusCode::kInvalidArgument,
                         AllOf(HasSubstr("rank 1 calls split"),
                               HasSubstr(absl::StrCat("rank 0 calls ", kAllReduce64)))));
}

}  // namespace
}  // namespace brigade::collectives::testing
