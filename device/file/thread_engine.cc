#include "brigade/device/file/thread_engine.h"

#include <signal.h>

#include <cerrno>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "brigade/device/threads/mutex.h"
#include "brigade/device/threads/start_thread.h"

namespace brigade::device::internal {
namespace {

// First in, first out.
class RequestList {
 public:
  bool empty() const { return first_ == nullptr; }

  void Push(FileRequest& request) {
    request.next = nullptr;
    (empty() ? first_ : last_->next) = &request;
    last_ = &request;
  }

  FileRequest& Pop() {
    FileRequest& request = *first_;
    first_ = request.next;
    return request;
  }

 private:
  FileRequest* first_ = nullptr;
  FileRequest* last_ = nullptr;
};

class ThreadQueue final : public FileQueue {
 public:
  ThreadQueue(SystemCalls& system, int depth) : system_(system) {
    threads_.reserve(static_cast<size_t>(depth));
    for (int i = 0; i < depth; ++i) {
      std::thread thread = StartThread([this] { Loop(); });
      if (!thread.joinable()) break;
      threads_.push_back(std::move(thread));
    }
  }

  ~ThreadQueue() override {
    {
      MutexLock lock(mutex_);
      stopping_ = true;
      started_some_.SignalAll();
    }
    for (std::thread& thread : threads_) thread.join();
  }

  int threads() const { return static_cast<int>(threads_.size()); }

  void Start(FileRequest& request) override {
    MutexLock lock(mutex_);
    started_.Push(request);
    started_some_.Signal();
  }

  FileRequest& Next() override {
    MutexLock lock(mutex_);
    while (ended_.empty()) ended_some_.Wait(mutex_);
    return ended_.Pop();
  }

 private:
  void Loop() {
    // Signals are for the threads of the program; SIGXFSZ would end it.
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, nullptr);

    MutexLock lock(mutex_);
    for (;;) {
      while (started_.empty() && !stopping_) started_some_.Wait(mutex_);
      if (started_.empty()) return;
      FileRequest& request = started_.Pop();
      lock.Unlock();
      Carry(request);
      lock.Lock();
      ended_.Push(request);
      ended_some_.Signal();
    }
  }

  void Carry(FileRequest& request) {
    const auto bytes = static_cast<size_t>(request.bytes);
    const ssize_t done = request.write
                             ? system_.WriteAt(request.fd, request.data, bytes, request.offset)
                             : system_.ReadAt(request.fd, request.data, bytes, request.offset);
    request.result = done < 0 ? -errno : done;
  }

  SystemCalls& system_;
  Mutex mutex_;
  CondVar started_some_;
  CondVar ended_some_;
  RequestList started_ ABSL_GUARDED_BY(mutex_);
  RequestList ended_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

class ThreadEngine final : public FileEngine {
 public:
  ThreadEngine(SystemCalls& system, std::string reason)
      : system_(system), reason_(std::move(reason)) {}

  std::string description() const override {
    return reason_.empty() ? "threads" : absl::StrCat("threads (", reason_, ")");
  }

  absl::StatusOr<std::unique_ptr<FileQueue>> CreateQueue(int depth) override {
    auto queue = std::make_unique<ThreadQueue>(system_, depth);
    if (queue->threads() < depth) {
      return absl::ResourceExhaustedError(absl::StrCat("the system refuses more than ",
                                                       queue->threads(), " of ", depth,
                                                       " threads for transfers"));
    }
    return queue;
  }

 private:
  SystemCalls& system_;
  const std::string reason_;
};

}  // namespace

std::unique_ptr<FileEngine> CreateThreadEngine(SystemCalls& system, std::string reason) {
  return std::make_unique<ThreadEngine>(system, std::move(reason));
}

}  // namespace brigade::device::internal
