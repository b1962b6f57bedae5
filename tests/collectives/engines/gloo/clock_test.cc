// Somebody sets the clock of the day while ranks meet and wait for each other: nothing ends early,
// and no wait lasts longer than it may.

#include <atomic>
#include <chrono>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "brigade/collectives/bootstrap/file_store.h"
#include "brigade/device/status_macros.h"
#include "brigade/device/threads/steady_time.h"
#include "brigade/tests/collectives/engines/gloo/processes.h"
#include "brigade/tests/testing/jumping_clock.h"
#include "brigade/tests/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::collectives::testing {
namespace {

using ::brigade::testing::SetClockAhead;
using ::brigade::testing::StatusIs;
using ::testing::Values;

// More than any wait here may last.
constexpr int kHours = 1000;

void SleepMs(int ms) { std::this_thread::sleep_for(std::chrono::milliseconds(ms)); }

// A clock that is set again and again, there and back. Whoever looks at it at all soon finds an
// hour that is over, or one that is far away.
class RestlessClock {
 public:
  ~RestlessClock() {
    ends_ = true;
    thread_.join();
    SetClockAhead(0);
  }

 private:
  std::atomic<bool> ends_ = false;
  std::thread thread_{[this] {
    for (int round = 0; !ends_; ++round) {
      SetClockAhead(round % 2 * kHours);
      SleepMs(5);
    }
  }};
};

// A clock that was wrong, and is set back for good when a wait has begun.
class ClockThatIsSetBack {
 public:
  ClockThatIsSetBack() { SetClockAhead(kHours); }
  ~ClockThatIsSetBack() {
    if (thread_.joinable()) thread_.join();
  }
  void Begin() {
    thread_ = std::thread([] {
      SleepMs(200);
      SetClockAhead(0);
    });
  }

 private:
  std::thread thread_;
};

enum class StoreKind { kTcp, kFiles };

class ClockTest : public ::testing::TestWithParam<StoreKind> {
 protected:
  ClockTest() {
    if (GetParam() == StoreKind::kTcp) return;
    folder_ = absl::StrCat(::testing::TempDir(), "/clock_test");
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }

  // Of several stores each has a number.
  absl::StatusOr<std::shared_ptr<Store>> JoinStore(int rank, int size, absl::Duration limit,
                                                   int number = 0) const {
    if (GetParam() == StoreKind::kTcp) {
      return TcpStore::Create(StoreOptions(rank, size, ports_[number], limit));
    }
    return FileStore::Create({.rank = rank,
                              .size = size,
                              .folder = absl::StrCat(folder_, "/", number),
                              .timeout = limit});
  }

  const std::vector<int> ports_ = {FreePort(), FreePort(), FreePort()};
  std::string folder_;
};

GlooOptions Options(int rank, int size, std::shared_ptr<Store> store, absl::Duration limit) {
  GlooOptions options;
  options.rank = rank;
  options.size = size;
  options.store = std::move(store);
  options.host = "127.0.0.1";
  options.connect_timeout = limit;
  options.connect_deadline = device::SteadyTime::Now() + limit;
  options.timeout = limit;
  return options;
}

TEST_P(ClockTest, WhereItIsSetAllTheTimeRanksStillMeet) {
  constexpr int kRanks = 3;
  const std::vector<Report> reports = RunRanks(kRanks, [&](int rank, Fault& fault) -> absl::Status {
    const RestlessClock clock;
    // Others wait for the last one at each of these.
    SleepMs(100 * rank);
    BRIGADE_ASSIGN_OR_RETURN(std::shared_ptr<Store> store, JoinStore(rank, kRanks, kNever));
    if (rank == 0) SleepMs(100);
    BRIGADE_ASSIGN_OR_RETURN(const auto transport,
                             CreateGlooTransport(Options(rank, kRanks, store, kNever)));
    if (rank == 1) SleepMs(100);
    BRIGADE_RETURN_IF_ERROR(ExchangeInRing(*transport, 1000));
    // While one waits for a key, another one looks for one that is not there.
    if (rank == 1) BRIGADE_RETURN_IF_ERROR(store->Get("late", kNever).status());
    for (int round = 0; rank == 2 && round < 20; ++round) {
      SleepMs(5);
      const absl::Status none = store->Get("none", absl::ZeroDuration()).status();
      if (!absl::IsDeadlineExceeded(none)) return absl::InternalError(none.ToString());
    }
    if (rank == 2) BRIGADE_RETURN_IF_ERROR(store->Set("late", "", kNever));
    fault.AwaitAll();
    return absl::OkStatus();
  });
  for (const Report& report : reports) EXPECT_OK(report.status);
}

// By the clock of the day these waits last a thousand hours.
TEST_P(ClockTest, WhereItIsSetBackNoWaitLastsLonger) {
  enum { kForTheStore, kForAKey, kForTheGroup, kWaits };
  const std::vector<Report> reports = RunRanks(kWaits, [&](int wait, Fault&) -> absl::Status {
    ClockThatIsSetBack clock;
    if (wait == kForTheStore) {
      clock.Begin();
      return JoinStore(0, 2, kDeadline, wait).status();
    }
    BRIGADE_ASSIGN_OR_RETURN(const std::shared_ptr<Store> store, JoinStore(0, 1, kNever, wait));
    clock.Begin();
    if (wait == kForAKey) return store->Get("key", kDeadline).status();
    return CreateGlooTransport(Options(0, 2, store, kDeadline)).status();
  });
  for (const Report& report : reports) {
    EXPECT_THAT(report.status, StatusIs(absl::StatusCode::kDeadlineExceeded));
  }
}

INSTANTIATE_TEST_SUITE_P(Stores, ClockTest, Values(StoreKind::kTcp, StoreKind::kFiles),
                         [](const auto& info) {
                           return info.param == StoreKind::kTcp ? "Tcp" : "Files";
                         });

}  // namespace
}  // namespace brigade::collectives::testing
