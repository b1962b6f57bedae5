// What holds for ranks that are processes when all goes well.

#include <vector>

#include "absl/strings/str_cat.h"
#include "brigade/device/status_macros.h"
#include "brigade/tests/collectives/engines/gloo/gloo_ranks.h"
#include "brigade/tests/testing/status_matchers.h"
#include "gtest/gtest.h"

namespace brigade::collectives::testing {
namespace {

constexpr int64_t kCount = 300'000;  // floats: several chunks

TEST(GlooProcessesTest, SplitMakesGroupsOfTheirOwn) {
  const auto reports = OnProcesses(4, kNever, [&](Rank& self, Arrays& arrays, Fault&) {
    // 0 and 2 in the order 2, 0; 1 and 3 likewise.
    auto half = self.communicator->Split(self.rank % 2, -self.rank);
    if (!half.ok()) return half.status();
    if ((*half)->size() != 2 || (*half)->rank() != 1 - self.rank / 2) return Wrong("half");
    float mine = static_cast<float>(self.rank), all[2] = {-1, -1};
    BRIGADE_RETURN_IF_ERROR((*half)->AllGather(&mine, all, 1, kFloat32, {}, *self.stream));
    BRIGADE_RETURN_IF_ERROR(self.stream->Synchronize());
    if (all[0] != 2 + self.rank % 2 || all[1] != self.rank % 2) return Wrong("all_gather");
    BRIGADE_RETURN_IF_ERROR(AddOnes(**half, self, arrays, kCount));
    BRIGADE_RETURN_IF_ERROR(AddOnes(*self.communicator, self, arrays, 1001));
    auto alone = (*half)->Split((*half)->rank() == 0 ? 5 : -1, 0);
    if (!alone.ok()) return alone.status();
    if ((*alone == nullptr) != ((*half)->rank() != 0)) return Wrong("a color of its own");
    if (*alone != nullptr) BRIGADE_RETURN_IF_ERROR(AddOnes(**alone, self, arrays, 100));
    auto again = self.communicator->Split(0, self.rank);
    if (!again.ok()) return again.status();
    BRIGADE_RETURN_IF_ERROR(AddOnes(**again, self, arrays, 100));
    // The end of a part is not the end of the whole.
    if (self.rank == 1) (*half)->Abort(absl::CancelledError("enough of halves"));
    if (self.rank == 3) {
      while ((*half)->status().ok()) absl::SleepFor(absl::Milliseconds(1));
    }
    BRIGADE_RETURN_IF_ERROR(AddOnes(*self.communicator, self, arrays, 100));
    BRIGADE_RETURN_IF_ERROR(self.communicator->Barrier(*self.stream));
    return self.stream->Synchronize();
  });
  ExpectAllOk(reports);
}

// Rank 0 lives and serves the store, and the others go on without it.
TEST(GlooProcessesTest, ALivingRankThatIsDroppedHearsOfIt) {
  const auto reports = OnProcesses(3, kNever, [&](Rank& self, Arrays& arrays, Fault&) {
    if (self.rank == 0) {
      while (self.communicator->status().ok()) absl::SleepFor(absl::Milliseconds(1));
      const absl::Status status = self.communicator->status();
      const bool names_it = absl::StrContains(status.message(), "calls shrink()") &&
                            absl::StrContains(status.message(), "without rank 0");
      return absl::IsAborted(status) && names_it ? absl::OkStatus() : status;
    }
    auto shrunk = self.communicator->Shrink({0});
    if (!shrunk.ok()) return shrunk.status();
    BRIGADE_RETURN_IF_ERROR(AddOnes(**shrunk, self, arrays, kCount));
    BRIGADE_RETURN_IF_ERROR((*shrunk)->Barrier(*self.stream));
    return self.stream->Synchronize();
  });
  ExpectAllOk(reports);
}

// A part that failed goes on with all of its ranks, then in parts of its own, and the whole knows
// nothing of it.
TEST(GlooProcessesTest, APartThatIsRebuiltLeavesTheWholeAlone) {
  const auto reports = OnProcesses(4, kNever, [&](Rank& self, Arrays& arrays, Fault&) {
    auto half = self.communicator->Split(self.rank % 2, 0);
    if (!half.ok()) return half.status();
    if (self.rank % 2 == 1) {
      (*half)->Abort(absl::CancelledError("over"));
      auto again = (*half)->Shrink({});
      if (!again.ok()) return again.status();
      BRIGADE_RETURN_IF_ERROR(AddOnes(**again, self, arrays, 10));
      BRIGADE_RETURN_IF_ERROR((*again)->Barrier(*self.stream));
      auto alone = (*again)->Split(self.rank, 0);
      if (!alone.ok()) return alone.status();
      BRIGADE_RETURN_IF_ERROR(AddOnes(**alone, self, arrays, 10));
    }
    auto all = self.communicator->Split(0, 0);
    if (!all.ok()) return all.status();
    BRIGADE_RETURN_IF_ERROR(AddOnes(**all, self, arrays, 10));
    BRIGADE_RETURN_IF_ERROR((*all)->Barrier(*self.stream));
    return self.stream->Synchronize();
  });
  ExpectAllOk(reports);
}

TEST(GlooProcessesTest, SentBytesEqualTheFormula) {
  for (const int size : {2, 3, 4}) {
    const auto reports = OnProcesses(size, kNever, [&](Rank& self, Arrays& arrays, Fault&) {
      const int64_t count = 64 * size * 1000;
      int64_t before = 0;
      for (const Algorithm algorithm : {Algorithm::kDirect, Algorithm::kRing}) {
        BRIGADE_RETURN_IF_ERROR(AddOnes(*self.communicator, self, arrays, count, algorithm));
        int64_t sent = -before;
        for (int to = 0; to < size; ++to) sent += self.communicator->sent_bytes(to);
        before += sent;
        const int64_t formula = 2 * (size - 1) * count / size * int64_t{sizeof(float)};
        if (sent != formula) return Wrong(absl::StrCat(sent, " bytes, not ", formula));
      }
      BRIGADE_RETURN_IF_ERROR(self.communicator->Barrier(*self.stream));
      return self.stream->Synchronize();
    });
    ExpectAllOk(reports);
  }
}

}  // namespace
}  // namespace brigade::collectives::testing
