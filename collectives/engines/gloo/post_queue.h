#ifndef BRIGADE_COLLECTIVES_ENGINES_GLOO_POST_QUEUE_H_
#define BRIGADE_COLLECTIVES_ENGINES_GLOO_POST_QUEUE_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "brigade/collectives/engines/gloo/gloo_release.h"
#include "brigade/device/threads/mutex.h"
#include "gloo/transport/tcp/device.h"
#include "gloo/transport/unbound_buffer.h"

namespace brigade::collectives::internal {

// Sends and receives, which Gloo's own thread posts.
//
// Why          A post writes to a connection with its lock held. Gloo's thread, which reads from
//              the same connection, does not wait for that lock: it polls, and where it took the
//              core from the thread that holds it, it polls until the scheduler's next tick, 4 ms
//              on many machines. With two ranks a core most small messages met that, and a call
//              took 2 to 3 times as long. Posted by the thread that reads, only control messages,
//              which are rare, meet a lock.
// Order        That of Push.
// Errors       on_error(peer, reason) for each post that Gloo refuses, from Gloo's thread.
//              std::exception from the constructor where the system gives no eventfd.
// Limits       decision 0031: what the system says of a connection that timed out after many
//              minutes.
class PostQueue final : public ::gloo::transport::tcp::Handler {
 public:
  struct Post {
    enum Kind { kSend, kReceive };

    // Stays until Stop.
    ::gloo::transport::UnboundBuffer* buffer;
    Kind kind;
    int peer;
    uint64_t tag;
    size_t offset, bytes;
  };
  using OnError = std::function<void(int peer, const absl::Status& reason)>;

  PostQueue(std::shared_ptr<::gloo::transport::tcp::Device> device, OnError on_error);
  ~PostQueue() override;
  PostQueue(const PostQueue&) = delete;
  PostQueue& operator=(const PostQueue&) = delete;

  // Nothing happens before Wake.
  void Push(const Post& post);
  void Wake();

  // Waits for what is being posted; the rest is dropped, now and from now on. Not from on_error,
  // nor with a lock that on_error takes.
  void Stop();

 private:
  void handleEvents(int events) override;

  struct Event {
    Event();
    ~Event();
    // Of eventfd(2).
    const int fd;
  };

  const std::shared_ptr<::gloo::transport::tcp::Device> device_;
  const OnError on_error_;
  const Event event_;

  // Held while Gloo's thread posts.
  device::Mutex turn_;
  bool stopped_ ABSL_GUARDED_BY(turn_) = false;
  std::vector<Post> posting_ ABSL_GUARDED_BY(turn_);

  device::Mutex mutex_;
  std::vector<Post> pushed_ ABSL_GUARDED_BY(mutex_);
  // Whether event_ was written since Gloo's thread took pushed_.
  bool awake_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace brigade::collectives::internal

#endif  // BRIGADE_COLLECTIVES_ENGINES_GLOO_POST_QUEUE_H_
