#ifndef BRIGADE_COLLECTIVES_ENGINES_GLOO_CONTROL_CHANNEL_H_
#define BRIGADE_COLLECTIVES_ENGINES_GLOO_CONTROL_CHANNEL_H_

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "brigade/collectives/engines/gloo/control_message.h"
#include "gloo/transport/context.h"
#include "gloo/transport/unbound_buffer.h"

namespace brigade::collectives::internal {

// The top bit tells control messages from payload.
constexpr uint64_t kControlTag = uint64_t{1} << 63;

// A buffer of Gloo over all memory: the offset of an operation is its address. So one buffer serves
// all operations with a peer, however many are pending, and none has to be made for a message.
std::unique_ptr<::gloo::transport::UnboundBuffer> BufferOverAllMemory(
    ::gloo::transport::Context& context);
inline size_t OffsetOf(const void* data) { return reinterpret_cast<size_t>(data); }

// So long that it never ends. Gloo's own timeouts would close every connection.
constexpr std::chrono::milliseconds kForever = std::chrono::hours(24 * 365);

// Short messages beside the payload, and closed connections: one receive a peer is always posted,
// and a thread waits for it.
class ControlChannel {
 public:
  // Called from several threads.
  struct Listener {
    std::function<void(int peer, const ControlMessage& message)> on_message;
    std::function<void(int peer, const absl::Status& reason)> on_closed;
  };

  ControlChannel(::gloo::transport::Context& context, Listener listener);
  ~ControlChannel() { Stop(); }
  ControlChannel(const ControlChannel&) = delete;
  ControlChannel& operator=(const ControlChannel&) = delete;

  // Posts the first receives, and begins the calls to the listener.
  void Start();

  // Ends the calls to the listener. Then waits a moment until all that was sent has left this
  // process, which may end at once.
  void Stop();

  // kAbort and kLeave go to a peer once; later ones are dropped. kAnswer only answers a kProbe. A
  // peer that is gone is left to the listener. Never waits. Safe from any thread.
  void Send(int peer, const ControlMessage& message);

  // Tells all ranks that this one leaves. Never waits.
  void AnnounceLeave();

 private:
  struct Peer {
    std::unique_ptr<::gloo::transport::UnboundBuffer> in, out;
    ControlMessage incoming;
    std::array<ControlMessage, ControlMessage::kKinds> outgoing;
    std::array<std::atomic<bool>, ControlMessage::kKinds> used = {};
    std::atomic<int> sends = 0;
    std::thread thread;
  };

  absl::Status PostReceive(int peer);
  void Watch(int peer, absl::Status posted);

  const int rank_;
  const Listener listener_;
  std::vector<Peer> peers_;
};

}  // namespace brigade::collectives::internal

#endif  // BRIGADE_COLLECTIVES_ENGINES_GLOO_CONTROL_CHANNEL_H_
