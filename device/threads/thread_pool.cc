#include "brigade/device/threads/thread_pool.h"

#include "brigade/device/threads/spin.h"
#include "brigade/device/threads/worker_thread.h"

namespace brigade::device {

ThreadPool::ThreadPool(int threads) {
  workers_.reserve(static_cast<size_t>(std::max(threads - 1, 0)));
  for (int i = 1; i < threads; ++i) {
    std::thread worker = internal::StartWorkerThread([this] { WorkerLoop(); });
    if (!worker.joinable()) break;
    workers_.push_back(std::move(worker));
  }
}

ThreadPool::~ThreadPool() {
  {
    MutexLock lock(mutex_);
    closing_ = true;
  }
  work_arrived_.SignalAll();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::TakeChunks(Job& job) {
  for (;;) {
    const int64_t chunk = job.next.fetch_add(1, std::memory_order_relaxed);
    if (chunk >= job.chunks) return;
    job.call(job.function, chunk);
  }
}

void ThreadPool::Run(Job& job) {
  int64_t wake = 0;
  {
    MutexLock lock(mutex_);
    job.next_job = first_job_;
    first_job_ = &job;
    open_jobs_.fetch_add(1, std::memory_order_relaxed);
    wake = std::min<int64_t>(sleepers_, job.chunks - 1);
  }
  for (int64_t i = 0; i < wake; ++i) work_arrived_.Signal();

  TakeChunks(job);

  {
    // Out of the list no worker finds the job any more, so `helpers` only falls.
    MutexLock lock(mutex_);
    Job** link = &first_job_;
    while (*link != &job) link = &(*link)->next_job;
    *link = job.next_job;
    open_jobs_.fetch_sub(1, std::memory_order_relaxed);
  }
  const auto alone = [&job] { return job.helpers.load(std::memory_order_acquire) == 0; };
  if (SpinUntil(alone)) return;
  MutexLock lock(mutex_);
  while (!alone()) helper_left_.Wait(mutex_);
}

ThreadPool::Job* ThreadPool::FindWork() {
  for (Job* job = first_job_; job != nullptr; job = job->next_job) {
    if (job->next.load(std::memory_order_relaxed) >= job->chunks) continue;
    job->helpers.fetch_add(1, std::memory_order_relaxed);
    return job;
  }
  return nullptr;
}

void ThreadPool::WorkerLoop() {
  MutexLock lock(mutex_);
  for (;;) {
    if (Job* const job = FindWork(); job != nullptr) {
      lock.Unlock();
      TakeChunks(*job);
      lock.Lock();
      // The last touch: after it the caller may leave and take the job with it.
      if (job->helpers.fetch_sub(1, std::memory_order_release) == 1) helper_left_.SignalAll();
      continue;
    }
    if (closing_) return;
    // A job without chunks left stays open until its caller leaves; spinning on that would be
    // polling for nothing.
    if (open_jobs_.load(std::memory_order_relaxed) == 0) {
      lock.Unlock();
      SpinUntil([this] { return open_jobs_.load(std::memory_order_relaxed) != 0; });
      lock.Lock();
      if (first_job_ != nullptr) continue;
      if (closing_) return;
    }
    ++sleepers_;
    work_arrived_.Wait(mutex_);
    --sleepers_;
  }
}

}  // namespace brigade::device
