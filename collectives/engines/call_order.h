#ifndef BRIGADE_COLLECTIVES_ENGINES_CALL_ORDER_H_
#define BRIGADE_COLLECTIVES_ENGINES_CALL_ORDER_H_

#include <cstdint>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "brigade/device/event.h"
#include "brigade/device/stream.h"

namespace brigade::collectives {

// Lets calls run in the order in which they are made, whatever streams they are on.
class CallOrder {
 public:
  explicit CallOrder(std::unique_ptr<device::Event> last) : last_(std::move(last)) {}

  // What `stream` does next runs after the last call.
  absl::Status Begin(device::Stream& stream) {
    if (stream_id_ == kNone || stream_id_ == stream.id()) return absl::OkStatus();
    return stream.Wait(*last_);
  }

  // The call on `stream` is enqueued.
  absl::Status End(device::Stream& stream) {
    stream_id_ = stream.id();
    return stream.Record(*last_);
  }

 private:
  static constexpr uint64_t kNone = 0;

  // Recorded after each call.
  const std::unique_ptr<device::Event> last_;
  // The stream of the last call.
  uint64_t stream_id_ = kNone;
};

}  // namespace brigade::collectives

#endif  // BRIGADE_COLLECTIVES_ENGINES_CALL_ORDER_H_
