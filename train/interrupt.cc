#include "brigade/train/interrupt.h"

#include <unistd.h>

#include <iterator>
#include <utility>

#include "brigade/device/threads/deadline.h"

namespace brigade::train {
namespace {

constexpr absl::Duration kInterval = absl::Milliseconds(20);

constexpr int kSignals[] = {SIGINT, SIGTERM};

std::atomic<bool> interrupted = false;
static_assert(std::atomic<bool>::is_always_lock_free, "a signal handler writes it");

void OnSignal(int) { interrupted.store(true, std::memory_order_relaxed); }

}  // namespace

Interrupt::Interrupt(absl::Duration patience, std::function<void()> give_up)
    : patience_(patience), give_up_(std::move(give_up)) {
  interrupted = false;
  struct sigaction action = {};
  action.sa_handler = OnSignal;
  for (size_t i = 0; i < std::size(kSignals); ++i) sigaction(kSignals[i], &action, &before_[i]);
  thread_.emplace(kInterval, [this] { Poll(); });
}

Interrupt::~Interrupt() {
  for (size_t i = 0; i < std::size(kSignals); ++i) sigaction(kSignals[i], &before_[i], nullptr);
}

const std::atomic<bool>& Interrupt::stop() const { return interrupted; }

void Interrupt::Disarm() { thread_->Stop(); }

void Interrupt::Poll() {
  if (!interrupted.load(std::memory_order_relaxed)) return;
  if (!deadline_.has_value()) deadline_ = device::DeadlineAfter(patience_);
  if (std::chrono::steady_clock::now() < *deadline_) return;
  give_up_();
  _exit(kExitCode);
}

}  // namespace brigade::train
