#ifndef BRIGADE_DIGESTS_STEP_DIGESTS_H_
#define BRIGADE_DIGESTS_STEP_DIGESTS_H_

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "brigade/checkpoint/model_part.h"
#include "brigade/collectives/collective.h"
#include "brigade/collectives/communicator.h"
#include "brigade/device/buffer.h"
#include "brigade/device/context.h"
#include "brigade/digests/tensor_map.h"
#include "brigade/kernels/digest/digest_math.h"
#include "brigade/zero/step_observer.h"
#include "brigade/zero/zero_optimizer.h"

namespace brigade::digests {

// What of a step has digests (kernels/digest).
enum class DigestKind : uint8_t {
  // As the passes had them: all that this rank has whole, or its slices.
  kWeights,
  // The sums of which the update is made, times the loss scale: this rank's slices.
  kGradients,
  // As the update has left them: this rank's slices.
  kUpdated,
};
inline constexpr int kDigestKinds = 3;

// What one rank has of the model, as all ranks know it.
struct RankShare {
  // Its number among those that share a state, and of that group.
  int place = 0;
  int shard_group = 0;
  // Its first tensor shard.
  int first_shard = 0;
  // It has weights whole, not slices of them.
  bool has_whole_weights = false;
  // By tensor.
  std::vector<char> holds, is_cut, counts;
};

// The digests of a step on all ranks, [rank][kind][tensor]; zeros of what a rank does not have.
class DigestTable {
 public:
  DigestTable(absl::Span<const kernels::TensorDigest> all, int tensors)
      : all_(all), tensors_(tensors) {}
  const kernels::TensorDigest& Of(int rank, DigestKind kind, int tensor) const {
    const int64_t row = int64_t{rank} * kDigestKinds + static_cast<int64_t>(kind);
    return all_[static_cast<size_t>(row * tensors_ + tensor)];
  }

 private:
  absl::Span<const kernels::TensorDigest> all_;
  int tensors_;
};

// Takes the digests of steps of a ZeroOptimizer where gradients and weights are, and sends them to
// all ranks, in the order of its communication stream: nothing waits.
//
//   Begin();  ... passes ...;  zero.Step();  Enqueue(slot);  ... wait ...;  Table(slot)
//
// Memory       StepDigestBytes, of the device and of the host, purpose scratch, at Create; and the
//              communicator's workspace for `signature`.
// Traffic      An all-gather of 48 bytes for each tensor of the model, over `ranks`, for each step
//              that has digests; it reads the weights that are there and the slices of gradients
//              and weights once each.
// Errors       Those of the parts. FailedPrecondition as of ZeroOptimizer::Observe.
class StepDigests final : public zero::StepObserver {
 public:
  // A call of all `ranks`, whose groups share one model; waits. All must outlive it. `in_flight`:
  // slots, of steps whose digests are in memory at a time.
  static absl::StatusOr<std::unique_ptr<StepDigests>> Create(const checkpoint::ModelPart& part,
                                                             int in_flight,
                                                             zero::ZeroOptimizer& zero,
                                                             collectives::Communicator& ranks,
                                                             device::Context& context);

  // Of the next step, shown to `beside` too if that is not null. `weights`: with those of
  // DigestKind::kWeights; `updated`: with those of DigestKind::kUpdated.
  absl::Status Begin(bool weights, bool updated, zero::StepObserver* beside = nullptr);
  // Behind the step, on step_stream().
  absl::Status Enqueue(int slot);
  // When step_stream() has come so far.
  DigestTable Table(int slot) const;

  const TensorMap& map() const { return map_; }
  // By rank.
  const std::vector<RankShare>& shares() const { return shares_; }
  // The all-gather.
  collectives::CollectiveSignature signature() const;
  // The sum over ranks that count it: of the whole tensor.
  kernels::TensorDigest Sum(const DigestTable& table, DigestKind kind, int tensor) const;

  absl::Status OnWeights(absl::Span<const zero::ObservedArray> weights,
                         device::Stream& stream) override;
  absl::Status OnGradients(absl::Span<const zero::ObservedArray> gradients,
                           device::Stream& stream) override;
  absl::Status OnUpdated(absl::Span<const zero::ObservedArray> weights,
                         device::Stream& stream) override;

 private:
  StepDigests(TensorMap map, zero::ZeroOptimizer& zero, collectives::Communicator& ranks)
      : map_(std::move(map)), zero_(zero), ranks_(ranks) {}

  absl::Status Add(DigestKind kind, absl::Span<const zero::ObservedArray> arrays,
                   device::Stream& stream);
  int64_t own_digests() const { return kDigestKinds * static_cast<int64_t>(map_.tensors().size()); }
  absl::Status ShareWithAll();

  const TensorMap map_;
  zero::ZeroOptimizer& zero_;
  collectives::Communicator& ranks_;
  std::vector<RankShare> shares_;
  bool takes_weights_ = false, takes_updated_ = false;
  zero::StepObserver* beside_ = nullptr;
  // This rank's, then those of all.
  device::Buffer device_;
  // [slot]: those of all.
  device::Buffer host_;
  // Of one call.
  std::vector<kernels::DigestSegment> segments_;
};

// Of the device, and of the host, for so many tensors, ranks and slots.
struct DigestBytes {
  int64_t device = 0;
  int64_t host = 0;
};
DigestBytes StepDigestBytes(int64_t tensors, int64_t ranks, int64_t in_flight);

}  // namespace brigade::digests

#endif  // BRIGADE_DIGESTS_STEP_DIGESTS_H_
