#include "brigade/collectives/engines/gloo/post_queue.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <utility>

#include "brigade/collectives/engines/gloo/mesh.h"

namespace brigade::collectives::internal {
namespace {

// Posts; the first time that more are queued costs an allocation.
constexpr size_t kReserved = 256;

}  // namespace

PostQueue::Event::Event() : fd(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
  if (fd < 0) throw std::system_error(errno, std::generic_category(), "eventfd");
}

PostQueue::Event::~Event() { close(fd); }

PostQueue::PostQueue(std::shared_ptr<::gloo::transport::tcp::Device> device, OnError on_error)
    : device_(std::move(device)), on_error_(std::move(on_error)) {
  pushed_.reserve(kReserved);
  posting_.reserve(kReserved);
  device_->registerDescriptor(event_.fd, EPOLLIN, this);
}

PostQueue::~PostQueue() { Stop(); }

void PostQueue::Push(const Post& post) {
  device::MutexLock lock(mutex_);
  pushed_.push_back(post);
}

void PostQueue::Wake() {
  {
    device::MutexLock lock(mutex_);
    if (awake_ || pushed_.empty()) return;
    awake_ = true;
  }
  eventfd_write(event_.fd, 1);
}

void PostQueue::Stop() {
  {
    device::MutexLock turn(turn_);
    if (stopped_) return;
    stopped_ = true;
  }
  device_->unregisterDescriptor(event_.fd, this);  // waits until Gloo's thread has let go of it
}

void PostQueue::handleEvents(int) {
  device::MutexLock turn(turn_);
  if (stopped_) return;
  eventfd_t value;
  eventfd_read(event_.fd, &value);
  {
    device::MutexLock lock(mutex_);
    awake_ = false;
    posting_.swap(pushed_);
  }
  for (const Post& post : posting_) {
    const absl::Status status = Guarded([&] {
      if (post.kind == Post::kSend) {
        post.buffer->send(post.peer, post.tag, post.offset, post.bytes);
      } else {
        post.buffer->recv(post.peer, post.tag, post.offset, post.bytes);
      }
    });
    if (!status.ok()) on_error_(post.peer, status);
  }
  posting_.clear();
}

}  // namespace brigade::collectives::internal
