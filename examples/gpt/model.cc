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
#include "brigade/parallel/tensor/row_pieces.h"

namespace brigade::gpt {
namespace {

constexpr int64_t kMlpFactor = 4;

// In the order of Block.
constexpr const char* kBlockNames[kBlockParameters] = {
    "norm1.weight",      "norm1.bias",      "qkv.weight",      "qkv.bias",
    "projection.weight", "projection.bias", "norm2.weight",    "norm2.bias",
    "expand.weight",     "expand.bias",     "contract.weight", "contract.bias"};

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
  BRIGADE_RETURN_IF_ERROR(
      CheckSize("width of a head", options.width / options.heads, nn::kMaxHeadWidth));
  BRIGADE_RETURN_IF_ERROR(CheckSize("number of tensor shards", options.tensor_shards, 1 << 15));
  const auto divides = [&](absl::string_view what, int64_t number) {
    if (number % options.tensor_shards == 0) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat("the model's ", what, " ", number,
                                                   " cannot be cut into ", options.tensor_shards,
                                                   " tensor shards"));
  };
  BRIGADE_RETURN_IF_ERROR(divides("heads, which are", options.heads));
  BRIGADE_RETURN_IF_ERROR(divides("vocabulary, which has", nn::kVocabulary));
  if (options.sequence_parallel && options.tensor_shards == 1) {
    return absl::InvalidArgumentError(
        "sequence parallelism shares rows as the model is shared, which has one tensor shard");
  }
  BRIGADE_RETURN_IF_ERROR(
      CheckSize("number of pieces of products", options.tensor_pieces, parallel::kMostPieces));
  if (options.tensor_pieces > 1 && options.tensor_shards == 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("the model's products are cut into ", options.tensor_pieces,
                     " pieces, but of a model of one tensor shard nothing is exchanged"));
  }
  return absl::OkStatus();
}

parallel::Shard ShardOf(const ModelOptions& options, int parameter) {
  const int64_t width = options.width, inner = kMlpFactor * width;
  if (parameter == kTokens) return {.shape = {nn::kVocabulary, width}, .axis = 0};
  if (parameter == kPositions) return {.shape = {options.context, width}};
  if (parameter >= HeadParameter(options, kFinalNormWeight)) return {.shape = {width}};
  switch ((parameter - kEmbeddingParameters) % kBlockParameters) {
    case kQkvWeight:
      return {.shape = {3 * width, width}, .axis = 0, .parts = 3};
    case kQkvBias:
      return {.shape = {3 * width}, .axis = 0, .parts = 3};
    case kProjectionWeight:
      return {.shape = {width, width}, .axis = 1};
    case kExpandWeight:
      return {.shape = {inner, width}, .axis = 0};
    case kExpandBias:
      return {.shape = {inner}, .axis = 0};
    case kContractWeight:
      return {.shape = {width, inner}, .axis = 1};
    default:
      return {.shape = {width}};
  }
}

zero::ModelSpec SpecOf(const ModelOptions& options, const parallel::TensorShards& shards) {
  int number = 0;
  const auto parameter = [&](std::string name) {
    const parallel::Shard shard = ShardOf(options, number++);
    zero::ParameterSpec spec = {.name = std::move(name),
                                .size = shard.local_size(shards),
                                .counted = shard.counts_on(shards)};
    // Of several shards the elements lie otherwise.
    if (shards.count == 1 || !shard.axis.has_value()) spec.shape = shard.shape;
    return spec;
  };
  zero::ModelSpec spec = {{"embedding", {parameter("tokens"), parameter("positions")}, {}}};
  for (zero::ParameterSpec& table : spec.front().parameters) table.low_rank = false;
  for (int64_t layer = 0; layer < options.layers; ++layer) {
    zero::UnitSpec& block = spec.emplace_back(zero::UnitSpec{absl::StrCat("h.", layer), {}, {}});
    for (const char* const name : kBlockNames) {
      block.parameters.push_back(parameter(absl::StrCat(block.name, ".", name)));
    }
  }
  spec.push_back({"head", {parameter("norm.weight"), parameter("norm.bias")}, {"tokens"}});
  return spec;
}

zero::ModelSpec SpecOf(const ModelOptions& options) {
  return SpecOf(options, {.count = options.tensor_shards});
}

int64_t ParameterCount(const ModelOptions& options) {
  int64_t count = 0;
  for (int p = 0; p <= HeadParameter(options, kFinalNormBias); ++p) {
    count += ShardOf(options, p).size();
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
                         const parallel::TensorShards& shards, absl::Span<float> values) {
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
  const auto count = static_cast<int64_t>(values.size());
  ForEachRun(ShardOf(options, parameter), shards, [&](const parallel::ShardRun& run) {
    // Box and Muller 1958: a pair of numbers in (0, 1) makes one with a normal distribution.
    nn::Random random(seed, kPurpose | static_cast<uint64_t>(parameter));
    random.Skip(2 * static_cast<uint64_t>(run.global));
    for (int64_t i = run.local; i < std::min(run.local + run.size, count); ++i) {
      const double radius = std::sqrt(-2 * std::log(1 - random.Uniform()));
      const double angle = 2 * std::numbers::pi * random.Uniform();
      values[static_cast<size_t>(i)] = static_cast<float>(deviation * radius * std::cos(angle));
    }
  });
}

}  // namespace brigade::gpt
