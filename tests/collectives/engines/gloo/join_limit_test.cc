// A rank that never comes, or stops or dies on its way into the group, is named by all others
// within the time that they have for joining: at rank 0's store and at one of files.

#include <signal.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "brigade/collectives/bootstrap/file_store.h"
#include "brigade/device/status_macros.h"
#include "brigade/device/threads/steady_time.h"
#include "brigade/tests/collectives/engines/gloo/forwarding_store.h"
#include "brigade/tests/collectives/engines/gloo/processes.h"
#include "brigade/tests/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#ifndef BRIGADE_MOMENTS
#define BRIGADE_MOMENTS 4
#endif

namespace brigade::collectives::testing {
namespace {

using ::testing::Combine;
using ::testing::ContainsRegex;
using ::testing::Values;

constexpr int kRanks = 4;
// A rank that waits for another one's answer gives it so much longer than that has itself; the rest
// is for a busy machine.
constexpr double kSlackSeconds = 3;

enum class StoreKind { kTcp, kFiles };

struct Place {
  int port = 0;
  std::string folder;  // empty: the store is at the port
  // For joining, and for each wait afterwards.
  absl::Duration limit;
};

absl::StatusOr<std::shared_ptr<Store>> JoinStore(int rank, const Place& place) {
  if (place.folder.empty()) {
    return TcpStore::Create(StoreOptions(rank, kRanks, place.port, place.limit));
  }
  return FileStore::Create(
      {.rank = rank, .size = kRanks, .folder = place.folder, .timeout = place.limit});
}

// Calls `before` and `after` when this rank tells where it listens.
class VictimsStore final : public ForwardingStore {
 public:
  VictimsStore(std::shared_ptr<Store> store, std::function<void()> before,
               std::function<void()> after)
      : ForwardingStore(std::move(store)), before_(std::move(before)), after_(std::move(after)) {}

  absl::Status Set(const std::string& key, const std::string& value,
                   absl::Duration timeout) override {
    before_();
    const absl::Status status = ForwardingStore::Set(key, value, timeout);
    after_();
    return status;
  }

 private:
  const std::function<void()> before_, after_;
};

// All that a rank does: it joins, and says something to all.
absl::Status JoinAndExchange(int rank, const Place& place, std::function<void()> before,
                             std::function<void()> after) {
  const device::SteadyTime deadline = device::SteadyTime::Now() + place.limit;
  BRIGADE_ASSIGN_OR_RETURN(std::shared_ptr<Store> store, JoinStore(rank, place));
  GlooOptions options;
  options.rank = rank;
  options.size = kRanks;
  options.store =
      std::make_shared<VictimsStore>(std::move(store), std::move(before), std::move(after));
  options.host = "127.0.0.1";
  options.connect_timeout = place.limit;
  options.connect_deadline = deadline;
  options.timeout = place.limit;
  BRIGADE_ASSIGN_OR_RETURN(const auto transport, CreateGlooTransport(options));
  return ExchangeInRing(*transport, 1000);
}

// What befalls the victim, and when.
enum class Fate { kNeverComes, kStops, kDies };
enum class Moment { kBeforeItTells, kBeforeItConnects, kAnyTime };

using Case = std::tuple<StoreKind, int /*victim*/, Fate, Moment>;

std::string NameOf(const Case& c) {
  const auto& [kind, victim, fate, moment] = c;
  static constexpr const char* kFates[] = {"NeverComes", "Stops", "Dies"};
  static constexpr const char* kMoments[] = {"BeforeItTells", "BeforeItConnects", "AtAnyTime"};
  return absl::StrCat(kind == StoreKind::kTcp ? "Tcp" : "Files", "_Rank", victim,
                      kFates[static_cast<int>(fate)],
                      fate == Fate::kNeverComes ? "" : kMoments[static_cast<int>(moment)]);
}

class JoinLimitTest : public ::testing::TestWithParam<Case> {
 protected:
  ~JoinLimitTest() override {
    if (!place_.folder.empty()) std::filesystem::remove_all(place_.folder);
  }

