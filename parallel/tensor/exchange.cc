#include "brigade/parallel/tensor/exchange.h"

#include <algorithm>
#include <utility>

#include "brigade/device/status_macros.h"

namespace brigade::parallel::internal {

absl::StatusOr<std::unique_ptr<Exchange>> Exchange::Create(int pieces, bool overlap,
                                                           device::Context& context) {
  std::unique_ptr<Exchange> exchange(new Exchange());
  if (!overlap) return exchange;
  BRIGADE_ASSIGN_OR_RETURN(exchange->own_, context.CreateStream("tensor exchange"));
  BRIGADE_ASSIGN_OR_RETURN(exchange->computed_, context.CreateEvent("piece computed"));
  BRIGADE_ASSIGN_OR_RETURN(exchange->summed_, context.CreateEvent("pieces summed"));
  for (int p = 0; p < pieces; ++p) {
    BRIGADE_ASSIGN_OR_RETURN(auto event, context.CreateEvent("piece gathered"));
    exchange->gathered_.push_back(std::move(event));
  }
  return exchange;
}

absl::Status Exchange::Wait(WaitPoint point, device::Event& event, device::Stream& waiter) const {
  if (omitted_ == point) return absl::OkStatus();
  return waiter.Wait(event);
}

absl::Status Exchange::AfterCompute(WaitPoint point, device::Stream& compute) {
  if (own_ == nullptr) return absl::OkStatus();
  BRIGADE_RETURN_IF_ERROR(compute.Record(*computed_));
  return Wait(point, *computed_, *own_);
}

void Exchange::BeginGather() { enqueued_ = awaited_ = 0; }

absl::Status Exchange::Gathered(int piece, device::Stream& compute) {
  if (own_ == nullptr) return absl::OkStatus();
  enqueued_ = piece + 1;
  return stream(compute).Record(*gathered_[static_cast<size_t>(piece)]);
}

absl::Status Exchange::AwaitGathered(int piece, device::Stream& compute) {
  // Pieces are gathered in order, and after those of earlier gathers.
  piece = std::min(piece, enqueued_ - 1);
  if (piece < awaited_) return absl::OkStatus();
  awaited_ = piece + 1;
  return Wait(WaitPoint::kRowsGathered, *gathered_[static_cast<size_t>(piece)], compute);
}

absl::Status Exchange::AwaitGathered(device::Stream& compute) {
  return AwaitGathered(enqueued_ - 1, compute);
}

absl::Status Exchange::AwaitSums(device::Stream& compute) {
  if (own_ == nullptr) return absl::OkStatus();
  BRIGADE_RETURN_IF_ERROR(own_->Record(*summed_));
  return Wait(WaitPoint::kSumsReady, *summed_, compute);
}

}  // namespace brigade::parallel::internal
