#include "brigade/examples/gpt/activations.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "brigade/device/threads/mutex.h"
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
  return {recompute::AlignedBytes(MatrixBytes(model, batch, model.width, dtype)),
          recompute::AlignedBytes(MatrixBytes(model, batch, 1, sum_type)),
          recompute::AlignedBytes(MatrixBytes(model, batch, nn::kVocabulary, dtype))};
}

// What a block's backward pass makes again.
double TimeAgain(const BlockSaveOption& option, const PassCosts& costs) {
  return (option.drops_pointwise ? costs.pointwise : 0) + (option.drops_middle ? costs.middle : 0) +
         (option.drops_qkv ? costs.qkv : 0) + (option.drops_expanded ? costs.expanded : 0) +
         (option.drops_attention ? costs.attention : 0);
}

recompute::Stage BlockStage(const ModelOptions& model, int64_t batch, precision::DType dtype,
                            int64_t layer, const PassCosts& costs) {
  const BlockLayout layout(model, batch, dtype);
  const int64_t output = recompute::AlignedBytes(GradientBytes(model, batch, dtype));
  recompute::Stage stage = {.name = absl::StrCat("h.", layer),
                            .forward_time = costs.block.forward,
                            .output_bytes = output,
                            .gradient_bytes = output,
                            .transient_bytes = layout.ForwardTransientBytes({})};
  for (int o = 0; o < kBlockSaveOptionCount; ++o) {
    stage.options.push_back(
        {.name = kBlockSaveOptions[o].name,
         .saved_bytes = layout.SavedBytes(o),
         .forward_transient_bytes = layout.ForwardTransientBytes(o),
         .backward_transient_bytes = layout.BackwardTransientBytes(o),
         .backward_time = costs.block.backward + TimeAgain(kBlockSaveOptions[o], costs)});
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

PassCosts CountOperations(const ModelOptions& model, int64_t batch) {
  const auto rows = static_cast<double>(batch * model.context);
  const auto width = static_cast<double>(model.width);
  // A product [rows, width] by [width, width]; attention, which sees half of the context; and two
  // norms and the GELU of four widths, by so many operations an element.
  const double product = 2 * rows * width * width;
  const double attention = 2 * rows * static_cast<double>(model.context) * width;
  const double pointwise = rows * width * (2 * 8 + 4 * 16);
  const double logits = 2 * rows * width * nn::kVocabulary;
  // Backward twice the products, and two and a half times those of attention.
  return {.block = {.forward = 12 * product + attention + pointwise,
                    .backward = 24 * product + 2.5 * attention + pointwise},
          .head = {.forward = logits, .backward = 2 * logits},
          .pointwise = pointwise,
          .middle = product,
          .qkv = 3 * product,
          .expanded = 4 * product,
          .attention = attention};
}

recompute::Chain ActivationChain(const ModelOptions& model, int64_t batch, precision::DType dtype,
                                 const PassCosts& costs) {
  const int64_t width = recompute::AlignedBytes(GradientBytes(model, batch, dtype));
  recompute::Chain chain;
  chain.stages.push_back(
      {.name = "embedding",
       .forward_time = costs.embedding.forward,
       .output_bytes = width,
       .gradient_bytes = width,
       .options = {
           {.name = "output", .saved_bytes = width, .backward_time = costs.embedding.backward}}});
  for (int64_t layer = 0; layer < model.layers; ++layer) {
    chain.stages.push_back(BlockStage(model, batch, dtype, layer, costs));
  }
  const int64_t saved = SizesOfHead(model, batch, dtype).saved();
  chain.stages.push_back({.name = "head",
                          .forward_time = costs.head.forward,
                          .gradient_bytes = width,
                          .transient_bytes = saved,
                          .options = {{.name = "all",
                                       .saved_bytes = saved,
                                       .backward_transient_bytes = width,
                                       .backward_time = costs.head.backward}}});
  return chain;
}

recompute::Chain ActivationChain(const ModelOptions& model, int64_t batch, precision::DType dtype) {
  return ActivationChain(model, batch, dtype, CountOperations(model, batch));
}

absl::StatusOr<recompute::Plan> PlanOf(const recompute::Chain& chain,
                                       const recompute::Policy& policy) {
  // One at a time: a planner's tables take up to 128 MiB, and ranks that are threads of one process
  // plan at the same moment.
  static device::Mutex planning;
  device::MutexLock lock(planning);
  std::vector<int> selective(chain.stages.size(), 0);
  for (size_t s = 1; s + 1 < selective.size(); ++s) selective[s] = kSaveProducts;
  return recompute::PlanBy(policy, chain, selective);
}

}  // namespace brigade::gpt
