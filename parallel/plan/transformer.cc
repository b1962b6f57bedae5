#include "brigade/parallel/plan/transformer.h"

#include <cmath>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace brigade::parallel {
namespace {

constexpr int64_t kHeadWidth = 128;

Transformer Gpt(const char* name, int64_t layers, int64_t width, int64_t heads,
                int64_t context = 2048) {
  return {.name = name, .layers = layers, .width = width, .heads = heads, .context = context};
}

}  // namespace

int64_t Transformer::key_value_width() const {
  return key_value_heads > 0 ? width / heads * key_value_heads : width;
}

absl::Status Validate(const Transformer& model) {
  for (const auto& [what, value] :
       {std::pair("layers", model.layers), std::pair("width", model.width),
        std::pair("heads", model.heads), std::pair("context", model.context),
        std::pair("vocabulary", model.vocabulary)}) {
    if (value >= 1 && value <= int64_t{1} << 30) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("the model's ", what, " is ", value, "; it must be 1 to ", int64_t{1} << 30));
  }
  if (model.key_value_heads < 0 || model.mlp_width < 0) {
    return absl::InvalidArgumentError(absl::StrCat("the model has ", model.key_value_heads,
                                                   " heads of keys and values, and an MLP of ",
                                                   model.mlp_width));
  }
  if (model.width % model.heads != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the model's width ", model.width, " is no multiple of its ", model.heads, " heads"));
  }
  if (model.key_value_heads > 0 && model.heads % model.key_value_heads != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("the model's ", model.heads, " heads are no multiple of its ",
                     model.key_value_heads, " heads of keys and values"));
  }
  return absl::OkStatus();
}

LayerParameters ParametersOfLayer(const Transformer& model) {
  const int64_t h = model.width, f = model.mlp(), kv = model.key_value_width();
  const int64_t products = h * (h + 2 * kv) + h * h + (model.is_llama ? 3 : 2) * h * f;
  if (model.is_llama) return {products, 2 * h};
  // Biases of products by columns are cut; those of products by rows, and both norms, are not.
  return {products + h + 2 * kv + f, 2 * h + 4 * h};
}

int64_t EmbeddingParameters(const Transformer& model) { return model.vocabulary * model.width; }

int64_t PositionParameters(const Transformer& model) {
  return model.is_llama ? 0 : model.context * model.width;
}

int64_t Parameters(const Transformer& model) {
  const int64_t final_norm = (model.is_llama ? 1 : 2) * model.width;
  return model.layers * ParametersOfLayer(model).total() +
         (model.is_llama ? 2 : 1) * EmbeddingParameters(model) + PositionParameters(model) +
         final_norm;
}

double ModelFlops(const Transformer& model, double texts, bool recomputes_all, bool is_causal) {
  const auto h = static_cast<double>(model.width), f = static_cast<double>(model.mlp()),
             kv = static_cast<double>(model.key_value_width());
  const double tokens = texts * static_cast<double>(model.context);
  const double seen = static_cast<double>(model.context) / (is_causal ? 2 : 1);
  // A token's products with matrices, and with keys and values of the positions that it sees.
  const double layer =
      2 * (h * (h + 2 * kv) + h * h + (model.is_llama ? 3 : 2) * h * f) + 4 * h * seen;
  const double logits = 2 * h * static_cast<double>(model.vocabulary);
  // Forward once, backward twice.
  return tokens *
         ((recomputes_all ? 4 : 3) * static_cast<double>(model.layers) * layer + 3 * logits);
}

const std::vector<Transformer>& NamedTransformers() {
  // gpt-*b: arXiv 2104.04473, table 1, but for gpt-8.3b: arXiv 1909.08053, table 1. *-175b to
  // -1t of arXiv 2205.05198, table 3, and gpt-22b. llama-405b: arXiv 2407.21783, table 3.
  static const std::vector<Transformer>* const models = new std::vector<Transformer>{
      Gpt("gpt-1.2b", 40, 1536, 16, 1024),
      Gpt("gpt-1.7b", 24, 2304, 24),
      Gpt("gpt-2.5b", 54, 1920, 20, 1024),
      Gpt("gpt-3.6b", 30, 3072, 32),
      Gpt("gpt-4.2b", 64, 2304, 24, 1024),
      Gpt("gpt-7.5b", 36, 4096, 32),
      Gpt("gpt-8.3b", 72, 3072, 32, 1024),
      Gpt("gpt-18b", 40, 6144, 48),
      Gpt("gpt-22b", 48, 6144, 64),
      Gpt("gpt-39b", 48, 8192, 64),
      Gpt("gpt-76b", 60, 10240, 80),
      Gpt("gpt-145b", 80, 12288, 96),
      Gpt("gpt-175b", 96, 12288, 96),
      Gpt("gpt-310b", 96, 16384, 128),
      {.name = "llama-405b",
       .layers = 126,
       .width = 16384,
       .heads = 128,
       .context = 8192,
       .vocabulary = 128256,
       .key_value_heads = 8,
       .mlp_width = 53248,
       .is_llama = true},
      Gpt("gpt-530b", 105, 20480, 128),
      Gpt("gpt-1t", 128, 25600, 160),
  };
  return *models;
}

absl::StatusOr<Transformer> TransformerByName(absl::string_view name) {
  for (const Transformer& model : NamedTransformers()) {
    if (model.name == name) return model;
  }
  return absl::NotFoundError(absl::StrCat(
      "there is no model \"", name, "\"; there are ",
      absl::StrJoin(NamedTransformers(), ", ", [](std::string* out, const Transformer& model) {
        absl::StrAppend(out, model.name);
      })));
}

absl::StatusOr<Transformer> TransformerOfParameters(double parameters, int64_t context,
                                                    int64_t vocabulary) {
  if (!(parameters >= 1e7 && parameters <= 1e14)) {
    return absl::InvalidArgumentError(
        absl::StrCat("the number of parameters is ", parameters, "; it must be 1e7 to 1e14"));
  }
  Transformer best;
  double least = std::numeric_limits<double>::infinity();
  for (int64_t heads = 1; heads <= 4096; ++heads) {
    // Tensor ranks divide the heads.
    if (heads > 16 && heads % 16 != 0) continue;
    Transformer model = {.name = "",
                         .layers = 1,
                         .width = heads * kHeadWidth,
                         .heads = heads,
                         .context = context,
                         .vocabulary = vocabulary};
    const double blocks = parameters - static_cast<double>(Parameters(model));
    const auto layer = static_cast<double>(ParametersOfLayer(model).total());
    const int64_t divisor = blocks / layer > 24 ? 8 : 1;
    model.layers = divisor * std::llround((blocks / layer + 1) / static_cast<double>(divisor));
    if (model.layers < 1) continue;
    const double off = std::abs(std::log(static_cast<double>(Parameters(model)) / parameters));
    const double shape = std::abs(
        std::log(static_cast<double>(model.width) / static_cast<double>(128 * model.layers)));
    if (const double cost = 10 * off + shape; cost < least) {
      least = cost;
      best = model;
    }
  }
  best.name = absl::StrCat("gpt of ", parameters, " parameters");
  return best;
}

}  // namespace brigade::parallel
