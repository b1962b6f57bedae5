#ifndef BRIGADE_DEVICE_RACE_CHECKER_ACTOR_TABLE_H_
#define BRIGADE_DEVICE_RACE_CHECKER_ACTOR_TABLE_H_

#include <atomic>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "brigade/device/race_checker/vector_clock.h"

namespace brigade::device::internal {

// The actors of one RaceChecker: streams and host threads, numbered.
//
// Numbers      The numbers of ended actors are used again once no history names them, so that
//              clocks stay short in a long run. The ticks of a number continue, so that no clock
//              takes the accesses of its next actor for those of the ended one.
// Threads      The caller's lock guards every call.
class ActorTable {
 public:
  // mark(used) sets used[actor] for every actor that history still names.
  using MarkUsed = absl::FunctionRef<void(std::vector<bool>& used)>;

  int AddStream(std::string stream, std::string context, MarkUsed mark);
  // The same number for the same (device, native) every time; never ends.
  int AddBorrowedStream(std::string stream, std::string context, std::pair<int, const void*> native,
                        MarkUsed mark);
  int ThisThread(MarkUsed mark);
  void End(int actor);

  // Moves the actor on by one access; returns its tick.
  uint64_t Tick(int actor);

  VectorClock& clock(int actor) { return at(actor).clock; }
  const VectorClock& clock(int actor) const { return actors_[static_cast<size_t>(actor)].clock; }
  const std::string& stream(int actor) const { return actors_[static_cast<size_t>(actor)].stream; }
  const std::string& context(int actor) const {
    return actors_[static_cast<size_t>(actor)].context;
  }
  bool ended(int actor) const { return actors_[static_cast<size_t>(actor)].ended; }
  size_t size() const { return actors_.size(); }

 private:
  struct Actor {
    std::string stream;
    std::string context;
    VectorClock clock;
    bool ended = false;
  };
  struct Thread {
    int actor = 0;
    std::shared_ptr<const std::atomic<bool>> gone;
  };

  Actor& at(int actor) { return actors_[static_cast<size_t>(actor)]; }
  int Add(std::string stream, std::string context, MarkUsed mark);
  void EndGoneThreads();
  void CollectFree(MarkUsed mark);

  // A deque: references stay valid while it grows.
  std::deque<Actor> actors_;
  std::vector<int> free_;
  // How many actors have ended and are not free yet.
  size_t ended_ = 0;
  // So many ended actors are worth a search through history; untuned.
  size_t collect_at_ = 32;
  std::map<uint64_t, Thread> threads_;
  std::map<std::pair<int, const void*>, int> borrowed_;
};

}  // namespace brigade::device::internal

#endif  // BRIGADE_DEVICE_RACE_CHECKER_ACTOR_TABLE_H_
