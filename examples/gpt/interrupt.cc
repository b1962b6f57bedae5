#include "brigade/examples/gpt/interrupt.h"

#include <unistd.h>

#include <iterator>
#include <utility>

namespace brigade::gpt {
namespace {

constexpr auto kLook = std::chrono::milliseconds(20);

constexpr int kSignals[] = {SIGINT, SIGTERM};

std::atomic<bool> interrupted = false;
static_assert(std::atomic<bool>::is_always_lock_free, "a signal handler writes it");

void OnSignal(int) { interrupted.store(true, std::memory_order_relaxed); }

}  // namespace

Interrupt::Interrupt(std::chrono::milliseconds patience, std::function<void()> give_up)
    : patience_(patience), give_up_(std::move(give_up)) {
  interrupted = false;
  struct sigaction action = {};
  action.sa_handler = OnSignal;
  for (size_t i = 0; i < std::size(kSignals); ++i) sigaction(kSignals[i], &action, &before_[i]);
  watcher_ = std::thread([this] { Watch(); });
}

Interrupt::~Interrupt() {
  for (size_t i = 0; i < std::size(kSignals); ++i) sigaction(kSignals[i], &before_[i], nullptr);
  Disarm();
  watcher_.join();
}

const std::atomic<bool>& Interrupt::stop() const { return interrupted; }

void Interrupt::Disarm() {
  std::lock_guard lock(mutex_);
  over_ = true;
  over_changed_.notify_one();
}

void Interrupt::Watch() {
  std::unique_lock lock(mutex_);
  const auto over = [this] { return over_; };
  while (!interrupted.load(std::memory_order_relaxed)) {
    if (over_changed_.wait_for(lock, kLook, over)) return;
  }
  if (over_changed_.wait_for(lock, patience_, over)) return;
  give_up_();
  _exit(kExitCode);
}

}  // namespace brigade::gpt
