#ifndef BRIGADE_COLLECTIVES_ENGINES_NCCL_WATCHDOG_H_
#define BRIGADE_COLLECTIVES_ENGINES_NCCL_WATCHDOG_H_

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>

namespace brigade::collectives {

// Calls look() every few milliseconds, in a thread of its own, until destroyed.
class Watchdog {
 public:
  static constexpr auto kInterval = std::chrono::milliseconds(5);

  explicit Watchdog(std::function<void()> look)
      : look_(std::move(look)), thread_([this] { Loop(); }) {}
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
    while (!stop_.wait_for(lock, kInterval, [this] { return stopping_; })) {
      lock.unlock();
      look_();
      lock.lock();
    }
  }

  const std::function<void()> look_;
  std::mutex mutex_;
  std::condition_variable stop_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace brigade::collectives

#endif  // BRIGADE_COLLECTIVES_ENGINES_NCCL_WATCHDOG_H_
