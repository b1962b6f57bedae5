#ifndef BRIGADE_TRAIN_INTERRUPT_H_
#define BRIGADE_TRAIN_INTERRUPT_H_

#include <signal.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <optional>

#include "absl/time/time.h"
#include "brigade/device/requirements.h"
#include "brigade/device/threads/periodic_thread.h"

namespace brigade::train {

// What Ctrl-C does: asks the training to stop, and ends the process if it is not at its report
// within `patience`. One at a time; SIGINT and SIGTERM do again what they did before when it is
// gone.
class Interrupt {
 public:
  // 128 + SIGINT, the convention of shells.
  static constexpr int kExitCode = 130;

  // `give_up` runs before the process ends with kExitCode, on a thread of this object.
  Interrupt(absl::Duration patience, std::function<void()> give_up);
  ~Interrupt();
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;

  const std::atomic<bool>& stop() const;

  // From here on nothing gives up any more: the training has come to its end. Waits for a `give_up`
  // that runs, and so for the end of the process.
  void Disarm();

 private:
  void Poll();

  const absl::Duration patience_;
  const std::function<void()> give_up_;
  struct sigaction before_[2];
  // When the thread gives up; empty before it has seen the interrupt.
  std::optional<std::chrono::steady_clock::time_point> deadline_;

  // Last: it uses the others.
  std::optional<device::PeriodicThread> thread_;
};

}  // namespace brigade::train

#endif  // BRIGADE_TRAIN_INTERRUPT_H_
