#ifndef BRIGADE_DEVICE_THREADS_START_THREAD_H_
#define BRIGADE_DEVICE_THREADS_START_THREAD_H_

#include <thread>
#include <utility>

namespace brigade::device {

// A thread that runs `body`; one that is not joinable if the system refuses. std::thread reports
// that by an exception, which ends here; in code without exceptions it ends the process.
template <typename F>
std::thread StartThread(F body) noexcept {
#ifdef __cpp_exceptions
  try {
    return std::thread(std::move(body));
  } catch (...) {
    return std::thread();
  }
#else
  return std::thread(std::move(body));
#endif
}

}  // namespace brigade::device

#endif  // BRIGADE_DEVICE_THREADS_START_THREAD_H_
