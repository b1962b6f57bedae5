#ifndef BRIGADE_DEVICE_RACE_CHECKER_ACCESS_HISTORY_H_
#define BRIGADE_DEVICE_RACE_CHECKER_ACCESS_HISTORY_H_

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "brigade/device/operation.h"
#include "brigade/device/race_checker/actor_table.h"
#include "brigade/device/race_checker/interval_map.h"
#include "brigade/device/race_checker/race_checker.h"
#include "brigade/device/race_checker/shadow.h"
#include "brigade/device/race_checker/vector_clock.h"

namespace brigade::device::internal {

// What one RaceChecker knows: the actors and their clocks, the memory, its accesses, and the races
// found. The functions are those of RaceChecker.
//
// Threads      The caller's mutex guards every call.
class AccessHistory {
 public:
  int ThisThread() { return actors_.ThisThread(MarkUsed{this}); }
  int AddStream(absl::string_view stream, absl::string_view context);
  int AddBorrowedStream(absl::string_view stream, absl::string_view context,
                        std::pair<int, const void*> native);
  void EndStream(int stream) { actors_.End(stream); }

  // Everything this thread did so far comes before what it enqueues, records or waits for now.
  void JoinThisThread(int stream) { actors_.clock(stream).Join(actors_.clock(ThisThread())); }
  VectorClock& clock(int actor) { return actors_.clock(actor); }
  const VectorClock& clock(int actor) const { return actors_.clock(actor); }
  void HostAcquire(const VectorClock& clock);

  // The first operation of a stream that declares nothing, no empty access either, is named on
  // stderr.
  void TellOfUndeclared(int stream, const Operation& operation);

  // Compares the accesses with those before and adds them. FailedPrecondition with the first
  // message if one of them races.
  absl::Status CheckAccesses(int actor, const Operation& operation);

  void AddMemory(uintptr_t begin, uintptr_t end, absl::string_view name, bool owned);
  void RemoveMemory(uintptr_t begin, uintptr_t end, bool owned);

  const std::vector<Race>& reports() const { return reports_; }
  int64_t reports_dropped() const { return reports_dropped_; }
  void ClearReports();

  size_t intervals() const { return tracked_.intervals() + untracked_.intervals(); }
  size_t actors() const { return actors_.size(); }

 private:
  // The buffers and borrows over an interval.
  struct Coverage {
    int count = 0;
    // The beginning of the first of them.
    uintptr_t base = 0;
    std::shared_ptr<const std::string> name;

    bool empty() const { return count == 0; }
    friend bool operator==(const Coverage&, const Coverage&) = default;
  };

  // Marks the actors that a shadow still names.
  struct MarkUsed {
    const AccessHistory* history;

    void operator()(std::vector<bool>& used) const {
      history->tracked_.MarkActors(used);
      history->untracked_.MarkActors(used);
    }
  };

  void Report(const PastAccess& past, const PastAccess& now, std::string& first_message);

  ActorTable actors_;
  IntervalMap<Coverage> coverage_;
  // The accesses to covered memory.
  Shadow tracked_;
  // The accesses to other addresses.
  Shadow untracked_;
  std::set<std::tuple<Race::Side, Race::Side, std::string>> reported_;
  std::vector<Race> reports_;
  int64_t reports_dropped_ = 0;
  bool told_of_undeclared_ = false;
};

}  // namespace brigade::device::internal

#endif  // BRIGADE_DEVICE_RACE_CHECKER_ACCESS_HISTORY_H_
