#ifndef BRIGADE_DATA_PREFETCHER_H_
#define BRIGADE_DATA_PREFETCHER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "brigade/device/requirements.h"
#include "brigade/device/threads/mutex.h"
#include "brigade/device/threads/start_thread.h"

namespace brigade::data {

// A thread that makes items ahead of the one who takes them, in order. An item is memory that is
// filled again and again, one of a ring.
//
// Host waits   Next waits only where the thread has not kept up; waits() counts that.
// Errors       Those of `fill` come from Next, behind the items that were made before; then again
//              and again, and nothing more is made.
// Threads      Next from one thread at a time. The destructor waits for the item that is being
//              made.
template <typename T>
class Prefetcher {
 public:
  // Makes the next item in the place of an old one. False: there are no more.
  using Fill = std::function<absl::StatusOr<bool>(T& item)>;

  // At least 2 `items`: one is with the caller, the others are made ahead. InvalidArgument for
  // fewer, ResourceExhausted if the system refuses a thread.
  static absl::StatusOr<std::unique_ptr<Prefetcher>> Create(std::vector<T> items, Fill fill) {
    if (items.size() < 2) {
      return absl::InvalidArgumentError("prefetching needs memory for at least 2 items");
    }
    std::unique_ptr<Prefetcher> prefetcher(new Prefetcher(std::move(items), std::move(fill)));
    prefetcher->thread_ = device::StartThread([self = prefetcher.get()] { self->Loop(); });
    if (!prefetcher->thread_.joinable()) {
      return absl::ResourceExhaustedError("the system has no thread for prefetching data");
    }
    return prefetcher;
  }
  ~Prefetcher() {
    {
      device::MutexLock lock(mutex_);
      stopping_ = true;
      changed_.SignalAll();
    }
    if (thread_.joinable()) thread_.join();
  }
  Prefetcher(const Prefetcher&) = delete;
  Prefetcher& operator=(const Prefetcher&) = delete;

  // The next item, which is the caller's until the next call; null behind the last one.
  absl::StatusOr<const T*> Next() ABSL_LOCKS_EXCLUDED(mutex_) {
    device::MutexLock lock(mutex_);
    released_ = taken_;
    changed_.SignalAll();
    if (made_ == taken_ && !end_.has_value()) ++waits_;
    while (made_ == taken_ && !end_.has_value()) changed_.Wait(mutex_);
    if (made_ == taken_) {
      if (!end_->ok()) return *end_;
      return nullptr;
    }
    return &items_[static_cast<size_t>(taken_++ % std::ssize(items_))];
  }

  // How often Next found no item ready.
  int64_t waits() const ABSL_LOCKS_EXCLUDED(mutex_) {
    device::MutexLock lock(mutex_);
    return waits_;
  }

 private:
  Prefetcher(std::vector<T> items, Fill fill) : items_(std::move(items)), fill_(std::move(fill)) {}

  void Loop() ABSL_LOCKS_EXCLUDED(mutex_) {
    device::MutexLock lock(mutex_);
    while (true) {
      while (!stopping_ && made_ - released_ >= std::ssize(items_)) changed_.Wait(mutex_);
      if (stopping_) return;
      T& item = items_[static_cast<size_t>(made_ % std::ssize(items_))];
      lock.Unlock();
      // No one else has this item now.
      absl::StatusOr<bool> is_more = fill_(item);
      lock.Lock();
      if (is_more.ok() && *is_more) {
        ++made_;
      } else {
        end_ = is_more.status();
      }
      changed_.SignalAll();
      if (end_.has_value()) return;
    }
  }

  // Item n of all is in place n modulo their number. The thread has those from made_ on until it
  // has counted them, the caller those from released_ to taken_.
  std::vector<T> items_;
  const Fill fill_;

  mutable device::Mutex mutex_;
  device::CondVar changed_;
  int64_t made_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t taken_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t released_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t waits_ ABSL_GUARDED_BY(mutex_) = 0;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  // OK behind the last item.
  std::optional<absl::Status> end_ ABSL_GUARDED_BY(mutex_);

  std::thread thread_;
};

}  // namespace brigade::data

#endif  // BRIGADE_DATA_PREFETCHER_H_
