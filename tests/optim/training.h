#ifndef BRIGADE_TESTS_OPTIM_TRAINING_H_
#define BRIGADE_TESTS_OPTIM_TRAINING_H_

// One training run, made twice: by a MixedPrecisionOptimizer on tensors of a device, and by
// tests/spec.

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "brigade/device/context.h"
#include "brigade/optim/mixed_precision_optimizer.h"
#include "brigade/precision/dtype.h"
#include "brigade/tests/spec/formats.h"
#include "brigade/tests/spec/lamb.h"
#include "brigade/tests/spec/optimizers.h"
#include "brigade/tests/spec/step_control.h"
#include "brigade/tests/spec/sums.h"

namespace brigade::optim {

using precision::DType;
using Values = std::vector<float>;
// Of a whole model, or its gradients in one micro-batch.
using Tensors = std::vector<Values>;

struct TensorType {
  int64_t size;
  int32_t group = 0;
  DType weight_dtype = DType::kFloat16;
  DType grad_dtype = DType::kFloat16;
};

inline spec::Format FormatOf(DType dtype) {
  return dtype == DType::kFloat16    ? spec::Format::kFloat16
         : dtype == DType::kBFloat16 ? spec::Format::kBFloat16
                                     : spec::Format::kFloat32;
}

// The model, its first weights, and the gradients that backward gives in each step and micro-batch.
struct Training {
  std::vector<TensorType> types;
  MixedPrecisionOptions options;
  Tensors weights;
  std::vector<std::vector<Tensors>> grads;  // [step][micro-batch]

  // Every seventh step has an infinity or a NaN somewhere.
  Training(const std::vector<TensorType>& types, const MixedPrecisionOptions& options, int steps,
           uint32_t seed = 71)
      : types(types), options(options) {
    std::mt19937 random(seed);
    weights = RandomTensors(random, 1.0f, &TensorType::weight_dtype);
    for (int step = 0; step < steps; ++step) {
      grads.emplace_back();
      for (int i = 0; i < options.micro_batches; ++i) {
        grads.back().push_back(RandomTensors(random, 30.0f, &TensorType::grad_dtype));
      }
      if (step % 7 != 3) continue;
      Tensors& bad = grads.back()[random() % grads.back().size()];
      size_t tensor = random() % bad.size();
      while (bad[tensor].empty()) tensor = (tensor + 1) % bad.size();
      bad[tensor][random() % bad[tensor].size()] = step % 2 == 0
                                                       ? std::numeric_limits<float>::quiet_NaN()
                                                       : -std::numeric_limits<float>::infinity();
    }
  }

 private:
  Tensors RandomTensors(std::mt19937& random, float size, DType TensorType::*dtype) const {
    std::normal_distribution<float> normal;
    Tensors tensors;
    for (const TensorType& type : types) {
      tensors.emplace_back();
      for (int64_t i = 0; i < type.size; ++i) {
        tensors.back().push_back(spec::Round(FormatOf(type.*dtype), size * normal(random)));
      }
    }
    return tensors;
  }
};

// Through the public object.
class Trainer {
 public:
  Trainer(const Training& training, const device::ContextOptions& options)
      : context(device::Context::Create(options).value()),
        stream(context->CreateStream("compute").value()) {
    std::vector<ParameterArrays> parameters;
    for (size_t i = 0; i < training.types.size(); ++i) {
      const TensorType& type = training.types[i];
      weights.push_back(CreateTensor(training.weights[i], type.weight_dtype));
      grads.push_back(CreateTensor(Values(training.weights[i].size(), 0.0f), type.grad_dtype));
      parameters.push_back({.name = "tensor" + std::to_string(i),
                            .weights = weights.back().data(),
                            .grad = grads.back().data(),
                            .size = type.size,
                            .weight_dtype = type.weight_dtype,
                            .grad_dtype = type.grad_dtype,
                            .group = type.group});
    }
    for (const auto& step : training.grads) {
      backward_.emplace_back();
      for (const Tensors& tensors : step) {
        backward_.back().emplace_back();
        for (size_t i = 0; i < tensors.size(); ++i) {
          backward_.back().back().push_back(CreateTensor(tensors[i], training.types[i].grad_dtype));
        }
      }
    }
    bytes_before = context->memory_stats().current_bytes();
    optimizer =
        MixedPrecisionOptimizer::Create(parameters, training.options, *context, *stream).value();
  }

