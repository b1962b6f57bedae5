#ifndef BRIGADE_TESTS_PARALLEL_PIPELINE_TOY_PIPELINE_H_
#define BRIGADE_TESTS_PARALLEL_PIPELINE_TOY_PIPELINE_H_

// A model of parts that are small enough to be computed by hand, on a pipeline and, as the oracle,
// by one loop over micro-batches. Values are such that sums in another order have other bits.

#include <cstdint>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "brigade/device/operation.h"
#include "brigade/device/status_macros.h"
#include "brigade/device/stream.h"
#include "brigade/parallel/pipeline/executor.h"
#include "brigade/parallel/pipeline/schedule.h"
#include "brigade/parallel/pipeline/stage_module.h"
#include "gtest/gtest.h"

namespace brigade::parallel {

inline constexpr int kToyWidth = 7;
using ToyArray = std::vector<float>;

// One part: z = x w + x' / 2, where x' is x turned by one place, and y = z / (1 + z^2).
namespace toy {

inline ToyArray Weights(int part) {
  ToyArray w(kToyWidth);
  for (int j = 0; j < kToyWidth; ++j) w[static_cast<size_t>(j)] = 0.3f + 0.11f * float(part + j);
  return w;
}
inline void Inputs(int micro_batch, float* x) {
  for (int j = 0; j < kToyWidth; ++j) x[j] = 0.7f / float(1 + j + 3 * micro_batch);
}
inline void Forward(const float* x, const float* w, float* z, float* y) {
  for (int j = 0; j < kToyWidth; ++j) {
    z[j] = x[j] * w[j] + 0.5f * x[(j + 1) % kToyWidth];
    y[j] = z[j] / (1.0f + z[j] * z[j]);
  }
}
inline void Loss(const float* y, int micro_batch, float* loss, float* dy) {
  *loss = 0;
  for (int j = 0; j < kToyWidth; ++j) {
    dy[j] = y[j] - 0.1f * float(micro_batch + 1);
    *loss += dy[j] * dy[j];
  }
}
inline void BackwardInput(const float* z, const float* w, const float* dy, float* dz, float* dx) {
  for (int j = 0; j < kToyWidth; ++j) {
    const float square = z[j] * z[j];
    dz[j] = dy[j] * (1.0f - square) / ((1.0f + square) * (1.0f + square));
  }
  for (int j = 0; j < kToyWidth; ++j) {
    dx[j] = dz[j] * w[j] + 0.5f * dz[(j + kToyWidth - 1) % kToyWidth];
  }
}
inline void BackwardWeight(const float* x, const float* dz, float* dw) {
  for (int j = 0; j < kToyWidth; ++j) dw[j] += x[j] * dz[j];
}

}  // namespace toy

// Of a step.
struct ToyResult {
  // By part.
  std::vector<ToyArray> gradients;
  // By micro-batch.
  ToyArray losses;

  friend bool operator==(const ToyResult& a, const ToyResult& b) {
    const auto same = [](const ToyArray& x, const ToyArray& y) {
      return x.size() == y.size() && std::memcmp(x.data(), y.data(), x.size() * sizeof(float)) == 0;
    };
    for (size_t k = 0; k < a.gradients.size(); ++k) {
      if (!same(a.gradients[k], b.gradients[k])) return false;
    }
    return a.gradients.size() == b.gradients.size() && same(a.losses, b.losses);
  }
};

// `steps` steps, whose gradients are added up.
inline ToyResult RunToyAlone(int parts, int micro_batches, int steps) {
  ToyResult result = {std::vector<ToyArray>(static_cast<size_t>(parts), ToyArray(kToyWidth)),
                      ToyArray(static_cast<size_t>(micro_batches))};
  const auto n = static_cast<size_t>(parts);
  for (int step = 0; step < steps; ++step) {
    for (int i = 0; i < micro_batches; ++i) {
      std::vector<ToyArray> x(n + 1, ToyArray(kToyWidth)), z(n, ToyArray(kToyWidth));
      toy::Inputs(i, x[0].data());
      for (size_t k = 0; k < n; ++k) {
        toy::Forward(x[k].data(), toy::Weights(static_cast<int>(k)).data(), z[k].data(),
                     x[k + 1].data());
      }
      ToyArray dy(kToyWidth), dz(kToyWidth), dx(kToyWidth);
      toy::Loss(x[n].data(), i, &result.losses[static_cast<size_t>(i)], dy.data());
      for (size_t k = n; k-- > 0;) {
        toy::BackwardInput(z[k].data(), toy::Weights(static_cast<int>(k)).data(), dy.data(),
                           dz.data(), dx.data());
        toy::BackwardWeight(x[k].data(), dz.data(), result.gradients[k].data());
        dy = dx;
      }
    }
  }
  return result;
}

// One stage, on a CPU.
class ToyStage final : public StageModule {
 public:
  // What a pass does besides: fails, or takes its time.
  using Hook = std::function<absl::Status(ItemKind kind, const StagePass& pass)>;

