#ifndef BRIGADE_COLLECTIVES_ENGINES_CALL_ORDER_H_
#define BRIGADE_COLLECTIVES_ENGINES_CALL_ORDER_H_

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
    if (stream_ == nullptr || stream_ == &stream) return absl::OkStatus();
    return stream.Wait(*last_);
  }

  // The call on `stream` is enqueued.
  absl::Status End(device::Stream& stream) {
    stream_ = &stream;
    return stream.Record(*last_);
  }

 private:
  const std::unique_ptr<device::Event> last_;  // recorded after each call
  const device::Stream* stream_ = nullptr;     // of the last call
};

}  // namespace brigade::collectives

#endif  // BRIGADE_COLLECTIVES_ENGINES_CALL_ORDER_H_
