#ifndef BRIGADE_TESTS_MODELS_SMALL_TRAINING_H_
#define BRIGADE_TESTS_MODELS_SMALL_TRAINING_H_

// A batch of a rank's own, and steps of a ZeroOptimizer over it.

#include <cstddef>
#include <cstdint>

#include "absl/status/statusor.h"
#include "brigade/device/buffer.h"
#include "brigade/device/status_macros.h"
#include "brigade/models/model.h"
#include "brigade/tests/collectives/ranks.h"
#include "brigade/tests/models/lab.h"
#include "brigade/zero/zero_optimizer.h"

namespace brigade::models {

class SmallTraining {
 public:
  static constexpr int64_t kSamples = 2, kPositions = 8, kRows = kSamples * kPositions;

  // Each id is followed by one more; one label is ignored.
  SmallTraining(collectives::Rank& self, int64_t vocabulary) : self_(self) {
    for (int64_t r = 0; r < kRows; ++r) {
      const auto i = static_cast<size_t>(r);
      int32_t& id = ids_.as<int32_t>()[i];
      id = static_cast<int32_t>((r % kPositions + 5 * (r / kPositions) + 9 * self.rank) %
                                vocabulary);
      labels_.as<int32_t>()[i] = r == 3 ? kIgnored : static_cast<int32_t>((id + 1) % vocabulary);
    }
    // The mean over the labels that count.
    one_.as<float>()[0] = 1.0f / static_cast<float>(kRows - 1);
  }

  // The mean of the losses.
  absl::StatusOr<double> Step(int64_t step, Model& model, zero::ZeroOptimizer& zero) {
    step_.as<int64_t>()[0] = step;
    const Batch batch = {
        ids_.data(),          labels_.data(), kSamples, kPositions, step_.as<int64_t>().data(),
        self_.rank * kSamples};
    BRIGADE_RETURN_IF_ERROR(Forward(model, batch, losses_.data(), zero, *self_.stream));
    float* const seed = seed_.as<float>().data();
    BRIGADE_RETURN_IF_ERROR(zero.ScaleLoss(one_.data(), seed, 1, precision::DType::kFloat32));
    BRIGADE_RETURN_IF_ERROR(Backward(model, batch, seed, zero, *self_.stream));
    BRIGADE_RETURN_IF_ERROR(zero.FinishBackward());
    BRIGADE_RETURN_IF_ERROR(zero.Step());
    BRIGADE_RETURN_IF_ERROR(self_.stream->Synchronize());
    double sum = 0;
    for (const float loss : losses_.as<float>()) sum += static_cast<double>(loss);
    return sum / static_cast<double>(kRows - 1);
  }

 private:
  device::Buffer Host(int64_t bytes) const {
    return self_.context->AllocateHost(bytes, device::Purpose::kScratch).value();
  }

  collectives::Rank& self_;
  const device::Buffer ids_ = Host(kRows * 4), labels_ = Host(kRows * 4), one_ = Host(4),
                       seed_ = Host(4), losses_ = Host(kRows * 4), step_ = Host(8);
};

}  // namespace brigade::models

#endif  // BRIGADE_TESTS_MODELS_SMALL_TRAINING_H_
