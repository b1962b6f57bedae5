#include "brigade/examples/gpt/interrupt.h"

#include <signal.h>
#include <unistd.h>

#include <utility>

namespace brigade::gpt {
namespace {

constexpr auto kLook = std::chrono::milliseconds(20);

constexpr int kExitCode = 128 + SIGINT;

std::atomic<bool> interrupted = false;
static_assert(std::atomic<bool>::is_always_lock_free, "a signal handler writes it");

void OnSignal(int) { interrupted.store(true, std::memory_order_relaxed); }

void SetHandler(void (*handler)(int)) {
  struct sigaction action = {};
  action.sa_handler = handler;
  for (const int signal : {SIGINT, SIGTERM}) sigaction(signal, &action, nullptr);
}

}  // namespace

Interrupt::Interrupt(std::chrono::milliseconds patience, std::function<void()> give_up)
    : patience_(patience), give_up_(std::move(give_up)) {
  interrupted = false;
  SetHandler(OnSignal);
  watcher_ = std::thread([this] { Watch(); });
}

Interrupt::~Interrupt() {
  SetHandler(SIG_DFL);
  {
    std::lock_guard lock(mutex_);
    over_ = true;
    over_changed_.notify_one();
  }
  watcher_.join();
}

const std::atomic<bool>& Interrupt::stop() const { return interrupted; }

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
