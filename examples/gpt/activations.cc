#include "brigade/examples/gpt/activations.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "brigade/examples/gpt/block_layout.h"
#include "brigade/nn/texts.h"

namespace brigade::gpt {
namespace {

int64_t MatrixBytes(const ModelOptions& model, int64_t batch, int64_t columns,
                    precision::DType dtype) {
  return batch * model.context * columns * precision::SizeOf(dtype);
}

struct HeadSizes {
  int64_t norm, statistics, logits;
  int64_t saved() const { return norm + 2 * statistics + logits; }
};
HeadSizes SizesOfHead(const ModelOptions& model, int64_t batch, precision::DType dtype) {
  const auto sum_type = dtype == precision::DType::kFloat64 ? dtype : precision::DType::kFloat32;
  return {ArrayBytes(MatrixBytes(model, batch, model.width, dtype)),
          ArrayBytes(MatrixBytes(model, batch, 1, sum_type)),
          ArrayBytes(MatrixBytes(model, batch, nn::kVocabulary, dtype))};
}

recompute::Stage BlockStage(const ModelOptions& model, int64_t batch, precision::DType dtype,
                            int64_t layer) {
  const BlockLayout layout(model, batch, dtype);
  const auto rows = static_cast<double>(batch * model.context);
  const auto width = static_cast<double>(model.width);
  // A product [rows, width] by [width, width]; and attention, which sees half of the context.
  const double product = 2 * rows * width * width;
  const double attention = 2 * rows * static_cast<double>(model.context) * width;
  // Two norms and the GELU of four widths, by so many operations an element.
  const double pointwise = rows * width * (2 * 8 + 4 * 16);
  const int64_t output = ArrayBytes(GradientBytes(model, batch, dtype));
  recompute::Stage stage = {.name = absl::StrCat("h.", layer),
                            .forward_time = 12 * product + attention + pointwise,
                            .output_bytes = output,
                            .gradient_bytes = output,
                            .transient_bytes = layout.ForwardTransientBytes({})};
  int o = 0;
  for (const BlockSaveOption& option : kBlockSaveOptions) {
    // Twice the products, two and a half times those of attention, and what is made again.
    const double again = (option.drops_middle ? 1 : 0) + (option.drops_qkv ? 3 : 0) +
                         (option.drops_expanded ? 4 : 0);
    stage.options.push_back({.name = option.name,
                             .saved_bytes = layout.SavedBytes(o),
                             .forward_transient_bytes = layout.ForwardTransientBytes(o),
                             .backward_transient_bytes = layout.BackwardTransientBytes(o),
                             .backward_time = (24 + again) * product + 2.5 * attention +
                                              (option.drops_pointwise ? 2 : 1) * pointwise});
    ++o;
  }
  return stage;
}

}  // namespace

int64_t GradientBytes(const ModelOptions& model, int64_t batch, precision::DType dtype) {
  return MatrixBytes(model, batch, model.width, dtype);
}

HeadMemory PlaceHead(const ModelOptions& model, int64_t batch, precision::DType dtype, char* saved,
                     char* transient) {
  const HeadSizes sizes = SizesOfHead(model, batch, dtype);
  char* const statistics = saved + sizes.norm;
  return {.norm = saved,
          .mean = statistics,
          .inverse = statistics + sizes.statistics,
          .logits = statistics + 2 * sizes.statistics,
          .dwidth = transient};
}

recompute::Chain ActivationChain(const ModelOptions& model, int64_t batch, precision::DType dtype) {
  const int64_t width = ArrayBytes(GradientBytes(model, batch, dtype));
  recompute::Chain chain;
  chain.stages.push_back({.name = "embedding",
                          .output_bytes = width,
                          .gradient_bytes = width,
                          .options = {{.name = "output", .saved_bytes = width}}});
  for (int64_t layer = 0; layer < model.layers; ++layer) {
    chain.stages.push_back(BlockStage(model, batch, dtype, layer));
  }
  const int64_t saved = SizesOfHead(model, batch, dtype).saved();
  const double product = 2 * static_cast<double>(batch * model.context) *
                         static_cast<double>(model.width) * nn::kVocabulary;
  chain.stages.push_back({.name = "head",
                          .forward_time = product,
                          .gradient_bytes = width,
                          .transient_bytes = saved,
                          .options = {{.name = "all",
                                       .saved_bytes = saved,
                                       .backward_transient_bytes = width,
                                       .backward_time = 2 * product}}});
  return chain;
}

absl::StatusOr<recompute::Plan> PlanOf(const recompute::Chain& chain,
                                       const recompute::Policy& policy) {
  std::vector<int> selective(chain.stages.size(), 0);
  for (size_t s = 1; s + 1 < selective.size(); ++s) selective[s] = kSaveProducts;
  return recompute::PlanBy(policy, chain, selective);
}

}  // namespace brigade::gpt
