#ifndef BRIGADE_TRAIN_STEP_BATCH_H_
#define BRIGADE_TRAIN_STEP_BATCH_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "brigade/collectives/collective.h"
#include "brigade/collectives/options.h"
#include "brigade/device/buffer.h"
#include "brigade/device/context.h"
#include "brigade/device/event.h"
#include "brigade/device/round_up.h"
#include "brigade/device/stream.h"
#include "brigade/precision/dtype.h"

namespace brigade::train {

// What all ranks add up in a step.
struct StepSums {
  float loss = 0;
  float stop = 0;
};

// What the gradients of a step's losses weigh. By default each loss counts the same, and a step has
// a loss for each place.
struct StepWeights {
  // Of the gradient of a micro-batch's sum of losses, before the mean over ranks and micro-batches:
  // for a mean over all that count, their share.
  float gradient = 1;
  // What the mean over all places' losses is to be multiplied with.
  double mean = 1;
};

// Their all-reduce, over all ranks of the world.
inline constexpr collectives::CollectiveSignature kStepSums = {
    .kind = collectives::CollectiveKind::kAllReduce,
    .algorithm = collectives::ReduceOptions().algorithm,
    .dtype = precision::DType::kFloat32,
    .count = 2};

// What a micro-batch has of a rank: samples, in all so many bytes, and their losses.
struct BatchShape {
  int64_t samples = 1;
  int64_t bytes = 0;
  int64_t losses = 1;
  // Where the bytes of a micro-batch begin: a power of 2, 256 at most.
  int64_t alignment = 1;

  // From the begin of one to the next.
  int64_t stride() const { return device::RoundUp(bytes, alignment); }
};

// The memory of a step on a rank, from the copy of its batch until its metrics are read: samples of
// all micro-batches, their losses, and what becomes of these.
//
// Memory       Bytes of the device, of purpose activations, and twice of the host, scratch.
class StepBatch {
 public:
  static absl::StatusOr<StepBatch> Create(const BatchShape& shape, int64_t micro_batches,
                                          device::Context& context);
  static int64_t Bytes(const BatchShape& shape, int64_t micro_batches);

  const BatchShape& shape() const { return shape_; }
  int64_t micro_batches() const { return micro_batches_; }
  int64_t samples() const { return micro_batches_ * shape_.samples; }
  int64_t losses() const { return micro_batches_ * shape_.losses; }

  // Where the host writes the samples of a micro-batch that is to come, [shape().bytes].
  uint8_t* host_samples_of(int64_t micro_batch) const {
    return host_in_.as<uint8_t>().data() + samples_begin() + micro_batch * shape_.stride();
  }
  // Copies the samples, the weights and this rank's part of the sums to the device.
  absl::Status CopyToDevice(const StepSums& mine, device::Stream& stream);

  // On the device.
  const uint8_t* samples_of(int64_t micro_batch) const {
    return OnDevice(samples_begin() + micro_batch * shape_.stride());
  }
  float* losses_of(int64_t micro_batch) const;
  float* sums() const { return static_cast<float*>(device_.data()); }
  // StepWeights::gradient, and room for what the passes make of it.
  const float* gradient_weight() const { return sums() + kStepSums.count; }
  float* seed() const { return sums() + kStepSums.count + 1; }
  // Sets sums()[0] to the mean of all losses.
  absl::Status MeanOfLosses(device::Stream& stream);

  // To the host, where they are after the stream has come so far.
  absl::Status CopySumsToHost(device::Stream& stream);
  absl::Status CopyLossesToHost(device::Stream& stream);
  StepSums host_sums() const;
  const float* host_losses() const { return host_out_.as<float>().data(); }

  // Recorded when the losses are computed, and when the step is done.
  device::Event& computed() { return *computed_; }
  device::Event& done() { return *done_; }

  // The number of the step that is in flight in this memory; -1: none.
  int64_t step = -1;
  StepWeights weights = {};
  // How many samples each micro-batch has: all, but in a short step.
  std::vector<int64_t> filled;

 private:
  StepBatch(const BatchShape& shape, int64_t micro_batches)
      : filled(static_cast<size_t>(micro_batches), shape.samples),
        shape_(shape),
        micro_batches_(micro_batches) {}

  // In the memory: sums, parts of the mean loss, losses, samples.
  static constexpr int64_t kLossParts = 256;
  static int64_t LossesBegin(const BatchShape& shape, int64_t micro_batches);
  static int64_t SamplesBegin(const BatchShape& shape, int64_t micro_batches);
  uint8_t* OnDevice(int64_t offset) const { return device_.as<uint8_t>().data() + offset; }
  int64_t samples_begin() const { return SamplesBegin(shape_, micro_batches_); }

  BatchShape shape_;
  int64_t micro_batches_;
  device::Buffer device_, host_in_, host_out_;
  std::unique_ptr<device::Event> computed_, done_;
};

}  // namespace brigade::train

#endif  // BRIGADE_TRAIN_STEP_BATCH_H_
