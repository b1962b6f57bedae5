// Memory and descriptors that a rank has after many groups and many strangers are those that it had
// after few.

#include <malloc.h>

#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "brigade/device/status_macros.h"
#include "brigade/device/threads/steady_time.h"
#include "brigade/tests/collectives/bootstrap/attackers.h"
#include "brigade/tests/collectives/engines/gloo/gloo_ranks.h"
#include "brigade/tests/testing/status_matchers.h"
#include "gtest/gtest.h"

namespace brigade::collectives::testing {
namespace {

using ::brigade::device::SteadyTime;

constexpr int kRanks = 3;
// What allocators and threads keep for later differs from one time to the next.
constexpr int64_t kSlackBytes = 64 << 10;

struct Resources {
  int descriptors = 0;
  int64_t bytes = 0;

  static Resources Now() {
    const struct mallinfo2 info = mallinfo2();
    return {OpenDescriptors(), static_cast<int64_t>(info.uordblks + info.hblkhd)};
  }
};

absl::Status ExpectSame(int rank, const Resources& before, const Resources& after) {
  std::printf("rank %d: %d and %d descriptors, %.0f and %.0f KiB\n", rank, before.descriptors,
              after.descriptors, static_cast<double>(before.bytes) / 1024,
              static_cast<double>(after.bytes) / 1024);
  if (after.descriptors == before.descriptors && after.bytes <= before.bytes + kSlackBytes) {
    return absl::OkStatus();
  }
  return absl::InternalError(absl::StrCat(before.descriptors, " descriptors and ", before.bytes,
                                          " bytes became ", after.descriptors, " and ",
                                          after.bytes));
}

absl::Status SplitAndAdd(Rank& self, Arrays& arrays, int times) {
  for (int i = 0; i < times; ++i) {
    BRIGADE_ASSIGN_OR_RETURN(auto group, self.communicator->Split(0, i % 2 == 0 ? 0 : -self.rank));
    BRIGADE_RETURN_IF_ERROR(AddOnes(*group, self, arrays, 10));
    BRIGADE_RETURN_IF_ERROR(group->Barrier(*self.stream));
    BRIGADE_RETURN_IF_ERROR(self.stream->Synchronize());
  }
  // What goes away does so at its own pace on each rank.
  BRIGADE_RETURN_IF_ERROR(self.communicator->Barrier(*self.stream));
  return self.stream->Synchronize();
}

TEST(SteadyResourcesTest, FiveHundredSplitsLeaveNothing) {
  const auto reports =
      OnProcesses(kRanks, kNever, [&](Rank& self, Arrays& arrays, Fault&) -> absl::Status {
        BRIGADE_RETURN_IF_ERROR(SplitAndAdd(self, arrays, 50));
        const Resources before = Resources::Now();
        BRIGADE_RETURN_IF_ERROR(SplitAndAdd(self, arrays, 500));
        return ExpectSame(self.rank, before, Resources::Now());
      });
  ExpectAllOk(reports);
}

// So many strangers at the store of rank 0, and at the standbys: they say nothing, too much or half
// of something.
absl::Status Besiege(const std::vector<OpenPort>& ports, int times) {
  for (int i = 0; i < times; i += 100) {
    Strangers strangers;
    for (int j = 0; j < 100; ++j) {
      const std::string all[] = {"", RandomBytes(1000), Frame("half", 200)};
      const size_t at = static_cast<size_t>(j);
      BRIGADE_RETURN_IF_ERROR(strangers.Send(ports[at % ports.size()].port,
                                             std::make_shared<const std::string>(all[at % 3])));
    }
    strangers.Work(absl::Milliseconds(20));
  }
  return absl::OkStatus();
}

// Those that have hung up are noticed at once.
absl::Status AwaitTheirEnd(int descriptors) {
  const SteadyTime deadline = SteadyTime::Now() + absl::Seconds(30);
  while (OpenDescriptors() > descriptors) {
    if (SteadyTime::Now() > deadline) return Wrong(absl::StrCat(OpenDescriptors(), " descriptors"));
    absl::SleepFor(absl::Milliseconds(1));
  }
  return absl::OkStatus();
}

TEST(SteadyResourcesTest, TwoThousandStrangersLeaveNothing) {
  const auto reports =
      OnProcesses(kRanks, kNever, [&](Rank& self, Arrays& arrays, Fault& fault) -> absl::Status {
        const std::vector<OpenPort> ports = OpenPortsOf(getpid());
        if (ports.size() != 1) return Wrong(absl::StrCat(ports.size(), " open ports"));
        BRIGADE_RETURN_IF_ERROR(AddOnes(*self.communicator, self, arrays, 10));
        const int descriptors = OpenDescriptors();
        BRIGADE_RETURN_IF_ERROR(Besiege(ports, 200));
        BRIGADE_RETURN_IF_ERROR(AwaitTheirEnd(descriptors));
        fault.AwaitAll();
        const Resources before = Resources::Now();
        BRIGADE_RETURN_IF_ERROR(Besiege(ports, 2000));
        BRIGADE_RETURN_IF_ERROR(AwaitTheirEnd(descriptors));
        fault.AwaitAll();
        return ExpectSame(self.rank, before, Resources::Now());
      });
  ExpectAllOk(reports);
}

}  // namespace
}  // namespace brigade::collectives::testing
