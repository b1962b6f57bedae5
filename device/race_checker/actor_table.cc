#include "brigade/device/race_checker/actor_table.h"

#include <algorithm>

namespace brigade::device::internal {
namespace {

// std::thread::id is used again after a thread's end; this number is not.
struct ThreadIdentity {
  ThreadIdentity() {
    static std::atomic<uint64_t> threads{0};
    number = threads.fetch_add(1, std::memory_order_relaxed);
  }
  ~ThreadIdentity() { gone->store(true, std::memory_order_relaxed); }

  uint64_t number;
  std::shared_ptr<std::atomic<bool>> gone = std::make_shared<std::atomic<bool>>(false);
};

thread_local ThreadIdentity this_thread;

}  // namespace

int ActorTable::AddStream(std::string stream, std::string context, MarkUsed mark) {
  return Add(std::move(stream), std::move(context), mark);
}

int ActorTable::AddBorrowedStream(std::string stream, std::string context,
                                  std::pair<int, const void*> native, MarkUsed mark) {
  const auto known = borrowed_.find(native);
  if (known == borrowed_.end()) {
    return borrowed_[native] = Add(std::move(stream), std::move(context), mark);
  }
  at(known->second).stream = std::move(stream);
  at(known->second).context = std::move(context);
  return known->second;
}

int ActorTable::ThisThread(MarkUsed mark) {
  const auto known = threads_.find(this_thread.number);
  if (known != threads_.end()) return known->second.actor;
  const int actor = Add("a host thread", "", mark);
  threads_[this_thread.number] = {actor, this_thread.gone};
  return actor;
}

void ActorTable::End(int actor) {
  at(actor).ended = true;
  ++ended_;
}

uint64_t ActorTable::Tick(int actor) {
  const auto index = static_cast<size_t>(actor);
  const uint64_t tick = at(actor).clock.at(index) + 1;
  at(actor).clock.Set(index, tick);
  return tick;
}

int ActorTable::Add(std::string stream, std::string context, MarkUsed mark) {
  EndGoneThreads();
  if (free_.empty() && ended_ >= collect_at_) CollectFree(mark);
  if (free_.empty()) {
    actors_.push_back({std::move(stream), std::move(context), VectorClock(), false});
    return static_cast<int>(actors_.size()) - 1;
  }
  const int actor = free_.back();
  free_.pop_back();
  const auto index = static_cast<size_t>(actor);
  VectorClock clock;
  clock.Set(index, actors_[index].clock.at(index));
  actors_[index] = {std::move(stream), std::move(context), std::move(clock), false};
  return actor;
}

void ActorTable::EndGoneThreads() {
  for (auto it = threads_.begin(); it != threads_.end();) {
    if (it->second.gone->load(std::memory_order_relaxed)) {
      End(it->second.actor);
      it = threads_.erase(it);
    } else {
      ++it;
    }
  }
}

void ActorTable::CollectFree(MarkUsed mark) {
  std::vector<bool> used(actors_.size(), false);
  mark(used);
  size_t kept = 0;
  for (size_t i = 0; i < actors_.size(); ++i) {
    if (!actors_[i].ended) continue;
    if (used[i]) {
      ++kept;
    } else {
      free_.push_back(static_cast<int>(i));
    }
  }
  ended_ = kept;
  collect_at_ = std::max<size_t>(32, 2 * kept);
}

}  // namespace brigade::device::internal
