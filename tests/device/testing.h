#ifndef BRIGADE_TESTS_DEVICE_TESTING_H_
#define BRIGADE_TESTS_DEVICE_TESTING_H_

#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "brigade/device/context.h"
#include "brigade/device/race_checker/race_checker.h"
#include "brigade/device/stream.h"
#include "brigade/device/threads/thread_pool.h"

namespace brigade::device {

// Options of a CPU context with one compute thread and checks off; tests change what they are
// about.
inline ContextOptions CpuOptions(std::string name = "rank 0") {
  ContextOptions options;
  options.compute_threads = 1;
  options.name = std::move(name);
  options.checks = false;
  return options;
}

// The same with a checker of the test's own, so that tests do not see each other's races.
inline ContextOptions CheckedOptions(RaceChecker& checker, std::string name = "rank 0") {
  ContextOptions options = CpuOptions(std::move(name));
  options.checks = true;
  options.race_checker = &checker;
  return options;
}

inline std::unique_ptr<Context> CreateContext(const ContextOptions& options) {
  return Context::Create(options).value();
}

// Keeps a stream's worker busy until it is opened.
class Gate {
 public:
  void Open() {
    std::lock_guard lock(mutex_);
    open_ = true;
    opened_.notify_all();
  }

  void Pass() {
    std::unique_lock lock(mutex_);
    arrived_ = true;
    opened_.notify_all();
    opened_.wait(lock, [this] { return open_; });
  }

  // Blocks until a thread is in Pass.
  void AwaitArrival() {
    std::unique_lock lock(mutex_);
    opened_.wait(lock, [this] { return arrived_; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable opened_;
  bool open_ = false;
  bool arrived_ = false;
};

inline absl::Status Block(Stream& stream, Gate& gate) {
  return stream.Enqueue({"gate", {}}, [&gate](ThreadPool&) {
    gate.Pass();
    return absl::OkStatus();
  });
}

inline absl::Status Fail(Stream& stream, std::string message) {
  return stream.Enqueue({"broken", {}}, [message = std::move(message)](ThreadPool&) {
    return absl::DataLossError(message);
  });
}

}  // namespace brigade::device

#endif  // BRIGADE_TESTS_DEVICE_TESTING_H_
