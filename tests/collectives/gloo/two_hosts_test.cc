// Two hosts: network namespaces of this machine with a slow link between them, and two ranks on each. Needs root.

#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <new>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "brigade/device/status_macros.h"
#include "brigade/tests/collectives/gloo/gloo_ranks.h"
#include "brigade/tests/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::collectives::testing {
namespace {

using ::brigade::testing::StatusIs;
using ::testing::AnyOf;
using ::testing::StartsWith;

constexpr double kLinkBytesPerSecond = 200e6 / 8;

// Seen by all processes of a RunRanks.
struct Board {
  std::atomic<int64_t> payload_bytes = 0;  // from host 0 to host 1
  std::atomic<bool> cut = false;
};

class TwoHostsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::string obstacle = hosts_.Create();
    if (!obstacle.empty()) GTEST_SKIP() << "no two hosts: " << obstacle;
    void* const shared =
        mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    board_ = new (shared) Board;
  }

  // body on ranks 0 and 1 of host 0 and ranks 2 and 3 of host 1; rank 0 serves the store.
  std::vector<Report> OnTwoHosts(absl::Duration timeout, const RankBody& body) {
    return RunRanks(4, absl::Seconds(50), [&](int rank, Fault& fault) {
      const int host = rank / 2;
      hosts_.Enter(host);
      Meeting meeting = {.size = 4, .port = 29500, .timeout = timeout};
      meeting.master_addr = TwoHosts::kAddress[0];
      // Once by interface, once by address.
      (host == 0 ? meeting.interface : meeting.host) =
          host == 0 ? TwoHosts::kDevice[0] : TwoHosts::kAddress[1];
      return AsRank(rank, meeting,
                    [&](Rank& self, Arrays& arrays) { return body(self, arrays, fault); });
    });
  }

  TwoHosts hosts_;
  Board* board_ = nullptr;
};

TEST_F(TwoHostsTest, SumsAreRightAndTheLinkCarriesWhatIsCounted) {
  for (const Algorithm algorithm : {Algorithm::kDirect, Algorithm::kRing}) {
    constexpr int64_t kCount = 64 * 4 * 2000;
    constexpr int64_t kBytes = kCount * int64_t{sizeof(float)};
    board_->payload_bytes = 0;
    const int64_t before = hosts_.SentBytes();
    const auto reports =
        OnTwoHosts(absl::Seconds(20), [&](Rank& self, Arrays& arrays, Fault& fault) {
          fault.Begin();
          BRIGADE_RETURN_IF_ERROR(AddOnes(*self.communicator, self, arrays, kCount, algorithm));
          int64_t sent = 0;
          for (int to = 0; to < 4; ++to) {
            sent += self.communicator->sent_bytes(to);
            if (self.rank < 2 && to >= 2) {
              board_->payload_bytes += self.communicator->sent_bytes(to);
            }
          }
          if (sent != kBytes * 2 * 3 / 4) return Wrong(absl::StrCat(sent, " bytes"));
          BRIGADE_RETURN_IF_ERROR(self.communicator->Barrier(*self.stream));
          return self.stream->Synchronize();
        });
    const int64_t carried = hosts_.SentBytes() - before;
    double seconds = 0;
    for (int rank = 0; rank < 4; ++rank) {
      EXPECT_OK(reports[rank].status) << "rank " << rank;
      seconds = std::max(seconds, reports[rank].seconds);
    }
    // Two ranks that send 2/4 to two others, or one rank of a ring that sends 6/4.
    const int64_t payload = board_->payload_bytes;
    EXPECT_EQ(payload, algorithm == Algorithm::kDirect ? 2 * kBytes : kBytes * 6 / 4);
    // Headers, acknowledgements of what comes back, control messages and the store's.
    EXPECT_GT(carried, payload);
    EXPECT_LT(carried, payload + payload / 6 + (64 << 10));
    if (hosts_.slow()) {
      EXPECT_GT(seconds, 0.9 * static_cast<double>(payload) / kLinkBytesPerSecond)
          << "the link was not slow";
    }
    std::printf("%s: %.1f MB of payload, %.1f MB on the link, %.3f s%s\n",
                std::string(Name(algorithm)).c_str(), payload * 1e-6, carried * 1e-6, seconds,
                hosts_.slow() ? "" : " (no tc: as fast as it goes)");
  }
}

TEST_F(TwoHostsTest, ACutLinkIsAnErrorOnAllRanksWithinTheDeadline) {
  const double timeout = 1.0 * kSlowness;
  const auto reports =
      OnTwoHosts(absl::Seconds(timeout), [&](Rank& self, Arrays& arrays, Fault& fault) {
        BRIGADE_RETURN_IF_ERROR(AddOnes(*self.communicator, self, arrays, 1000));
        if (self.rank == 0) {
          absl::SleepFor(absl::Milliseconds(200));  // the others have their sums
          if (Shell(absl::StrCat("ip link set ", TwoHosts::kDevice[0], " down")) != 0) {
            return Wrong("the link cannot be cut");
          }
          fault.Begin();
          board_->cut = true;
        }
        while (!board_->cut) absl::SleepFor(absl::Milliseconds(1));
        const absl::Status status = AddOnesUntilItEnds(self, arrays, 1000);
        fault.End();
        return status;
      });
  for (int rank = 0; rank < 4; ++rank) {
    const int other = rank < 2 ? 2 : 0;  // the first of the other host
    EXPECT_THAT(reports[rank].status,
                StatusIs(absl::StatusCode::kDeadlineExceeded,
                         AnyOf(StartsWith(absl::StrCat("rank ", other, " ")),
                               StartsWith(absl::StrCat("rank ", other + 1, " ")))))
        << "rank " << rank;
    EXPECT_LT(reports[rank].seconds, 1.2 * timeout + 0.2 * kSlowness) << "rank " << rank;
    std::printf("rank %d, %.3f s after the cut: %s\n", rank, reports[rank].seconds,
                reports[rank].status.ToString().c_str());
  }
}

}  // namespace
}  // namespace brigade::collectives::testing