  ToyStage(const PipelineShape& shape, int stage, const StageBuffers& buffers, Hook hook = {})
      : shape_(shape),
        stage_(stage),
        hook_(std::move(hook)),
        kept_(static_cast<size_t>(buffers.activations), ToyArray(3 * kToyWidth)),
        deferred_(static_cast<size_t>(buffers.deferred), ToyArray(kToyWidth)),
        scratch_(kToyWidth),
        losses_(static_cast<size_t>(shape.micro_batches)) {
    for (int chunk = 0; chunk < shape.schedule.chunks; ++chunk) {
      weights_.push_back(toy::Weights(PartOf(shape, stage, chunk)));
      gradients_.emplace_back(kToyWidth);
    }
  }

  absl::Status Forward(const StagePass& pass, device::Stream& compute) override {
    return Enqueue(ItemKind::kForward, pass, compute,
                   {device::Reads(pass.input, Bytes(pass.input)),
                    device::Writes(pass.output, Bytes(pass.output)), Kept(pass, true)},
                   [=, this] {
                     float* const kept = KeptOf(pass);
                     float* const y = pass.output != nullptr ? static_cast<float*>(pass.output)
                                                             : kept + 2 * kToyWidth;
                     toy::Forward(Input(pass), WeightsOf(pass), kept, y);
                     // The model's end: y becomes the gradient of the loss.
                     if (pass.output == nullptr) {
                       toy::Loss(y, pass.micro_batch, &losses_[Micro(pass)], y);
                     }
                   });
  }
  absl::Status Backward(const StagePass& pass, device::Stream& compute) override {
    return Enqueue(
        ItemKind::kBackward, pass, compute,
        {device::Reads(pass.input, Bytes(pass.input)),
         device::Writes(pass.output_gradient, Bytes(pass.output_gradient)),
         device::Writes(pass.input_gradient, Bytes(pass.input_gradient)), Kept(pass, true)},
        [=, this] {
          InputGradient(pass, scratch_.data());
          toy::BackwardWeight(Input(pass), scratch_.data(), GradientsOf(pass));
          // Nobody may need these any more.
          if (pass.output_gradient != nullptr) {
            std::memset(pass.output_gradient, 0xFF, kToyWidth * sizeof(float));
          }
          std::memset(KeptOf(pass), 0xFF, 3 * kToyWidth * sizeof(float));
        });
  }
  absl::Status BackwardInput(const StagePass& pass, device::Stream& compute) override {
    return Enqueue(ItemKind::kBackwardInput, pass, compute,
                   {device::Reads(pass.output_gradient, Bytes(pass.output_gradient)),
                    device::Writes(pass.input_gradient, Bytes(pass.input_gradient)),
                    Kept(pass, false), Deferred(pass, true)},
                   [=, this] { InputGradient(pass, DeferredOf(pass)); });
  }
  absl::Status BackwardWeight(const StagePass& pass, device::Stream& compute) override {
    return Enqueue(ItemKind::kBackwardWeight, pass, compute,
                   {device::Reads(pass.input, Bytes(pass.input)),
                    device::Writes(pass.output_gradient, Bytes(pass.output_gradient)),
                    Kept(pass, true), Deferred(pass, true)},
                   [=, this] {
                     toy::BackwardWeight(Input(pass), DeferredOf(pass), GradientsOf(pass));
                     std::memset(DeferredOf(pass), 0xFF, kToyWidth * sizeof(float));
                     std::memset(KeptOf(pass), 0xFF, 3 * kToyWidth * sizeof(float));
                   });
  }
  absl::Status Collective(int index, device::Stream&) override {
    collectives_.push_back(index);
    return absl::OkStatus();
  }

