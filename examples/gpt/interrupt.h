#ifndef BRIGADE_EXAMPLES_GPT_INTERRUPT_H_
#define BRIGADE_EXAMPLES_GPT_INTERRUPT_H_

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

namespace brigade::gpt {

// What Ctrl-C does: asks the training to stop, and ends the process if it has not stopped within `patience`. One at a
// time; SIGINT and SIGTERM end the process again when it is gone.
class Interrupt {
 public:
  // `give_up` runs before the process ends with exit code 130, on a thread of this object.
  Interrupt(std::chrono::milliseconds patience, std::function<void()> give_up);
  ~Interrupt();
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;

  const std::atomic<bool>& stop() const;

 private:
  void Watch();

  const std::chrono::milliseconds patience_;
  const std::function<void()> give_up_;
  std::mutex mutex_;
  std::condition_variable over_changed_;
  bool over_ = false;
  std::thread watcher_;
};

}  // namespace brigade::gpt

#endif  // BRIGADE_EXAMPLES_GPT_INTERRUPT_H_
