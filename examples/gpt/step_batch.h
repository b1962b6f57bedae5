#ifndef BRIGADE_EXAMPLES_GPT_STEP_BATCH_H_
#define BRIGADE_EXAMPLES_GPT_STEP_BATCH_H_

#include <cstdint>
#include <iterator>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "brigade/collectives/collective.h"
#include "brigade/collectives/options.h"
#include "brigade/device/buffer.h"
#include "brigade/device/context.h"
#include "brigade/device/event.h"
#include "brigade/device/stream.h"
#include "brigade/examples/gpt/pass_shape.h"
#include "brigade/nn/texts.h"
#include "brigade/precision/dtype.h"

namespace brigade::gpt {

// What all ranks add up in a step.
struct StepSums {
  float loss = 0;
  float stop = 0;
};

// Their all-reduce, over all ranks of the world.
inline constexpr collectives::CollectiveSignature kStepSums = {
    .kind = collectives::CollectiveKind::kAllReduce,
    .algorithm = collectives::ReduceOptions().algorithm,
    .dtype = precision::DType::kFloat32,
    .count = 2};

// The memory of a step on a rank, from the copy of its batch until its metrics are read: the texts
// of all micro-batches, their losses, and what becomes of these.
//
// Memory       Bytes of the device, of purpose activations, and twice of the host, scratch.
class StepBatch {
 public:
  static absl::StatusOr<StepBatch> Create(const PassShape& shape, int64_t micro_batches,
                                          device::Context& context);
  static int64_t Bytes(const PassShape& shape, int64_t micro_batches);

  int64_t texts() const { return micro_batches_ * shape_.batch; }
  // Of a text, this rank's positions and what follows the last one of each run.
  int64_t text_bytes() const { return TextBytes(shape_); }
  int64_t losses() const { return micro_batches_ * shape_.rows(); }

  // Where the host writes a text that is to come, micro-batch by micro-batch; `whole` is
  // [context + 1]. Positions of other ranks are left out.
  void SetText(int64_t index, const char* whole);
  // Copies the texts, and this rank's part of the sums, to the device.
  absl::Status CopyToDevice(const StepSums& mine, device::Stream& stream);

  // On the device.
  nn::Texts MicroBatch(int64_t index) const;
  float* losses_of(int64_t micro_batch) const;
  float* sums() const { return static_cast<float*>(device_.data()); }
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

 private:
  StepBatch(const PassShape& shape, int64_t micro_batches)
      : shape_(shape), micro_batches_(micro_batches) {}

  static int64_t TextBytes(const PassShape& shape) {
    return shape.positions() + std::ssize(shape.runs());
  }
  // In the memory: sums, parts of the mean loss, losses, texts.
  static constexpr int64_t kLossParts = 256;
  static int64_t LossesBegin(const PassShape& shape, int64_t micro_batches);
  static int64_t TextsBegin(const PassShape& shape, int64_t micro_batches);
  uint8_t* OnDevice(int64_t offset) const { return device_.as<uint8_t>().data() + offset; }
  int64_t texts_begin() const { return TextsBegin(shape_, micro_batches_); }

  PassShape shape_;
  int64_t micro_batches_;
  device::Buffer device_, host_in_, host_out_;
  std::unique_ptr<device::Event> computed_, done_;
};

}  // namespace brigade::gpt

#endif  // BRIGADE_EXAMPLES_GPT_STEP_BATCH_H_
