#include "brigade/collectives/engines/gloo/proved_pair.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <system_error>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "brigade/device/threads/mutex.h"

namespace brigade::collectives::internal {
namespace {

using ::gloo::transport::tcp::Device;

// Of the size that Gloo's library expects; of missing/gloo/common/memory.h, where that is missing.
static_assert(sizeof(::gloo::WeakNonOwningPtr<int>) == sizeof(std::weak_ptr<int>));

// A call in the device's thread, which handles no event meanwhile.
class DeviceCall final : public ::gloo::transport::tcp::Handler {
 public:
  // Returns when it is over. Throws what `call` throws.
  static void Run(Device& device, std::function<void()> call) {
    DeviceCall device_call(device, std::move(call));
    device_call.Await();
  }

 private:
  DeviceCall(Device& device, std::function<void()> call)
      : device_(device), call_(std::move(call)), event_(eventfd(1, EFD_CLOEXEC)) {
    if (event_.fd() < 0) throw std::system_error(errno, std::generic_category(), "eventfd");
  }

  void Await() {
    device_.registerDescriptor(event_.fd(), EPOLLIN, this);
    device::MutexLock lock(mutex_);
    while (!is_over_) changed_.Wait(mutex_);
    if (thrown_) std::rethrow_exception(thrown_);
  }

  void handleEvents(int) override {
    std::exception_ptr thrown;
    try {
      device_.unregisterDescriptor(event_.fd(), this);
      call_();
    } catch (...) {
      thrown = std::current_exception();
    }
    device::MutexLock lock(mutex_);
    thrown_ = thrown;
    is_over_ = true;
    changed_.Signal();
  }

  Device& device_;
  const std::function<void()> call_;
  // Readable at once.
  const Socket event_;

  device::Mutex mutex_;
  device::CondVar changed_;
  bool is_over_ ABSL_GUARDED_BY(mutex_) = false;
  std::exception_ptr thrown_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

ProvedPair::ProvedPair(::gloo::transport::tcp::Context* context,
                       ::gloo::transport::tcp::Device* device, int rank,
                       std::chrono::milliseconds timeout)
    : Pair(context, device, rank, timeout) {
  const std::lock_guard<std::mutex> lock(m_);
  device_->unregisterDescriptor(fd_, this);
  ::close(std::exchange(fd_, -1));
  state_ = INITIALIZING;
}

ProvedPair::~ProvedPair() {
  // Ends the calls of the device's thread: from here on they would reach the base.
  const std::lock_guard<std::mutex> lock(m_);
  if (state_ != CLOSED) changeState(CLOSED);
}

void ProvedPair::Adopt(Socket socket) {
  const std::lock_guard<std::mutex> lock(m_);
  fd_ = socket.fd();
  try {
    handleConnected();
  } catch (...) {
    // Registering it is the last thing that may throw.
    fd_ = -1;
    throw;
  }
  socket.Release();
}

void ProvedPair::handleEvents(int events) {
  // As the base does: who holds it may wait for this thread.
  const std::unique_lock<std::mutex> lock(m_, std::try_to_lock);
  // One that this thread has closed may have an event left.
  if (!lock || state_ != CONNECTED) return;
  try {
    handleReadWrite(events);
  } catch (...) {
    if (ex_ == nullptr) signalException(std::current_exception());
  }
}

void ProvedContext::CreatePairs() {
  DeviceCall::Run(*device_, [this] {
    for (int other = 0; other < size; ++other) {
      if (other == rank) continue;
      pairs_[static_cast<size_t>(other)] =
          std::make_unique<ProvedPair>(this, device_.get(), other, getTimeout());
    }
  });
}

}  // namespace brigade::collectives::internal
