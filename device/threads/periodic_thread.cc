#include "brigade/device/threads/periodic_thread.h"

#include <chrono>
#include <utility>

namespace brigade::device {

PeriodicThread::PeriodicThread(absl::Duration interval, std::function<void()> function)
    : interval_(interval), function_(std::move(function)), thread_([this] { Loop(); }) {}

PeriodicThread::~PeriodicThread() { Stop(); }

void PeriodicThread::Stop() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
  }
  stopped_.Signal();
  if (thread_.joinable()) thread_.join();
}

void PeriodicThread::Loop() {
  MutexLock lock(mutex_);
  while (true) {
    const auto next = std::chrono::steady_clock::now() + absl::ToChronoNanoseconds(interval_);
    bool is_time = false;
    while (!stopping_ && !is_time) is_time = stopped_.WaitWithDeadline(mutex_, next);
    if (stopping_) return;
    lock.Unlock();
    function_();
    lock.Lock();
  }
}

}  // namespace brigade::device
