#ifndef BRIGADE_DEVICE_THREADS_PERIODIC_THREAD_H_
#define BRIGADE_DEVICE_THREADS_PERIODIC_THREAD_H_

#include <functional>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "brigade/device/threads/mutex.h"

namespace brigade::device {

// A thread that calls a function again and again, from its construction to Stop.
//
// Order        One call at a time. The first comes one interval after the construction, each other
//              one interval after the end of the one before.
// Threads      One thread at a time calls Stop and the destructor; never the function itself.
class PeriodicThread {
 public:
  PeriodicThread(absl::Duration interval, std::function<void()> function);
  // Stops.
  ~PeriodicThread();
  PeriodicThread(const PeriodicThread&) = delete;
  PeriodicThread& operator=(const PeriodicThread&) = delete;

  // Returns when the call under way, if any, has returned; there is none after. A second Stop does
  // nothing.
  void Stop();

 private:
  void Loop();

  const absl::Duration interval_;
  const std::function<void()> function_;

  Mutex mutex_;
  CondVar stopped_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;

  // Last: it uses the others.
  std::thread thread_;
};

}  // namespace brigade::device

#endif  // BRIGADE_DEVICE_THREADS_PERIODIC_THREAD_H_
