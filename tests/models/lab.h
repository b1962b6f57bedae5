#ifndef BRIGADE_TESTS_MODELS_LAB_H_
#define BRIGADE_TESTS_MODELS_LAB_H_

// A decoder with its weights and gradients as plain arrays, and a batch.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "brigade/device/context.h"
#include "brigade/models/config.h"
#include "brigade/models/decoder.h"
#include "brigade/models/parameter_arrays.h"
#include "brigade/nn/functions.h"
#include "brigade/tests/testing/status_matchers.h"
#include "gtest/gtest.h"

#ifndef BRIGADE_LAB_DEVICE
#define BRIGADE_LAB_DEVICE device::Cpu()
#endif

namespace brigade::models {

inline const bool kOnGpu = (BRIGADE_LAB_DEVICE).kind == device::DeviceKind::kCuda;

// The models of the reference, as files: Bazel has links to them, which are not read.
inline std::string KnownAnswers() {
  static const std::string folder = [] {
    const std::string copy = absl::StrCat(::testing::TempDir(), "/known_answers");
    std::filesystem::remove_all(copy);
    std::filesystem::copy("tests/models/known_answers", copy,
                          std::filesystem::copy_options::recursive);
    return copy;
  }();
  return folder;
}

inline constexpr int32_t kIgnored = nn::TokenIds::kIgnoredLabel;

// Every feature of its architecture.
inline DecoderConfig TinyLlama() {
  return {.architecture = Architecture::kLlama,
          .vocabulary = 23,
          .layers = 2,
          .width = 12,
          .heads = 4,
          .key_value_heads = 2,
          .head_width = 6,
          .inner = 10,
          .positions = 32,
          .norm_epsilon = 1e-4,
          .tied = true,
          .rotary_base = 100,
          .rotary_scaling = nn::RotaryScaling{4, 1, 2, 8},
          .attention_bias = true,
          .mlp_bias = true};
}
inline DecoderConfig TinyGpt2() {
  return {.architecture = Architecture::kGpt2,
          .vocabulary = 23,
          .layers = 2,
          .width = 12,
          .heads = 2,
          .key_value_heads = 2,
          .head_width = 6,
          .inner = 20,
          .positions = 32,
          .norm_epsilon = 1e-4,
          .tied = true};
}

class ModelLab {
 public:
  ModelLab(const DecoderConfig& config, DecoderOptions options,
           device::Device device = BRIGADE_LAB_DEVICE)
      : context_(device::Context::Create({.device = device, .compute_threads = 2}).value()),
        stream_(context_->CreateStream("compute").value()),
        model_(Decoder::Create(config, options, *context_).value()),
        arrays_(ParameterArrays::Create(model_->spec(),
                                        {.dtype = options.dtype, .gradients = options.trains},
                                        *context_)
                    .value()) {}

  device::Context& context() { return *context_; }
  device::Stream& stream() { return *stream_; }
  Decoder& model() { return *model_; }
  ParameterArrays& arrays() { return arrays_; }

  // Memory of the host, which GPUs reach.
  template <typename T>
  absl::Span<T> Raw(int64_t size) {
    buffers_.push_back(context_
                           ->AllocateHost(size * static_cast<int64_t>(sizeof(T)),
                                          device::Purpose::kScratch, "array")
                           .value());
    return buffers_.back().as<T>();
  }
  template <typename T>
  absl::Span<T> Filled(const std::vector<T>& values) {
    const absl::Span<T> array = Raw<T>(static_cast<int64_t>(values.size()));
    std::copy(values.begin(), values.end(), array.begin());
    return array;
  }

