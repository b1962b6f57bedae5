#include "brigade/examples/gpt/activations.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "brigade/device/threads/mutex.h"
#include "brigade/nn/texts.h"
#include "brigade/parallel/tensor/cross_entropy.h"

namespace brigade::gpt {
namespace {

struct HeadSizes {
  int64_t norm, statistics, logits, softmax;
  int64_t saved() const { return norm + 2 * statistics + logits + softmax; }
};
HeadSizes SizesOfHead(const PassShape& shape) {
  const auto sum_type =
      shape.dtype == precision::DType::kFloat64 ? shape.dtype : precision::DType::kFloat32;
  return {recompute::AlignedBytes(shape.bytes_of(shape.rows() * shape.model.width)),
          recompute::AlignedBytes(shape.own_rows() * precision::SizeOf(sum_type)),
          recompute::AlignedBytes(shape.bytes_of(shape.Cut(nn::kVocabulary))),
          shape.model.tensor_shards == 1
              ? 0
              : recompute::AlignedBytes(
                    parallel::VocabularyCrossEntropy::StatisticsBytes(shape.dtype, shape.rows()))};
}

// What a block's backward pass makes again.
double TimeAgain(const BlockSaveOption& option, const PassCosts& costs) {
  return (option.drops_pointwise ? costs.pointwise : 0) + (option.drops_middle ? costs.middle : 0) +
         (option.drops_qkv ? costs.qkv : 0) + (option.drops_expanded ? costs.expanded : 0) +
         (option.drops_attention ? costs.attention : 0);
}

recompute::Stage EmbeddingStage(const PassShape& shape, const PassCosts& costs,
                                const BlockLayoutOptions& options) {
  const int64_t residual = recompute::AlignedBytes(shape.residual_bytes());
  const int64_t output = options.saves_output ? residual : 0;
  // Of all rows, whose tokens the rank may have.
  const int64_t gathered =
      shape.shares_rows() ? recompute::AlignedBytes(shape.residual_bytes() * shape.tensor_ranks)
                          : 0;
  return {.name = "embedding",
          .forward_time = costs.embedding.forward,
          .output_bytes = output,
          .options = {{.name = "output",
                       .saved_bytes = output,
                       .backward_transient_bytes = gathered,
                       .backward_time = costs.embedding.backward,
                       .deferred_bytes = options.splits_backward ? residual : 0}}};
}

recompute::Stage BlockStage(const PassShape& shape, int64_t layer, const PassCosts& costs,
                            const BlockLayoutOptions& options) {
  const BlockLayout layout(shape, options);
  const int64_t residual = recompute::AlignedBytes(shape.residual_bytes());
  recompute::Stage stage = {.name = absl::StrCat("h.", layer),
                            .forward_time = costs.block.forward,
                            .output_bytes = options.saves_output ? residual : 0,
                            .transient_bytes = layout.ForwardTransientBytes({})};
  for (int o = 0; o < kBlockSaveOptionCount; ++o) {
    stage.options.push_back(
        {.name = kBlockSaveOptions[o].name,
         .saved_bytes = layout.SavedBytes(o),
         .forward_transient_bytes = layout.ForwardTransientBytes(o),
         .backward_transient_bytes = layout.BackwardTransientBytes(o),
         .backward_time = costs.block.backward + TimeAgain(kBlockSaveOptions[o], costs),
         .deferred_bytes = layout.DeferredBytes(o),
         .weight_input_bytes = layout.ProductInputBytes(o)});
  }
  return stage;
}

recompute::Stage HeadStage(const PassShape& shape, const PassCosts& costs, bool splits_backward) {
  const int64_t saved = SizesOfHead(shape).saved();
  const int64_t row_gradients = shape.bytes_of(kHeadRowGradients * shape.model.width);
  return {
      .name = "head",
      .forward_time = costs.head.forward,
      .transient_bytes = saved,
      .options = {{.name = "all",
                   .saved_bytes = saved,
                   .backward_transient_bytes = recompute::AlignedBytes(shape.residual_bytes()),
                   .backward_time = costs.head.backward,
                   .deferred_bytes = splits_backward ? recompute::AlignedBytes(row_gradients) : 0,
                   .weight_input_bytes = saved}}};
}

}  // namespace

HeadMemory PlaceHead(const PassShape& shape, char* saved, char* transient) {
  const HeadSizes sizes = SizesOfHead(shape);
  char* const statistics = saved + sizes.norm;
  return {.norm = saved,
          .mean = statistics,
          .inverse = statistics + sizes.statistics,
          .logits = statistics + 2 * sizes.statistics,
          .softmax = statistics + 2 * sizes.statistics + sizes.logits,
          .dwidth = transient};
}

PassCosts CountOperations(const PassShape& shape) {
  const auto rows = static_cast<double>(shape.rows());
  const auto width = static_cast<double>(shape.model.width);
  const double ranks = shape.tensor_ranks;
  // A product [rows, width] by [width, width]; attention, which sees half of the context; and two
  // norms and the GELU of four widths, by so many operations an element.
  const double product = 2 * rows * width * width / ranks;
  const double attention = 2 * rows * static_cast<double>(shape.model.context) * width / ranks;
  const double pointwise =
      width * (2 * 8 * static_cast<double>(shape.own_rows()) + 4 * 16 * rows / ranks);
  const double logits = 2 * rows * width * nn::kVocabulary / ranks;
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

recompute::Chain ActivationChain(const PassShape& shape, const PassCosts& costs,
                                 const StageRange& stages, bool splits_backward) {
  const int end_of_model = StagesOf(shape.model);
  const bool ends_model = stages.end == end_of_model;
  recompute::Chain chain;
  for (int s = stages.first; s < stages.end; ++s) {
    const BlockLayoutOptions options = {.saves_output = s + 1 < stages.end,
                                        .splits_backward = splits_backward};
    chain.stages.push_back(s == 0                 ? EmbeddingStage(shape, costs, options)
                           : s + 1 < end_of_model ? BlockStage(shape, s - 1, costs, options)
                                                  : HeadStage(shape, costs, splits_backward));
  }
  if (!ends_model) {
    chain.stages.push_back(
        {.name = "next part", .options = {recompute::SaveOption()}, .is_elsewhere = true});
  }
  if (stages.first == 0 && ends_model) {
    for (recompute::Stage& stage : chain.stages) {
      stage.gradient_bytes = recompute::AlignedBytes(shape.residual_bytes());
    }
  }
  return chain;
}

recompute::Chain ActivationChain(const PassShape& shape, const PassCosts& costs) {
  return ActivationChain(shape, costs, {0, StagesOf(shape.model)}, /*splits_backward=*/false);
}

recompute::Chain ActivationChain(const PassShape& shape) {
  return ActivationChain(shape, CountOperations(shape));
}

absl::StatusOr<recompute::Plan> PlanOf(const recompute::Chain& chain,
                                       const recompute::Policy& policy) {
  // One at a time: a planner's tables take up to 128 MiB, and ranks that are threads of one process
  // plan at the same moment.
  static device::Mutex planning;
  device::MutexLock lock(planning);
  std::vector<int> selective(chain.stages.size(), 0);
  // Of blocks, which alone have more than one option.
  for (size_t s = 0; s < selective.size(); ++s) {
    if (chain.stages[s].options.size() > 1) selective[s] = kSaveProducts;
  }
  return recompute::PlanBy(policy, chain, selective);
}

}  // namespace brigade::gpt
