#include "brigade/examples/gpt/model.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "brigade/device/status_macros.h"
#include "brigade/nn/attention_math.h"
#include "brigade/nn/embedding.h"
#include "brigade/nn/random.h"

namespace brigade::gpt {
namespace {

constexpr int64_t kMlpFactor = 4;

absl::Status CheckSize(absl::string_view name, int64_t value, int64_t most) {
  if (value >= 1 && value <= most) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("the model's ", name, " is ", value, "; it must be 1 to ", most));
}

}  // namespace

absl::Status Validate(const ModelOptions& options) {
  BRIGADE_RETURN_IF_ERROR(CheckSize("number of layers", options.layers, 1000));
  BRIGADE_RETURN_IF_ERROR(CheckSize("number of heads", options.heads, 1000));
  BRIGADE_RETURN_IF_ERROR(CheckSize("width", options.width, 1 << 16));
  BRIGADE_RETURN_IF_ERROR(CheckSize("context", options.context, 1 << 16));
  if (options.width % options.heads != 0) {
    return absl::InvalidArgumentError(absl::StrCat("the model's width is ", options.width,
                                                   "; it must be a multiple of its ", options.heads,
                                                   " heads"));
  }
  return CheckSize("width of a head", options.width / options.heads, nn::kMaxHeadWidth);
}

zero::ModelSpec SpecOf(const ModelOptions& options) {
  const int64_t width = options.width, inner = kMlpFactor * width;
  const auto matrix = [](std::string name, int64_t rows, int64_t columns) {
    return zero::ParameterSpec{
        .name = std::move(name), .size = rows * columns, .shape = {rows, columns}};
  };
  zero::ModelSpec spec = {
      {"embedding",
       {matrix("tokens", nn::kVocabulary, width), matrix("positions", options.context, width)},
       {}}};
  for (int64_t layer = 0; layer < options.layers; ++layer) {
    const std::string h = absl::StrCat("h.", layer);
    spec.push_back({h,
                    {{h + ".norm1.weight", width},
                     {h + ".norm1.bias", width},
                     matrix(h + ".qkv.weight", 3 * width, width),
                     {h + ".qkv.bias", 3 * width},
                     matrix(h + ".projection.weight", width, width),
                     {h + ".projection.bias", width},
                     {h + ".norm2.weight", width},
                     {h + ".norm2.bias", width},
                     matrix(h + ".expand.weight", inner, width),
                     {h + ".expand.bias", inner},
                     matrix(h + ".contract.weight", width, inner),
                     {h + ".contract.bias", width}},
                    {}});
  }
  spec.push_back({"head", {{"norm.weight", width}, {"norm.bias", width}}, {"tokens"}});
  return spec;
}

int64_t ParameterCount(const ModelOptions& options) {
  int64_t count = 0;
  for (const zero::UnitSpec& unit : SpecOf(options)) {
    for (const zero::ParameterSpec& parameter : unit.parameters) count += parameter.size;
  }
  return count;
}

double FlopsPerToken(const ModelOptions& options) {
  const auto width = static_cast<double>(options.width);
  const double weights =
      static_cast<double>(options.layers) * (4 + 2 * kMlpFactor) * width * width +
      nn::kVocabulary * width;
  // Scores, and what they weigh.
  const double attention = 2 * static_cast<double>(options.layers * options.context) * width;
  // Backward has two products for each of forward's.
  return 2 * 3 * (weights + attention);
}

void InitializeParameter(const ModelOptions& options, int parameter, uint64_t seed,
                         absl::Span<float> values) {
  double deviation = 0.02;
  if (parameter >= HeadParameter(options, kFinalNormWeight)) {
    const bool weight = parameter == HeadParameter(options, kFinalNormWeight);
    return std::fill(values.begin(), values.end(), weight ? 1.0f : 0.0f);
  }
  if (parameter >= kEmbeddingParameters) {
    switch ((parameter - kEmbeddingParameters) % kBlockParameters) {
      case kQkvWeight:
      case kExpandWeight:
        break;
      case kProjectionWeight:
      case kContractWeight:
        deviation /= std::sqrt(2.0 * static_cast<double>(options.layers));
        break;
      case kNorm1Weight:
      case kNorm2Weight:
        return std::fill(values.begin(), values.end(), 1.0f);
      default:
        return std::fill(values.begin(), values.end(), 0.0f);
    }
  }
  constexpr uint64_t kPurpose = uint64_t{1} << 63;  // samples of the text are below
  // Box and Muller 1958: a pair of numbers in (0, 1) makes one with a normal distribution.
  nn::Random random(seed, kPurpose | static_cast<uint64_t>(parameter));
  for (float& value : values) {
    const double radius = std::sqrt(-2 * std::log(1 - random.Uniform()));
    const double angle = 2 * std::numbers::pi * random.Uniform();
    value = static_cast<float>(deviation * radius * std::cos(angle));
  }
}

}  // namespace brigade::gpt