  // To the places of the whole model, when the stage's stream is idle.
  void AddTo(ToyResult& result) const {
    for (int chunk = 0; chunk < shape_.schedule.chunks; ++chunk) {
      const int part = PartOf(shape_, stage_, chunk);
      result.gradients[static_cast<size_t>(part)] = gradients_[static_cast<size_t>(chunk)];
      if (part == shape_.parts() - 1) result.losses = losses_;
    }
  }
  const std::vector<int>& collectives() const { return collectives_; }

 private:
  static int64_t Bytes(const void* boundary) {
    return boundary == nullptr ? 0 : kToyWidth * int64_t{sizeof(float)};
  }
  static size_t Micro(const StagePass& pass) { return static_cast<size_t>(pass.micro_batch); }
  float* KeptOf(const StagePass& pass) {
    return kept_[static_cast<size_t>(pass.activations)].data();
  }
  float* DeferredOf(const StagePass& pass) {
    return deferred_[static_cast<size_t>(pass.deferred)].data();
  }
  device::Access Kept(const StagePass& pass, bool write) {
    return {KeptOf(pass), 3 * kToyWidth * sizeof(float), write};
  }
  device::Access Deferred(const StagePass& pass, bool write) {
    return {DeferredOf(pass), kToyWidth * sizeof(float), write};
  }
  float* WeightsOf(const StagePass& pass) { return weights_[size_t(pass.chunk)].data(); }
  float* GradientsOf(const StagePass& pass) { return gradients_[size_t(pass.chunk)].data(); }
  const float* Input(const StagePass& pass) {
    if (pass.input != nullptr) return static_cast<const float*>(pass.input);
    toy::Inputs(pass.micro_batch, first_);
    return first_;
  }
  void InputGradient(const StagePass& pass, float* dz) {
    const float* const dy = pass.output_gradient != nullptr
                                ? static_cast<const float*>(pass.output_gradient)
                                : KeptOf(pass) + 2 * kToyWidth;
    float nowhere[kToyWidth];
    float* const dx =
        pass.input_gradient != nullptr ? static_cast<float*>(pass.input_gradient) : nowhere;
    toy::BackwardInput(KeptOf(pass), WeightsOf(pass), dy, dz, dx);
  }
  template <typename Work>
  absl::Status Enqueue(ItemKind kind, const StagePass& pass, device::Stream& compute,
                       std::initializer_list<device::Access> accesses, Work work) {
    if (hook_) BRIGADE_RETURN_IF_ERROR(hook_(kind, pass));
    return compute.Enqueue({"toy", {accesses.begin(), accesses.size()}},
                           [work](device::ThreadPool&) {
                             work();
                             return absl::OkStatus();
                           });
  }

  const PipelineShape shape_;
  const int stage_;
  const Hook hook_;
  // By buffer: z, nothing, and at the model's end the gradient of the loss.
  std::vector<ToyArray> kept_, deferred_;
  // By chunk.
  std::vector<ToyArray> weights_, gradients_;
  ToyArray scratch_, losses_;
  float first_[kToyWidth];
  std::vector<int> collectives_;
};

}  // namespace brigade::parallel

#endif  // BRIGADE_TESTS_PARALLEL_PIPELINE_TOY_PIPELINE_H_
