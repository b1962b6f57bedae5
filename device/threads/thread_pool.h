#ifndef BRIGADE_DEVICE_THREADS_THREAD_POOL_H_
#define BRIGADE_DEVICE_THREADS_THREAD_POOL_H_

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <type_traits>
#include <vector>
#include "brigade/device/threads/mutex.h"

namespace brigade::device {

// The compute threads of a context: they help the thread that calls ParallelFor.
//
// Threads      Any number of threads may call at once, also from inside a chunk: a caller works on
//              its own job until it is done, so a busy pool costs speed, never progress.
// Order        Chunks are handed out in ascending order and may run at the same time; nothing else
//              is promised. A result that must not depend on the number of threads depends on the
//              chunk only.
// Allocation   None after construction: a job lives on its caller's stack.
// Why          docs/decisions/0010-own-thread-pool.md.
class ThreadPool {
 public:
  // `threads` >= 1 counts the caller: 1 means no threads of its own. If the system refuses some,
  // the pool has fewer.
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  // How many threads one call may use, the caller's included.
  int threads() const { return static_cast<int>(workers_.size()) + 1; }

  // Calls fn(0), ..., fn(chunks - 1), each once, and returns when all have returned. fn must not
  // throw.
  template <typename F>
  void ParallelFor(int64_t chunks, F&& fn) {
    if (chunks <= 1 || workers_.empty()) {
      for (int64_t chunk = 0; chunk < chunks; ++chunk) fn(chunk);
      return;
    }
    using Function = std::remove_reference_t<F>;
    Job job;
    job.chunks = chunks;
    job.function = const_cast<void*>(static_cast<const void*>(std::addressof(fn)));
    job.call = [](void* function, int64_t chunk) { (*static_cast<Function*>(function))(chunk); };
    Run(job);
  }

  // Cuts [0, size) into ranges of `grain` (the last may be shorter) and calls fn(begin, end) for
  // each. grain >= 1.
  template <typename F>
  void ParallelRanges(int64_t size, int64_t grain, F&& fn) {
    const int64_t chunks = size / grain + (size % grain != 0 ? 1 : 0);
    ParallelFor(chunks, [&](int64_t chunk) {
      const int64_t begin = chunk * grain;
      fn(begin, begin + std::min(grain, size - begin));
    });
  }

 private:
  struct Job {
    void* function = nullptr;
    void (*call)(void* function, int64_t chunk) = nullptr;
    int64_t chunks = 0;
    // The first chunk that no thread has taken.
    std::atomic<int64_t> next{0};
    // Workers that hold a pointer to this job; rises only under mutex_.
    std::atomic<int> helpers{0};
    // Guarded by mutex_.
    Job* next_job = nullptr;
  };

  static void TakeChunks(Job& job);
  void Run(Job& job);
  void WorkerLoop();
  // Counts this thread as a helper of the job returned.
  Job* FindWork() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  Mutex mutex_;
  CondVar work_arrived_;
  CondVar helper_left_;
  // The jobs whose callers are in Run.
  Job* first_job_ ABSL_GUARDED_BY(mutex_) = nullptr;
  // The number of those jobs, which idle workers poll.
  std::atomic<int> open_jobs_{0};
  int sleepers_ ABSL_GUARDED_BY(mutex_) = 0;
  bool closing_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> workers_;
};

}  // namespace brigade::device

#endif  // BRIGADE_DEVICE_THREADS_THREAD_POOL_H_
