#ifndef BRIGADE_ZERO_INTERNAL_STEP_STREAMS_H_
#define BRIGADE_ZERO_INTERNAL_STEP_STREAMS_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "brigade/collectives/communicator.h"
#include "brigade/device/buffer.h"
#include "brigade/device/context.h"
#include "brigade/device/event.h"
#include "brigade/device/stream.h"
#include "brigade/precision/dtype.h"
#include "brigade/zero/options.h"
#include "brigade/zero/plan/traffic.h"

namespace brigade::zero::internal {

// The two streams of a rank, the waits between them, and what goes over the wire.
class StepStreams {
 public:
  static absl::StatusOr<std::unique_ptr<StepStreams>> Create(
      const ZeroOptions& options, collectives::Communicator& communicator, device::Context& context,
      device::Stream& compute);

  device::Context& context() { return context_; }
  device::Stream& compute() { return compute_; }
  // The communication stream; the compute stream without overlap.
  device::Stream& comm() { return own_ == nullptr ? compute_ : *own_; }
  int rank() const { return communicator_.rank(); }
  int ranks() const { return communicator_.size(); }
  collectives::Communicator& communicator() { return communicator_; }

  // One of the waits between the two.
  absl::Status Wait(WaitPoint point, device::Event& event, device::Stream& waiter);

  // With checks on, all bits 1: who reads what was given back gets NaN.
  absl::Status Poison(const device::Buffer& memory, device::Stream& stream);

  // Every rank's bytes, as long on all ranks, in order of ranks. Waits.
  absl::StatusOr<std::vector<std::string>> Share(const std::string& bytes);

  // On the communication stream; `sent` is the line of the books that pays.
  absl::Status ReduceScatter(const void* input, void* output, int64_t count, precision::DType dtype,
                             int64_t& sent);
  absl::Status AllGather(const void* input, void* output, int64_t count, precision::DType dtype,
                         int64_t& sent);
  // From rank 0, in entry.
  absl::Status Broadcast(void* data, int64_t count, precision::DType dtype, int64_t& sent);

  Traffic traffic;

 private:
  StepStreams(const ZeroOptions& options, collectives::Communicator& communicator,
              device::Context& context, device::Stream& compute);

  const collectives::Reduction reduction_;
  const collectives::Algorithm algorithm_;
  const std::optional<WaitPoint> leave_out_;
  collectives::Communicator& communicator_;
  device::Context& context_;
  device::Stream& compute_;
  std::unique_ptr<device::Stream> own_;  // null without overlap
};

}  // namespace brigade::zero::internal

#endif  // BRIGADE_ZERO_INTERNAL_STEP_STREAMS_H_
