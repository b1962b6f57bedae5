#include "brigade/examples/gpt/unit_flops.h"

#include "absl/strings/str_cat.h"
#include "brigade/nn/texts.h"
#include "brigade/profile/flops.h"

namespace brigade::gpt {
namespace {

using profile::AttentionFlops;
using profile::Flops;
using profile::Pass;

// Of one pass over a micro-batch.
class PassFlops {
 public:
  explicit PassFlops(const PassShape& shape)
      : rows_(static_cast<double>(shape.rows())),
        own_rows_(static_cast<double>(shape.own_rows())),
        width_(static_cast<double>(shape.model.width)),
        tensor_(static_cast<double>(shape.tensor_ranks)),
        // Ranks that share texts have a part of the pairs each.
        texts_(static_cast<double>(shape.batch) /
               static_cast<double>(shape.tensor_ranks * shape.context_ranks)),
        context_(static_cast<double>(shape.model.context)),
        heads_(static_cast<double>(shape.model.heads)) {}

  // Of products [rows, width] by [width, width].
  Flops Products(double count) const {
    return {.products = count * profile::MatmulFlops(rows_, width_, width_) / tensor_};
  }
  Flops Attention() const {
    return {.attention =
                profile::AttentionForwardFlops(texts_, context_, width_, AttentionFlops::kCausal),
            .pointwise = profile::SoftmaxFlops(texts_ * heads_ * context_ * (context_ + 1) / 2)};
  }
  Flops AttentionBackward() const {
    return {
        .attention =
            profile::AttentionBackwardFlops(texts_, context_, width_, AttentionFlops::kCausal),
        .scores = profile::AttentionScoresFlops(texts_, context_, width_, AttentionFlops::kCausal),
        .pointwise = 2 * profile::SoftmaxFlops(texts_ * heads_ * context_ * (context_ + 1) / 2)};
  }
  Flops Pointwise() const {
    return {.norms = 2 * profile::LayerNormFlops(own_rows_ * width_),
            .pointwise = profile::GeluFlops(4 * rows_ * width_ / tensor_)};
  }
  Flops Head() const {
    return {.products = profile::MatmulFlops(rows_, width_, nn::kVocabulary) / tensor_,
            .norms = profile::LayerNormFlops(own_rows_ * width_),
            .pointwise = profile::SoftmaxFlops(rows_ * nn::kVocabulary / tensor_)};
  }

 private:
  const double rows_, own_rows_, width_, tensor_, texts_, context_, heads_;
};

// Queries, keys and values; the projection; and those of the MLP.
constexpr double kQkvProducts = 3, kMiddleProducts = 1, kExpandProducts = 4, kContractProducts = 4;

Flops Twice(Flops flops) { return flops += Flops(flops); }

void AddForward(const PassFlops& of, int stage, int head, bool has_output, Flops& to) {
  if (stage == head) {
    to += of.Head();
  } else if (stage > 0) {
    to += of.Products(kQkvProducts + kMiddleProducts + kExpandProducts);
    if (has_output) to += of.Products(kContractProducts);
    to += of.Attention();
    to += of.Pointwise();
  }
}

void AddBackward(const PassFlops& of, int stage, int head, Flops& to) {
  if (stage == head) {
    to += Twice(of.Head());
  } else if (stage > 0) {
    to += Twice(of.Products(kQkvProducts + kMiddleProducts + kExpandProducts + kContractProducts));
    to += of.AttentionBackward();
    to += Twice(of.Pointwise());
  }
}

// What a block's backward pass makes again.
void AddAgain(const PassFlops& of, const BlockSaveOption& option, Flops& to) {
  if (option.drops_middle) to += of.Products(kMiddleProducts);
  if (option.drops_qkv) to += of.Products(kQkvProducts);
  if (option.drops_expanded) to += of.Products(kExpandProducts);
  if (option.drops_attention) to += of.Attention();
  if (option.drops_pointwise) to += of.Pointwise();
}

}  // namespace

std::vector<profile::UnitSize> UnitsOfStep(const PassShape& shape, const PartPlan& plan,
                                           int64_t micro_batches) {
  const int head = StagesOf(shape.model) - 1;
  std::vector<profile::UnitSize> units(static_cast<size_t>(head) + 1);
  for (int stage = 0; stage <= head; ++stage) {
    units[static_cast<size_t>(stage)].name = stage == 0      ? "embedding"
                                             : stage == head ? "head"
                                                             : absl::StrCat("h.", stage - 1);
  }
  // Of all shards: where ranks share a unit, each has a part of these.
  const zero::ModelSpec spec = SpecOf(shape.model, {shape.model.tensor_shards, 1, 0}, plan.part);
  for (size_t unit = 0; unit < spec.size(); ++unit) {
    profile::UnitSize& to = units[static_cast<size_t>(plan.part.StageOf(static_cast<int>(unit)))];
    for (const zero::ParameterSpec& parameter : spec[unit].parameters) {
      to.parameters += parameter.size;
    }
  }
  const PassFlops of(shape);
  for (size_t c = 0; c < plan.schedules.size(); ++c) {
    const StageRange& stages = plan.part.chunks()[c];
    const recompute::Schedule& schedule = plan.schedules[c];
    for (size_t i = 0; i < schedule.operations.size(); ++i) {
      const recompute::Operation& operation = schedule.operations[i].operation;
      const int stage = stages.first + operation.stage;
      if (!Computes(operation.action) || stage >= stages.end) continue;
      auto& flops = units[static_cast<size_t>(stage)].flops;
      const auto pass_of = [&flops](Pass pass) -> Flops& {
        return flops[static_cast<size_t>(pass)];
      };
      if (operation.action == recompute::Action::kBackward) {
        AddBackward(of, stage, head, pass_of(Pass::kBackward));
        if (stage > 0 && stage < head) {
          AddAgain(of, kBlockSaveOptions[operation.option], pass_of(Pass::kRecompute));
        }
        continue;
      }
      const bool is_first = i < schedule.first_of_backward;
      // The output of a chunk's last stage is not made again.
      AddForward(of, stage, head, is_first || stage + 1 < stages.end,
                 pass_of(is_first ? Pass::kForward : Pass::kRecompute));
    }
  }
  for (profile::UnitSize& unit : units) {
    for (Flops& flops : unit.flops) {
      const Flops once = flops;
      for (int64_t micro_batch = 1; micro_batch < micro_batches; ++micro_batch) flops += once;
    }
  }
  return units;
}

profile::Training TrainingOf(const ModelOptions& model, int64_t texts_of_step) {
  const profile::TransformerSize size = {
      .weights = static_cast<double>(12 * model.layers * model.width * model.width +
                                     nn::kVocabulary * model.width),
      .layers = model.layers,
      .width = model.width,
      .context = model.context};
  const auto context = static_cast<double>(model.context);
  return {.parameters = ParameterCount(model),
          .tokens_of_step = static_cast<double>(texts_of_step * model.context),
          .flops_per_token = profile::FlopsPerToken(size, AttentionFlops::kFull),
          .causal_flops_per_token = profile::FlopsPerToken(size, AttentionFlops::kCausal),
          .pairs_over_causal = 2 * context / (context + 1)};
}

}  // namespace brigade::gpt