  // `microseconds` after its begin, where it is any time.
  std::vector<Report> RunAll(int microseconds) {
    const auto& [kind, victim, fate, moment] = GetParam();
    // Where the store itself does not answer, ranks may not wait for it once more.
    const bool is_long = kind == StoreKind::kTcp && victim == 0 && fate == Fate::kStops &&
                         moment == Moment::kBeforeItConnects;
    place_ = {FreePort(), "", (is_long ? 5 : 1) * kDeadline};
    if (kind == StoreKind::kFiles) {
      place_.folder = absl::StrCat(::testing::TempDir(), "/", NameOf(GetParam()), microseconds);
      std::filesystem::remove_all(place_.folder);
    }
    return RunRanks(
        kRanks,
        [&, victim = victim, fate = fate, moment = moment](int rank, Fault& fault) -> absl::Status {
          const auto nothing = [] {};
          fault.Begin();
          if (rank != victim) return JoinAndExchange(rank, place_, nothing, nothing);
          const int signal = fate == Fate::kDies ? SIGKILL : SIGSTOP;
          const auto end = [signal] { kill(getpid(), signal); };
          if (fate == Fate::kNeverComes) end();
          if (moment == Moment::kBeforeItTells) return JoinAndExchange(rank, place_, end, nothing);
          if (moment == Moment::kBeforeItConnects)
            return JoinAndExchange(rank, place_, nothing, end);
          struct sigaction action = {};
          action.sa_handler = fate == Fate::kDies ? [](int) { kill(getpid(), SIGKILL); }
                                                  : [](int) { kill(getpid(), SIGSTOP); };
          sigaction(SIGALRM, &action, nullptr);
          const itimerval timer = {{0, 0}, {0, microseconds}};
          setitimer(ITIMER_REAL, &timer, nullptr);
          const absl::Status status = JoinAndExchange(rank, place_, nothing, nothing);
          pause();  // it is too late; all that the others wanted of it is done, or they say so
          return status;
        });
  }

  // Ranks that were reading when rank 0 stopped to serve them have not come either.
  std::string Named() const {
    const auto& [kind, victim, fate, moment] = GetParam();
    const bool serves = kind == StoreKind::kTcp && victim == 0;
    return absl::StrCat(serves ? "ranks? " : "rank ", victim, "[^0-9]");
  }

  Place place_;
};

TEST_P(JoinLimitTest, AllOthersNameTheRankInTime) {
  const auto& [kind, victim, fate, moment] = GetParam();
  const int moments = moment == Moment::kAnyTime ? BRIGADE_MOMENTS : 1;
  double longest = 0;
  int ended_well = 0;
  for (int i = 0; i < moments; ++i) {
    // Of what takes some 10 ms in all.
    const std::vector<Report> reports = RunAll(100 + i * 15'000 / moments);
    for (int rank = 0; rank < kRanks; ++rank) {
      if (rank == victim) continue;
      const Report& report = reports[static_cast<size_t>(rank)];
      longest = std::max(longest, report.seconds);
      if (moment == Moment::kAnyTime && report.status.ok()) {
        ++ended_well;
        continue;
      }
      EXPECT_FALSE(report.status.ok());
      EXPECT_THAT(std::string(report.status.message()), ContainsRegex(Named()))
          << "rank " << rank << ", moment " << i;
    }
  }
  // Joining, or where it is there already the exchange behind it.
  const absl::Duration limit = moment == Moment::kAnyTime ? 2 * place_.limit : place_.limit;
  EXPECT_LE(longest, absl::ToDoubleSeconds(limit) + kSlackSeconds);
  std::printf("%.2f s at most; %d ranks ended well\n", longest, ended_well);
}

const auto kStores = Values(StoreKind::kTcp, StoreKind::kFiles);
const auto kVictims = Values(0, 2);

INSTANTIATE_TEST_SUITE_P(Absent, JoinLimitTest,
                         Combine(kStores, kVictims, Values(Fate::kNeverComes),
                                 Values(Moment::kBeforeItTells)),
                         [](const auto& info) { return NameOf(info.param); });
INSTANTIATE_TEST_SUITE_P(Lost, JoinLimitTest,
                         Combine(kStores, kVictims, Values(Fate::kStops, Fate::kDies),
                                 Values(Moment::kBeforeItTells, Moment::kBeforeItConnects,
                                        Moment::kAnyTime)),
                         [](const auto& info) { return NameOf(info.param); });

}  // namespace
}  // namespace brigade::collectives::testing
