#ifndef BRIGADE_DEVICE_THREADS_WORKER_THREAD_H_
#define BRIGADE_DEVICE_THREADS_WORKER_THREAD_H_

#include <thread>
#include <utility>

#include "brigade/device/threads/start_thread.h"

namespace brigade::device::internal {

// Whether this thread runs enqueued work: then it must not wait for a device, because it may be the
// one that the device waits for.
inline thread_local bool on_worker_thread = false;

// StartThread of a worker.
template <typename F>
std::thread StartWorkerThread(F body) noexcept {
  return StartThread([body = std::move(body)]() mutable {
    on_worker_thread = true;
    body();
  });
}

}  // namespace brigade::device::internal

#endif  // BRIGADE_DEVICE_THREADS_WORKER_THREAD_H_