  // Writes the gradients as backward does. Allocates nothing.
  absl::Status Backward(int step, size_t micro_batch) {
    absl::Status status;
    for (size_t i = 0; i < grads.size(); ++i) {
      status.Update(
          stream->Copy(grads[i].data(), backward_[step][micro_batch][i].data(), grads[i].bytes()));
    }
    return status;
  }

  absl::Status Step(int step) {
    absl::Status status;
    for (size_t i = 0; i < backward_[step].size(); ++i) {
      status.Update(Backward(step, i));
      status.Update(optimizer->AccumulateGradients(*stream));
    }
    status.Update(optimizer->Step(*stream));
    return status;
  }

  // Waits.
  Values Weights(size_t tensor, DType dtype) {
    std::vector<char> bytes(weights[tensor].bytes());
    Values values;
    if (!stream->Copy(bytes.data(), weights[tensor].data(), bytes.size()).ok()) return values;
    if (!stream->Synchronize().ok()) return values;
    precision::VisitFloat(dtype, [&](auto tag) {
      for (size_t at = 0; at < bytes.size(); at += sizeof(tag)) {
        std::memcpy(&tag, &bytes[at], sizeof(tag));
        values.push_back(static_cast<float>(tag));
      }
    });
    return values;
  }

  std::unique_ptr<device::Context> context;
  std::unique_ptr<device::Stream> stream;
  std::vector<device::Buffer> weights, grads;
  int64_t bytes_before;
  std::unique_ptr<MixedPrecisionOptimizer> optimizer;

 private:
  device::Buffer CreateTensor(const Values& values, DType dtype) {
    std::vector<char> bytes;
    precision::VisitFloat(dtype, [&](auto tag) {
      for (const float value : values) {
        tag = decltype(tag)(value);
        bytes.insert(bytes.end(), reinterpret_cast<char*>(&tag),
                     reinterpret_cast<char*>(&tag) + sizeof(tag));
      }
    });
    device::Buffer buffer =
        context->Allocate(bytes.size(), device::Purpose::kParameters, "tensor").value();
    stream->Copy(buffer.data(), bytes.data(), bytes.size()).IgnoreError();
    stream->Synchronize().IgnoreError();
    return buffer;
  }

  std::vector<std::vector<std::vector<device::Buffer>>> backward_;  // [step][micro-batch][tensor]
};

// By the specification.
class Specified {
 public:
  explicit Specified(const Training& training)
      : master(training.weights), weights(training.weights), training_(training) {
    for (const Values& w : master) m.emplace_back(w.size(), 0.0f);
    v = m;
    const LossScaler& scaler = training.options.loss_scaler;
    state.loss_scale =
        scaler.dynamic() ? std::ldexp(1.0f, scaler.initial_scale_power) : scaler.loss_scale;
    state.hysteresis = scaler.hysteresis;
    for (const ParameterGroup& group : training.options.optimizer.groups) {
      learning_rates.push_back(LearningRates(group.schedule, group.lr));
    }
  }

  void Step(int step) {
    const Tensors grads = Accumulated(training_.grads[step]);
    spec::ControlStep(Statistics(grads), Rule(), state);
    if (state.skip) return;
    for (size_t i = 0; i < grads.size(); ++i) Update(i, grads[i]);
  }

  Tensors master, m, v, weights;
  spec::StepState state;
  std::vector<Values> learning_rates;  // of each group

