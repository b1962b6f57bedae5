#ifndef BRIGADE_COLLECTIVES_ENGINES_WATCHDOG_H_
#define BRIGADE_COLLECTIVES_ENGINES_WATCHDOG_H_

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>

namespace brigade::collectives {

// Calls look() at every interval, in a thread of its own, until destroyed.
class Watchdog {
 public:
  Watchdog(std::chrono::nanoseconds interval, std::function<void()> look)
      : interval_(interval), look_(std::move(look)), thread_([this] { Loop(); }) {}
  ~Watchdog() {
    {
      std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    stop_.notify_all();
    thread_.join();
  }

 private:
  void Loop() {
    std::unique_lock lock(mutex_);
    while (!stop_.wait_for(lock, interval_, [this] { return stopping_; })) {
      lock.unlock();
      look_();
      lock.lock();
    }
  }

  const std::chrono::nanoseconds interval_;
  const std::function<void()> look_;
  std::mutex mutex_;
  std::condition_variable stop_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace brigade::collectives

#endif  // BRIGADE_COLLECTIVES_ENGINES_WATCHDOG_H_