  // All elements of device memory of the model's type.
  std::vector<double> Read(const void* data, int64_t size) {
    std::vector<double> values;
    nn::VisitReal(model_->options().dtype, [&](auto tag) {
      using T = decltype(tag);
      const absl::Span<T> host = Raw<T>(size);
      EXPECT_OK(stream_->Copy(host.data(), data, size * static_cast<int64_t>(sizeof(T))));
      EXPECT_OK(stream_->Synchronize());
      for (const T& value : host) values.push_back(static_cast<double>(nn::Widen(value)));
    });
    return values;
  }
  void Write(const std::vector<double>& values, void* data) {
    nn::VisitReal(model_->options().dtype, [&](auto tag) {
      using T = decltype(tag);
      const auto size = static_cast<int64_t>(values.size());
      const absl::Span<T> host = Raw<T>(size);
      for (size_t i = 0; i < values.size(); ++i) host[i] = T(static_cast<nn::Wide<T>>(values[i]));
      EXPECT_OK(stream_->Copy(data, host.data(), size * static_cast<int64_t>(sizeof(T))));
      EXPECT_OK(stream_->Synchronize());
    });
  }
  // Weights of a new training, larger by `factor`.
  void Initialize(uint64_t seed, double factor) {
    for (int p = 0; p < arrays_.size(); ++p) {
      std::vector<float> values(static_cast<size_t>(arrays_.size_of(p)));
      model_->Initialize(p, seed, absl::MakeSpan(values));
      std::vector<double> scaled;
      for (const float value : values) {
        scaled.push_back(value == 1 ? 1.0 : factor * static_cast<double>(value));
      }
      Write(scaled, arrays_.weights(p));
    }
  }

  // The losses of each position.
  std::vector<double> Losses(const Batch& batch) {
    std::vector<double> losses;
    const int64_t size = batch.rows();
    if (model_->options().dtype == precision::DType::kFloat64) {
      const absl::Span<double> array = Raw<double>(size);
      EXPECT_OK(Forward(*model_, batch, array.data(), arrays_, *stream_));
      EXPECT_OK(stream_->Synchronize());
      losses.assign(array.begin(), array.end());
    } else {
      const absl::Span<float> array = Raw<float>(size);
      EXPECT_OK(Forward(*model_, batch, array.data(), arrays_, *stream_));
      EXPECT_OK(stream_->Synchronize());
      losses.assign(array.begin(), array.end());
    }
    return losses;
  }
  double SumOfLosses(const Batch& batch) {
    double sum = 0;
    for (const double loss : Losses(batch)) sum += loss;
    return sum;
  }

  // After a backward pass with a seed of a half: a step along the gradient of a parameter changes
  // the loss by the gradient's square.
  void ExpectGradientOfLoss(const Batch& batch, int parameter) {
    const int64_t size = arrays_.size_of(parameter);
    const std::vector<double> gradient = Read(arrays_.gradient(parameter), size);
    const std::vector<double> weights = Read(arrays_.weights(parameter), size);
    double square = 0;
    for (const double g : gradient) square += g * g;
    ASSERT_GT(square, 1e-12);
    const double step = 1e-5 / std::sqrt(square);
    const auto loss = [&](double by) {
      std::vector<double> moved = weights;
      for (size_t i = 0; i < moved.size(); ++i) moved[i] += by * gradient[i];
      Write(moved, arrays_.weights(parameter));
      return SumOfLosses(batch);
    };
    const double change = (loss(step) - loss(-step)) / (2 * step);
    loss(0);
    EXPECT_NEAR(0.5 * change / square, 1, 1e-6);
  }

  // Their names, in order.
  std::vector<zero::ParameterSpec> parameters() const {
    std::vector<zero::ParameterSpec> all;
    for (const zero::UnitSpec& unit : model_->spec()) {
      all.insert(all.end(), unit.parameters.begin(), unit.parameters.end());
    }
    return all;
  }

 private:
  std::unique_ptr<device::Context> context_;
  std::unique_ptr<device::Stream> stream_;
  std::unique_ptr<Decoder> model_;
  ParameterArrays arrays_;
  std::vector<device::Buffer> buffers_;
};

}  // namespace brigade::models

#endif  // BRIGADE_TESTS_MODELS_LAB_H_