 private:
  Tensors Accumulated(const std::vector<Tensors>& micro_batches) const {
    if (micro_batches.size() == 1) return micro_batches[0];
    const spec::Format format = FormatOf(training_.options.accumulator_dtype);
    Tensors sums = micro_batches[0];
    for (size_t i = 0; i < sums.size(); ++i) {
      for (size_t j = 0; j < sums[i].size(); ++j) {
        float& sum = sums[i][j];
        sum = spec::Round(format, sum);
        for (size_t k = 1; k < micro_batches.size(); ++k) {
          sum = spec::Round(format, sum + micro_batches[k][i][j]);
        }
      }
    }
    return sums;
  }

  // One for each pair of types, in the order in which they first appear.
  std::vector<spec::GradStats> Statistics(const Tensors& grads) const {
    std::vector<TensorType> pairs;
    std::vector<Tensors> lists;
    for (size_t i = 0; i < grads.size(); ++i) {
      const TensorType& type = training_.types[i];
      size_t at = 0;
      while (at < pairs.size() && (pairs[at].grad_dtype != type.grad_dtype ||
                                   pairs[at].weight_dtype != type.weight_dtype)) {
        ++at;
      }
      if (at == pairs.size()) pairs.push_back(type), lists.emplace_back();
      lists[at].push_back(grads[i]);
    }
    std::vector<spec::GradStats> stats;
    for (const Tensors& list : lists) stats.push_back(spec::SumOfSquares(list));
    return stats;
  }

  spec::StepRule Rule() const {
    const LossScaler& scaler = training_.options.loss_scaler;
    return {.loss_scale = {.dynamic = scaler.dynamic(),
                           .window = scaler.loss_scale_window,
                           .hysteresis = scaler.hysteresis},
            .divisor = static_cast<double>(training_.options.micro_batches),
            .clip = training_.options.max_grad_norm,
            .check_overflow = scaler.check_overflow};
  }

  void Update(size_t tensor, const Values& grads) {
    const OptimizerOptions& optimizer = training_.options.optimizer;
    const int32_t index = training_.types[tensor].group;
    const ParameterGroup& group = optimizer.groups[index];
    const float lr = spec::LearningRate(learning_rates[index], state);
    const spec::GroupStep step = spec::MakeGroupStep(group.beta1, group.beta2, lr, state.step);
    if (optimizer.kind == OptimizerKind::kLamb) {
      spec::LambTensor x = {master[tensor], m[tensor], v[tensor]};
      spec::LambStep(x, grads, state.multiplier,
                     {group.beta1, group.beta2, group.eps, group.weight_decay, group.min_trust,
                      group.max_trust},
                     step);
      master[tensor] = x.param, m[tensor] = x.m, v[tensor] = x.v;
      for (size_t i = 0; i < grads.size(); ++i) {
        weights[tensor][i] =
            spec::Round(FormatOf(training_.types[tensor].weight_dtype), master[tensor][i]);
      }
      return;
    }
    for (size_t i = 0; i < grads.size(); ++i) {
      float& p = master[tensor][i];
      float& first = m[tensor][i];
      float& second = v[tensor][i];
      if (optimizer.kind == OptimizerKind::kSgd) {
        const spec::SgdElement x = spec::SgdUpdate(
            {p, first}, grads[i], state.multiplier,
            {group.momentum, group.dampening, group.weight_decay, group.nesterov}, lr, state.step);
        p = x.param, first = x.momentum;
      } else if (optimizer.kind == OptimizerKind::kLion) {
        const spec::LionElement x =
            spec::LionUpdate({p, first}, grads[i], state.multiplier,
                             {group.beta1, group.beta2, group.weight_decay}, lr);
        p = x.param, first = x.m;
      } else {
        const spec::AdamElement x =
            spec::AdamUpdate({p, first, second}, grads[i], state.multiplier,
                             {group.beta1, group.beta2, group.eps, group.weight_decay,
                              optimizer.kind == OptimizerKind::kAdamW},
                             step);
        p = x.param, first = x.m, second = x.v;
      }
      weights[tensor][i] = spec::Round(FormatOf(training_.types[tensor].weight_dtype), p);
    }
  }

  const Training& training_;
};

}  // namespace brigade::optim

#endif  // BRIGADE_TESTS_OPTIM_TRAINING_H_
