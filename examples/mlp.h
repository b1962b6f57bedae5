#ifndef BRIGADE_EXAMPLES_MLP_H_
#define BRIGADE_EXAMPLES_MLP_H_

// A model of one's own, which train/ trains: linear layers with a ReLU between them.

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "brigade/device/buffer.h"
#include "brigade/device/stream.h"
#include "brigade/models/model.h"
#include "brigade/nn/blas.h"
#include "brigade/nn/linear.h"
#include "brigade/nn/workspace.h"
#include "brigade/precision/dtype.h"
#include "brigade/train/model_task.h"

namespace brigade::examples {

// What the last layer's outputs are compared with: numbers, float32 [outputs], by their mean
// squared error; or the number of a class, int32, by its cross entropy.
enum class Loss : uint8_t { kSquaredError, kCrossEntropy };

// Layer l has widths[l] inputs and is unit l, of parameters 2 l (weight) and 2 l + 1 (bias). Inputs
// are float32 [widths[0]], and so is all else: InvalidArgument for weights of another type. Stages
// of a pipeline may have any of the layers.
class Mlp final : public models::Model {
 public:
  static absl::StatusOr<std::unique_ptr<models::Model>> Create(const train::ModelPlace& place,
                                                               std::vector<int64_t> widths,
                                                               Loss loss);

  models::ModelMemory bytes() const override { return bytes_; }
  int slots() const override { return static_cast<int>(outputs_.size()); }
  int64_t LossesOf(const models::Batch& batch) const override { return batch.samples; }
  std::optional<models::Boundary> BoundaryOf(const models::Batch& batch) const override;
  std::optional<models::UnitFlops> FlopsOf(int unit, const models::Batch& batch) const override;
  void Initialize(int parameter, uint64_t seed, absl::Span<float> values) const override;
  absl::Status ForwardUnit(int unit, const models::Batch& batch, void* losses,
                           models::UnitParameters& parameters, device::Stream& stream) override;
  absl::Status BackwardUnit(int unit, const models::Batch& batch, const float* seed,
                            models::UnitParameters& parameters, device::Stream& stream) override;

 private:
  Mlp(std::vector<int64_t> widths, Loss loss, int64_t samples);

  int layers() const { return static_cast<int>(widths_.size()) - 1; }
  // What layer l reads and computes, [samples, widths_[l]] and [samples, widths_[l + 1]], and their
  // gradients; that of the last layer takes the place of its output. At a chunk's ends they are
  // what crosses to other stages.
  const float* input(int layer, const models::Batch& batch) const;
  float* output(int layer, const models::Batch& batch) const;
  float* gradient(int layer, const models::Batch& batch) const;
  nn::LinearInput InputOf(int layer, const models::Batch& batch, const void* weight) const;
  absl::Status Check(const models::Batch& batch) const;

  const std::vector<int64_t> widths_;
  const Loss loss_;
  const int64_t samples_;
  models::ModelMemory bytes_;
  // [slot][layer], and [layer].
  std::vector<std::vector<device::Buffer>> outputs_;
  std::vector<device::Buffer> gradients_;
  std::unique_ptr<nn::Blas> blas_;
  std::optional<nn::Workspace> workspace_;
};

}  // namespace brigade::examples

#endif  // BRIGADE_EXAMPLES_MLP_H_
