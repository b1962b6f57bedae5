#ifndef BRIGADE_COLLECTIVES_ENGINES_GLOO_TRANSPORT_IMPL_H_
#define BRIGADE_COLLECTIVES_ENGINES_GLOO_TRANSPORT_IMPL_H_

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "brigade/collectives/engines/gloo/control_channel.h"
#include "brigade/collectives/engines/gloo/gloo_transport.h"
#include "brigade/collectives/engines/gloo/mesh.h"
#include "brigade/collectives/engines/gloo/post_queue.h"
#include "gloo/transport/unbound_buffer.h"

namespace brigade::collectives::internal {

// The calls are in gloo_transport.cc, what ends a wait before its time is in faults.cc.
class TransportImpl final : public GlooTransport {
 public:
  // `mesh` is empty in a group of one.
  TransportImpl(const GlooOptions& options, Mesh mesh);
  ~TransportImpl() override;

  int rank() const override { return options_.rank; }
  int size() const override { return options_.size; }
  const std::shared_ptr<Store>& store() const override { return options_.store; }

  absl::Status Send(int to, const void* data, int64_t bytes) override;
  absl::Status Expect(int from, void* data, int64_t bytes) override;
  absl::Status Await(int from) override;
  absl::Status Flush() override;
  void Abort(const absl::Status& reason) override;
  absl::Status status() const override;
  int64_t sent_bytes(int to) const override;

 private:
  using Clock = std::chrono::steady_clock;

  struct Peer {
    std::unique_ptr<::gloo::transport::UnboundBuffer> in, out;
    // Messages so far.
    uint64_t sent = 0, flushed = 0, expected = 0, awaited = 0;
    std::atomic<int64_t> sent_bytes = 0;
    // Guarded by mutex_.
    bool left = false;
    bool answered = false;
    int waits_for = -1;  // its answer
  };

  // What this rank waits for; guarded by mutex_.
  struct Waiting {
    int peer = -1;
    uint64_t number = 0;  // tells one wait from the next
    const char* failing = "";
    Clock::time_point deadline;
  };

  absl::Status Check(const char* call, int peer, const void* data, int64_t bytes);
  absl::Status Wait(int peer, const char* failing, absl::FunctionRef<bool()> wait);
  bool Works();
  void EndWaits();
  void Lose(int peer, const absl::Status& reason);
  absl::Status FinalError();
  void Fail(const absl::Status& reason, int reporter);

  // From Gloo's thread.
  void Break(int peer, const absl::Status& reason);

  // From the threads of control_.
  void Hear(int peer, const ControlMessage& message);
  void Miss(int peer, const absl::Status& reason);

  // From watchdog_.
  void WatchDeadlines();
  std::string NameCulprit(const Waiting& waiting);
  bool Probe(int peer, Clock::time_point deadline, int& waits_for);

  const GlooOptions options_;
  const Clock::duration timeout_;
  const Mesh mesh_;
  std::vector<Peer> peers_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::atomic<bool> failed_ = false;
  std::atomic<int> broken_ = -1;  // the first peer to which nothing could be posted
  absl::Status why_broken_;       // written before
  absl::Status status_;
  Waiting waiting_;
  bool closing_ = false;
  bool lost_ = false;  // a peer, of which a final error is about to be made

  std::optional<ControlChannel> control_;
  std::optional<PostQueue> posts_;
  std::thread watchdog_;
};

}  // namespace brigade::collectives::internal

#endif  // BRIGADE_COLLECTIVES_ENGINES_GLOO_TRANSPORT_IMPL_H_
