#ifndef BRIGADE_DEVICE_THREADS_WORKER_THREAD_H_
#define BRIGADE_DEVICE_THREADS_WORKER_THREAD_H_

#include <thread>
#include <utility>

namespace brigade::device::internal {

// Whether this thread runs enqueued work: then it must not wait for a device, because it may be the
// one that the device waits for.
inline thread_local bool on_worker_thread = false;

// A thread that runs `body` as a worker; one that is not joinable if the system refuses.
// std::thread reports that by an exception, which ends here.
template <typename F>
std::thread StartWorkerThread(F body) noexcept {
  try {
    return std::thread([body = std::move(body)]() mutable {
      on_worker_thread = true;
      body();
    });
  } catch (...) {
    return std::thread();
  }
}

}  // namespace brigade::device::internal

#endif  // BRIGADE_DEVICE_THREADS_WORKER_THREAD_H_
