// Two hosts: network namespaces of this machine with a slow link between them, and two ranks on
// each. Needs root.

#include <sys/mman.h>

#include <array>
#include <atomic>
#include <cstdio>
#include <new>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "brigade/collectives/measurement/measure.h"
#include "brigade/collectives/tuning/cost_model.h"
#include "brigade/device/status_macros.h"
#include "brigade/tests/collectives/engines/gloo/gloo_ranks.h"
#include "brigade/tests/collectives/engines/gloo/two_hosts.h"
#include "brigade/tests/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::collectives::testing {
namespace {

using ::brigade::testing::StatusIs;
using ::testing::AnyOf;
using ::testing::StartsWith;

constexpr int kLinkMegabits = 200;  // per second
constexpr double kLinkBytesPerSecond = kLinkMegabits * 1e6 / 8;

// Seen by all processes of a RunRanks.
struct Board {
  // From each host to the other.
  std::array<std::atomic<int64_t>, 2> payload_bytes = {};
  std::atomic<bool> cut = false;
};

class TwoHostsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::string obstacle = hosts_.Create(kLinkMegabits);
    if (!obstacle.empty()) GTEST_SKIP() << "no two hosts: " << obstacle;
    void* const shared =
        mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    board_ = new (shared) Board;
  }

  // body on ranks 0 and 1 of host 0 and ranks 2 and 3 of host 1; rank 0 serves the store.
  std::vector<Report> OnTwoHosts(absl::Duration timeout, const RankBody& body) {
    return RunRanks(4, [&](int rank, Fault& fault) {
      const int host = rank / 2;
      hosts_.Enter(host);
      Rendezvous meeting = {.size = 4, .port = 29500, .timeout = timeout};
      meeting.master_addr = TwoHosts::kAddress[0];
      // Once by interface, once by address.
      (host == 0 ? meeting.interface : meeting.host) =
          host == 0 ? TwoHosts::kDevice[0] : TwoHosts::kAddress[1];
      return AsRank(rank, meeting, OptionsOf({.size = 4, .ranks_of_node = {2, 2}}),
                    [&](Rank& self, Arrays& arrays) { return body(self, arrays, fault); });
    });
  }

  TwoHosts hosts_;
  Board* board_ = nullptr;
};

// Adds up ones, and counts the payload bytes from this rank to the other host.
absl::StatusOr<int64_t> AddOnesBy(Algorithm algorithm, Rank& self, Arrays& arrays, int64_t count) {
  BRIGADE_RETURN_IF_ERROR(AddOnes(*self.communicator, self, arrays, count, algorithm));
  int64_t bytes = 0;
  for (int to = 0; to < 4; ++to) {
    if (to / 2 != self.rank / 2) bytes += self.communicator->sent_bytes(to);
  }
  return bytes;
}

TEST_F(TwoHostsTest, SumsAreRightAndTheLinkCarriesWhatTheModelSays) {
  constexpr int64_t kCount = 64 * 4 * 2000;
  constexpr int64_t kBytes = kCount * int64_t{sizeof(float)};
  Topology topology;
  topology.ranks_of_node = {2, 2};
  topology.inside = topology.between = {0, kLinkBytesPerSecond};
  for (const Algorithm algorithm : kModelledAlgorithms) {
    SCOPED_TRACE(std::string(Name(algorithm)));
    for (auto& bytes : board_->payload_bytes) bytes = 0;
    const std::array<int64_t, 2> before = {hosts_.SentBytes(0), hosts_.SentBytes(1)};
    const auto reports = OnTwoHosts(kNever, [&](Rank& self, Arrays& arrays, Fault& fault) {
      fault.Begin();
      BRIGADE_ASSIGN_OR_RETURN(auto sent, AddOnesBy(algorithm, self, arrays, kCount));
      board_->payload_bytes[self.rank / 2] += sent;
      BRIGADE_RETURN_IF_ERROR(self.communicator->Barrier(*self.stream));
      return self.stream->Synchronize();
    });
    double seconds = 0;
    for (int rank = 0; rank < 4; ++rank) {
      EXPECT_OK(reports[rank].status) << "rank " << rank;
      seconds = std::max(seconds, reports[rank].seconds);
    }
    ASSERT_OK_AND_ASSIGN(const auto phases,
                         PhasesOf(topology, algorithm, CollectiveKind::kAllReduce, kBytes));
    double model = 0;
    for (const Phase& phase : phases) model += phase.between.bytes;
    // The model counts what the busiest port sends; a server's takes arrays in, then sends as many.
    const auto& sent = board_->payload_bytes;
    const int64_t payload = algorithm == Algorithm::kParameterServer
                                ? sent[0] + sent[1]
                                : std::max<int64_t>(sent[0], sent[1]);
    EXPECT_DOUBLE_EQ(payload, model);
    for (int host = 0; host < 2; ++host) {
      // Headers, acknowledgements of what comes back, control messages and the store's.
      const int64_t carried = hosts_.SentBytes(host) - before[host];
      const int64_t counted = board_->payload_bytes[host];
      EXPECT_GT(carried, counted);
      EXPECT_LT(carried, counted + counted / 6 + (64 << 10));
    }
    if (hosts_.slow()) {
      EXPECT_GT(seconds, 0.9 * model / kLinkBytesPerSecond) << "the link was not slow";
    }
    std::printf("%s: %.1f MB of payload, %.3f s%s\n", std::string(Name(algorithm)).c_str(),
                static_cast<double>(payload) * 1e-6, seconds,
                hosts_.slow() ? "" : " (no tc: as fast as it goes)");
  }
}

TEST_F(TwoHostsTest, TheSlowLinkIsMeasured) {
  if (!hosts_.slow()) GTEST_SKIP() << "no tc";
  const auto reports = OnTwoHosts(kNever, [&](Rank& self, Arrays&, Fault&) -> absl::Status {
    // Whatever else runs on the machine makes figures worse. All ranks have the same ones.
    constexpr int kAttempts = 20;
    for (int attempt = 1;; ++attempt) {
      BRIGADE_ASSIGN_OR_RETURN(
          const auto topology,
          MeasureTopology(*self.communicator, self.rank / 2, *self.context, *self.stream));
      const Level& link = topology.between;
      const double of_link = link.ports * link.bytes_per_s / kLinkBytesPerSecond;
      const double of_inside = topology.inside.bytes_per_s / kLinkBytesPerSecond;
      const bool is_link = of_link >= 0.5 && of_link <= 1.1;  // headers take 5 %
      if (is_link && of_inside >= 2) return absl::OkStatus();
      if (attempt < kAttempts) continue;
      return Wrong(absl::StrCat(of_link, " of the link, ", of_inside, " inside"));
    }
  });
  ExpectAllOk(reports);
}

TEST_F(TwoHostsTest, ACutLinkIsAnErrorOnAllRanksWithinTheDeadline) {
  const auto reports = OnTwoHosts(kDeadline, [&](Rank& self, Arrays& arrays, Fault& fault) {
    BRIGADE_RETURN_IF_ERROR(AddOnes(*self.communicator, self, arrays, 1000));
    fault.AwaitAll();
    if (self.rank == 0) {
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
    std::printf("rank %d, %.3f s after the cut: %s\n", rank, reports[rank].seconds,
                reports[rank].status.ToString().c_str());
  }
}

}  // namespace
}  // namespace brigade::collectives::testing
