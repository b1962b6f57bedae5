#include "brigade/tests/zero/toy_model.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "brigade/device/status_macros.h"

namespace brigade::zero {
namespace {

// In [-1, 1), by SplitMix64.
float Noise(uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  x ^= x >> 31;
  return std::ldexp(static_cast<float>(x >> 40), -23) - 1.0f;
}

}  // namespace

ModelSpec ToyModel() {
  return {{"embedding", {{"wte", 700}, {"wpe", 37}}, {}},
          {"h.0", {{"h.0.w", 1500}, {"h.0.b", 3}, {"h.0.frozen", 50, {}, 0, false}}, {}},
          {"h.1", {{"h.1.w", 1500}, {"h.1.b", 3}, {"h.1.unused", 9}, {"h.1.empty", 0}}, {}},
          {"idle", {{"idle.w", 20}}, {}},
          {"head", {{"ln", 65}}, {"wte"}}};
}

float InitialWeight(int parameter, int64_t i) {
  return 0.5f * Noise(static_cast<uint64_t>(parameter) << 40 | static_cast<uint64_t>(i));
}

bool HasGradient(const Plan& plan, int unit, int parameter) {
  const ParameterSpec& spec = plan.parameter(parameter).spec;
  return spec.trainable && spec.name != "h.1.unused" && plan.unit(unit).name != "idle";
}

float Activation(const Plan& plan, int unit,
                 const std::function<float(int parameter, int64_t i)>& weight) {
  float sum = 0;
  for (const int p : plan.unit(unit).parameters) {
    const int64_t size = plan.parameter(p).spec.size;
    for (int64_t i = 0; i < size; i += 1 + size / 5) sum = sum + weight(p, i);
  }
  return sum;
}

float GradientElement(const GradientInput& at, float weight, float activation, float loss_scale,
                      const std::vector<Injection>& injections) {
  for (const Injection& each : injections) {
    if (each.step == at.step && each.rank == at.rank && each.micro_batch == at.micro_batch &&
        at.i == 1) {
      return std::numeric_limits<float>::infinity();
    }
  }
  const auto seed = static_cast<uint64_t>(((at.rank * 8 + at.micro_batch) * 256 + at.step) * 64 +
                                          at.unit * 8 + at.parameter);
  const float noise = Noise(seed << 24 | static_cast<uint64_t>(at.i));
  const float slope = 0.125f * weight + 0.03125f * activation;
  return (noise + slope) * loss_scale;
}

float Load(const void* data, precision::DType dtype, int64_t i) {
  float value = 0;
  precision::VisitFloat(dtype, [&](auto tag) {
    value = static_cast<float>(static_cast<const decltype(tag)*>(data)[i]);
  });
  return value;
}

void Store(void* data, precision::DType dtype, int64_t i, float value) {
  precision::VisitFloat(dtype, [&](auto tag) {
    static_cast<decltype(tag)*>(data)[i] = static_cast<decltype(tag)>(value);
  });
}

ToyTrainer::ToyTrainer(ZeroOptimizer& zero, collectives::Rank& self,
                       std::vector<Injection> injections)
    : zero_(zero),
      self_(self),
      injections_(std::move(injections)),
      scratch_(self.context
                   ->Allocate((2 + zero.plan().units().size()) * sizeof(float),
                              device::Purpose::kActivations, "activations")
                   .value()),
      loss_(scratch_.as<float>().data()),
      scaled_(loss_ + 1),
      activations_(loss_ + 2) {
  *loss_ = 1.0f;
}

absl::StatusOr<std::vector<ToyTrainer::View>> ToyTrainer::Views(int unit) const {
  std::vector<View> views;
  for (const int p : zero_.plan().unit(unit).parameters) {
    const ParameterSpec& spec = zero_.plan().parameter(p).spec;
    BRIGADE_ASSIGN_OR_RETURN(weights, zero_.Weights(p));
    views.push_back({p, *spec.dtype, weights, spec.size, {}, false});
  }
  return views;
}

absl::Status ToyTrainer::Step() {
  for (int micro = 0; micro < zero_.options().micro_batches; ++micro) {
    BRIGADE_RETURN_IF_ERROR(MicroBatch(micro));
  }
  BRIGADE_RETURN_IF_ERROR(zero_.Step());
  ++step;
  return absl::OkStatus();
}

absl::Status ToyTrainer::MicroBatch(int micro_batch) {
  BRIGADE_RETURN_IF_ERROR(Forward());
  BRIGADE_RETURN_IF_ERROR(zero_.ScaleLoss(loss_, scaled_, 1, precision::DType::kFloat32));
  BRIGADE_RETURN_IF_ERROR(Backward(micro_batch));
  return zero_.FinishBackward();
}

absl::Status ToyTrainer::Forward() {
  const int units = static_cast<int>(zero_.plan().units().size());
  for (int unit = 0; unit < units; ++unit) {
    BRIGADE_RETURN_IF_ERROR(zero_.Acquire(unit, Pass::kForward));
    BRIGADE_ASSIGN_OR_RETURN(views, Views(unit));
    float* const activation = activations_ + unit;
    std::vector<device::Access> accesses = {device::Writes(activation, sizeof(float))};
    for (const View& view : views) {
      accesses.push_back(device::Reads(view.weights, view.size * precision::SizeOf(view.dtype)));
    }
    BRIGADE_RETURN_IF_ERROR(self_.stream->Enqueue(
        {"toy forward", accesses}, [this, unit, views, activation](device::ThreadPool&) {
          *activation = Activation(zero_.plan(), unit, [&](int parameter, int64_t i) {
            for (const View& view : views) {
              if (view.parameter == parameter) return Load(view.weights, view.dtype, i);
            }
            return 0.0f;
          });
          return absl::OkStatus();
        }));
    BRIGADE_RETURN_IF_ERROR(zero_.Release(unit));
  }
  return absl::OkStatus();
}

absl::Status ToyTrainer::Backward(int micro_batch) {
  int late = -1;
  const int units = static_cast<int>(zero_.plan().units().size());
  for (int unit = units; unit-- > 0;) {
    BRIGADE_RETURN_IF_ERROR(zero_.Acquire(unit, Pass::kBackward));
    BRIGADE_ASSIGN_OR_RETURN(views, Views(unit));
    const float* const activation = activations_ + unit;
    std::vector<device::Access> accesses = {device::Reads(activation, sizeof(float)),
                                            device::Reads(scaled_, sizeof(float))};
    bool writes = false;
    for (View& view : views) {
      const int64_t bytes = view.size * precision::SizeOf(view.dtype);
      accesses.push_back(device::Reads(view.weights, bytes));
      view.has_gradient = HasGradient(zero_.plan(), unit, view.parameter);
      if (!view.has_gradient) continue;
      BRIGADE_ASSIGN_OR_RETURN(target, zero_.Gradient(unit, view.parameter));
      view.target = target;
      accesses.push_back(device::Writes(target.data, bytes));
      writes = true;
    }
    BRIGADE_RETURN_IF_ERROR(self_.stream->Enqueue(
        {"toy backward", accesses},
        [this, unit, micro_batch, views, activation, at_step = step](device::ThreadPool&) {
          for (const View& view : views) {
            for (int64_t i = 0; view.has_gradient && i < view.size; ++i) {
              const float part = GradientElement(
                  {self_.rank, micro_batch, at_step, unit, view.parameter, i},
                  Load(view.weights, view.dtype, i), *activation, *scaled_, injections_);
              const float before =
                  view.target.accumulate ? Load(view.target.data, view.dtype, i) : 0.0f;
              Store(view.target.data, view.dtype, i, before + part);
            }
          }
          return absl::OkStatus();
        }));
    BRIGADE_RETURN_IF_ERROR(zero_.Release(unit));
    if (!writes && zero_.options().stage < 2) continue;
    // Late: with the next unit that has gradients, after it.
    if (report_late && late < 0) {
      late = unit;
      continue;
    }
    BRIGADE_RETURN_IF_ERROR(zero_.GradientsReady(unit));
    if (late >= 0) BRIGADE_RETURN_IF_ERROR(zero_.GradientsReady(late));
    late = -1;
  }
  return late >= 0 ? zero_.GradientsReady(late) : absl::OkStatus();
}

absl::Status InitializeToy(ZeroOptimizer& zero) {
  return zero.InitializeParameters([](int parameter, absl::Span<float> values) {
    for (size_t i = 0; i < values.size(); ++i) {
      values[i] = InitialWeight(parameter, static_cast<int64_t>(i));
    }
    return absl::OkStatus();
  });
}

absl::StatusOr<std::vector<std::vector<float>>> Exported(ZeroOptimizer& zero) {
  std::vector<std::vector<float>> all(zero.plan().parameters().size());
  BRIGADE_RETURN_IF_ERROR(zero.ExportParameters([&](int parameter, absl::Span<const float> values) {
    all[static_cast<size_t>(parameter)].assign(values.begin(), values.end());
    return absl::OkStatus();
  }));
  return all;
}

}  // namespace brigade::zero
