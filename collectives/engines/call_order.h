#ifndef BRIGADE_COLLECTIVES_ENGINES_CALL_ORDER_H_
#define BRIGADE_COLLECTIVES_ENGINES_CALL_ORDER_H_

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "brigade/device/context.h"
#include "brigade/device/event.h"
#include "brigade/device/status_macros.h"
#include "brigade/device/stream.h"

namespace brigade::collectives {

// Lets calls run in the order in which they are made, whatever streams they are on.
//
// Graphs       Calls in one capture of a CUDA graph have an order among themselves, and calls
//              outside of captures have one: between a graph and the rest the launches decide.
class CallOrder {
 public:
  // `name` is for the events.
  static absl::StatusOr<CallOrder> Create(device::Context& context, absl::string_view name) {
    CallOrder order;
    for (Last* last : {&order.outside_, &order.captured_}) {
      BRIGADE_ASSIGN_OR_RETURN(last->event, context.CreateEvent(name));
    }
    return order;
  }

  // What `stream` does next runs after the last call.
  absl::Status Begin(device::Stream& stream) {
    const uint64_t capture_id = stream.capture_id();
    const Last& last = LastIn(capture_id);
    const bool is_first = last.stream_id == kNone || last.capture_id != capture_id;
    if (is_first || last.stream_id == stream.id()) return absl::OkStatus();
    return stream.Wait(*last.event);
  }

  // The call on `stream` is enqueued.
  absl::Status End(device::Stream& stream) {
    const uint64_t capture_id = stream.capture_id();
    Last& last = LastIn(capture_id);
    last.stream_id = stream.id();
    last.capture_id = capture_id;
    return stream.Record(*last.event);
  }

 private:
  static constexpr uint64_t kNone = 0;

  struct Last {
    // Recorded after each call.
    std::unique_ptr<device::Event> event;
    uint64_t stream_id = kNone;
    uint64_t capture_id = kNone;
  };

  CallOrder() = default;
  Last& LastIn(uint64_t capture_id) { return capture_id == kNone ? outside_ : captured_; }

  Last outside_, captured_;
};

}  // namespace brigade::collectives

#endif  // BRIGADE_COLLECTIVES_ENGINES_CALL_ORDER_H_
