#ifndef BRIGADE_PARALLEL_TENSOR_EXCHANGE_H_
#define BRIGADE_PARALLEL_TENSOR_EXCHANGE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "brigade/device/context.h"
#include "brigade/device/event.h"
#include "brigade/device/stream.h"

namespace brigade::parallel::internal {

// The reasons for which one of the two streams of a rank waits for the other.
enum class WaitPoint : uint8_t {
  // A gather reads own rows after they have been computed, and overwrites gathered ones after they
  // have been used.
  kRowsReady,
  // A product reads rows after they have been gathered.
  kRowsGathered,
  // A sum reads a piece of a product after it has been computed, and writes where that is over.
  kPieceReady,
  // What comes next reads sums, and writes to their scratch, after they are there.
  kSumsReady,
};

// A stream for what ranks exchange beside products, and the waits between it and the stream of the
// products. Without overlap both are one, and nothing waits: the same calls in the same order.
//
// Stream       No call waits on the host; events are made at Create.
class Exchange {
 public:
  // Gathers of at most `pieces` pieces.
  static absl::StatusOr<std::unique_ptr<Exchange>> Create(int pieces, bool overlap,
                                                          device::Context& context);

  // Where calls of the communicator go.
  device::Stream& stream(device::Stream& compute) const {
    return own_ == nullptr ? compute : *own_;
  }

  // What is enqueued on stream() from now on runs after what `compute` has now.
  absl::Status AfterCompute(WaitPoint point, device::Stream& compute);

  // A new gather begins; its pieces are enqueued in order.
  void BeginGather();
  absl::Status Gathered(int piece, device::Stream& compute);
  // What `compute` does from now on reads this piece, and those before it, of the latest gather.
  // Nothing where it has waited for that already.
  absl::Status AwaitGathered(int piece, device::Stream& compute);
  absl::Status AwaitGathered(device::Stream& compute);

  // `compute` goes on after all sums that are enqueued.
  absl::Status AwaitSums(device::Stream& compute);

  // From now on nothing waits at this point: with it a test shows that the race checker reports the
  // wait's absence.
  void OmitWait(WaitPoint point) { omitted_ = point; }

 private:
  Exchange() = default;

  absl::Status Wait(WaitPoint point, device::Event& event, device::Stream& waiter) const;

  // Null without overlap.
  std::unique_ptr<device::Stream> own_;
  std::unique_ptr<device::Event> computed_, summed_;
  // By piece.
  std::vector<std::unique_ptr<device::Event>> gathered_;
  // Of the latest gather: pieces that are enqueued, and that compute has waited for.
  int enqueued_ = 0, awaited_ = 0;
  std::optional<WaitPoint> omitted_;
};

}  // namespace brigade::parallel::internal

#endif  // BRIGADE_PARALLEL_TENSOR_EXCHANGE_H_
