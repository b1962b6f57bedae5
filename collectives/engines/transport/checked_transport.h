#ifndef BRIGADE_COLLECTIVES_ENGINES_TRANSPORT_CHECKED_TRANSPORT_H_
#define BRIGADE_COLLECTIVES_ENGINES_TRANSPORT_CHECKED_TRANSPORT_H_

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "brigade/collectives/collective.h"
#include "brigade/collectives/engines/transport/transport.h"
#include "brigade/device/threads/mutex.h"

namespace brigade::collectives {

// The messages of one call at a time, between ranks that make the same call. Begin starts a call,
// Flush ends it.
//
// Protocol
//   1. The first message of a call from one rank to another is a frame of one capacity, whatever
//      the call: the sender's fingerprint, and the first payload if that has at most kInlineBytes.
//      What it does not fill does not cross the wire. Larger payloads follow as messages of their
//      own.
//   2. A frame goes to every rank to which the call has payload, and to the rank `to` of Begin, at
//      the latest before this rank waits. A frame is expected of every rank of which the call
//      expects payload, and of `from`.
//   3. A wait begins with all frames that are expected so far. When all of them carry the own
//      fingerprint, payload is expected in the caller's memory: nothing is written where another
//      call's payload could land. Large payload to a rank whose frame is expected follows then, so
//      that it is not in the way of what this rank expects of the other.
//   4. A rank that finds another fingerprint aborts the group with both calls, of the lowest rank
//      that it knows of and of the lowest that differs from that one. The others learn it by the
//      transport's abort message.
//   5. In a collective, `to` and `from` are the next and the previous rank. So every two neighbours
//      compare, whatever the partners of their calls are, also if a call has none: where not all
//      calls are the same, two neighbours differ.
//   6. Between two ranks, `to` and `from` are the other one. A send or a receive against a
//      collective is found by a frame where the collective has one between the two: always up to
//      three ranks, and in every collective between neighbours. Otherwise the ranks wait for each
//      other in a circle: DeadlineExceeded at the deadline, with the calls of all of them.
//   A rank that makes no call at all is named at the deadline of a rank that expects its frame.
//
// Checksums    With `verifies` each frame has the CRC-32C of what it carries, and each payload of
//              its own is followed by a message of its CRC-32C. Where what has arrived has another
//              one, the rank that has received it ends the group, before anybody uses it, with an
//              error that names both ends and the call. All ranks verify, or none.
// Order        The caller has sent whatever others need to send their frames before it waits: an
//              executor sends for a stage before it waits in it.
// Errors       InvalidArgument naming both calls if they differ, or both ranks if one verifies.
//              DataLoss for what has arrived damaged. Others as of the transport below.
// Allocation   None, but for the first time that many messages wait for a frame, and for checksums.
// Lifetime     Outlives `transport`, which may use frames until its destruction.
class CheckedTransport final : public Transport {
 public:
  // The largest payload that goes with a fingerprint. Untuned.
  static constexpr int64_t kInlineBytes = 1024;

  explicit CheckedTransport(Transport& transport, bool verifies = false);

  // The calls until Flush belong to the call of this fingerprint. `to` and `from` may be this rank
  // for none.
  absl::Status Begin(const Fingerprint& fingerprint, int to, int from);

  int rank() const override { return transport_.rank(); }
  int size() const override { return transport_.size(); }
  std::string name() const override { return transport_.name(); }

  // No message of a caller has another capacity than its size.
  absl::Status SendUpTo(int to, const void* data, int64_t bytes, int64_t capacity) override;
  absl::Status Expect(int from, void* data, int64_t bytes) override;
  absl::Status Await(int from) override;
  absl::Status Flush() override;

  void Abort(const absl::Status& reason) override { transport_.Abort(reason); }
  absl::Status status() const override { return transport_.status(); }
  int64_t sent_bytes(int to) const override { return transport_.sent_bytes(to); }

 private:
  static constexpr int64_t kNoChecksum = -1;

  struct Frame {
    Fingerprint fingerprint;
    // Of the payload; -1 for none.
    int64_t inline_bytes = -1;
    // Of what stands before it and of the payload; below 0: the sender does not verify. So no flip
    // of one bit of kNoChecksum but that of its sign counts for a sender that does.
    int64_t checksum = kNoChecksum;
    char payload[kInlineBytes];
  };
  struct Outgoing {
    int to;
    const void* data;
    int64_t bytes;
  };
  struct Incoming {
    void* data;
    int64_t bytes;
  };
  // Payload that has a message of its own, and the checksum that follows it.
  struct Verified {
    const void* data;
    int64_t bytes;
    uint32_t checksum;
  };
  enum class FrameState { kNotExpected, kExpected, kChecked };
  // What the call has exchanged with another rank.
  struct Peer {
    Frame out, in;
    // Whether `out` is sent.
    bool is_sent = false;
    // Of the frame `in`.
    FrameState state = FrameState::kNotExpected;
    // Whether `in` holds payload that the caller has not expected yet.
    bool has_payload = false;
    // Whether the payload of `in` is at its place, and not awaited yet.
    bool has_arrived = false;
    // Payload to expect when the frame is checked.
    std::vector<Incoming> deferred;
    // What is expected and not awaited yet, and what the call has sent; where they stay until then.
    std::deque<Verified> expected;
    std::deque<uint32_t> sent;
  };

  static uint32_t ChecksumOf(const Frame& frame);
  absl::Status SendFrame(int to, const void* payload, int64_t bytes);
  absl::Status SendPayload(int to, const void* data, int64_t bytes);
  absl::Status ExpectFrame(int from);
  absl::Status ExpectPayload(int from, const Incoming& payload);
  absl::Status CheckFrames();
  absl::Status CompareFrames();
  absl::Status VerifyFrame(int from);
  // Ends the group: a message of that rank has arrived damaged.
  absl::Status Damaged(int from);
  // Ends the group: `finding` numbers ranks as the group does, so its name stands in front.
  absl::Status End(absl::StatusCode code, absl::string_view finding);
  std::string Activity() const;

  Transport& transport_;
  const bool verifies_;
  std::vector<Peer> peers_;
  Fingerprint mine_;
  int to_ = 0;
  // Ranks whose frames are expected, and not checked yet.
  std::vector<int> unchecked_;
  // Payload to send then.
  std::vector<Outgoing> deferred_;

  // What Activity tells other threads: mine_ from Begin to Flush.
  mutable device::Mutex mutex_;
  std::optional<Fingerprint> activity_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace brigade::collectives

#endif  // BRIGADE_COLLECTIVES_ENGINES_TRANSPORT_CHECKED_TRANSPORT_H_
