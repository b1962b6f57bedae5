// A decoder's operations by formula, of what its passes compute: a frozen matrix has no gradient of
// its own, and an adapter's two are matrices as any.

#include <cstddef>

#include "absl/strings/match.h"
#include "brigade/models/decoder.h"
#include "brigade/profile/flops.h"

namespace brigade::models {
namespace {

using profile::AttentionFlops;
using profile::Pass;

constexpr auto kForward = static_cast<size_t>(Pass::kForward);
constexpr auto kBackward = static_cast<size_t>(Pass::kBackward);
constexpr auto kRecompute = static_cast<size_t>(Pass::kRecompute);

// The last product of a block, whose result is the next one's input: it is not made again.
bool IsLast(const ParameterRole& role) {
  return absl::EndsWith(role.name, "mlp.c_proj.weight") ||
         absl::EndsWith(role.name, "mlp.down_proj.weight");
}

}  // namespace

UnitFlops Decoder::FlopsOfShards(int unit, const Batch& batch,
                                 const parallel::TensorShards& shards) const {
  UnitFlops flops;
  const auto rows = static_cast<double>(batch.rows());
  // Of attention ranks that share samples have equal parts.
  const double samples =
      static_cast<double>(batch.samples) / static_cast<double>(options_.context_ranks.size());
  const auto context = static_cast<double>(batch.positions * options_.context_ranks.size());
  const auto width = static_cast<double>(config_.width), inner = static_cast<double>(config_.inner);
  const bool is_block = unit > 0 && unit < head_unit();
  // Of what is cut, a rank's part.
  const double ranks = shards.ranks;
  const double of_vocabulary = cuts_vocabulary() ? ranks : 1;
  const auto add_product = [&](int64_t size, bool trains, bool again) {
    const double once = profile::MatmulFlops(rows, static_cast<double>(size), 1);
    flops[kForward].products += once;
    flops[kBackward].products += trains ? 2 * once : once;
    if (again) flops[kRecompute].products += once;
  };
  const int first = FirstParameter(unit);
  const auto count = static_cast<int>(spec()[static_cast<size_t>(unit)].parameters.size());
  for (int p = first; p < first + count; ++p) {
    const ParameterRole& role = roles_[static_cast<size_t>(p)];
    const LoraModule* const module =
        role.is_adapter() ? &modules_[static_cast<size_t>(role.module)] : nullptr;
    // Tables are looked up; what is learned of one is multiplied.
    const bool is_table = unit == 0 && (module == nullptr || p == module->a);
    if (is_table || (module == nullptr && role.shape.size() != 2)) continue;
    const ParameterRole& layer =
        module == nullptr ? role : roles_[static_cast<size_t>(module->weight)];
    // Codes are as many numbers as the matrix has.
    const int64_t size = role.kind == ParameterRole::Kind::kInt8Base
                             ? role.size() / shards.ranks
                             : cut_.parameters[static_cast<size_t>(p)].local_size(shards);
    add_product(size, trainable()[static_cast<size_t>(p)],
                options_.recompute && is_block && !IsLast(layer));
  }
  if (unit == 0) return flops;
  if (!is_block) {
    if (config_.tied) {
      add_product(cut_.parameters[0].local_size(shards), trainable()[0], false);
    }
    flops[kForward].norms = profile::LayerNormFlops(rows * width);
    flops[kForward].pointwise =
        profile::SoftmaxFlops(rows * static_cast<double>(config_.vocabulary) / of_vocabulary);
    flops[kBackward].norms = 2 * flops[kForward].norms;
    flops[kBackward].pointwise = 2 * flops[kForward].pointwise;
    return flops;
  }
  const double of_heads = static_cast<double>(config_.attention_width()) / ranks;
  const double pairs =
      samples * static_cast<double>(config_.heads) / ranks * context * (context + 1) / 2;
  // GELU; or SiLU and what it lets through.
  const double activations = (config_.architecture == Architecture::kGpt2 ? 1 : 2) *
                             profile::GeluFlops(rows * inner / ranks);
  profile::Flops& forward = flops[kForward];
  forward.attention =
      profile::AttentionForwardFlops(samples, context, of_heads, AttentionFlops::kCausal);
  forward.norms = 2 * profile::LayerNormFlops(rows * width);
  forward.pointwise = profile::SoftmaxFlops(pairs) + activations;
  profile::Flops& backward = flops[kBackward];
  backward.attention =
      profile::AttentionBackwardFlops(samples, context, of_heads, AttentionFlops::kCausal);
  backward.scores =
      profile::AttentionScoresFlops(samples, context, of_heads, AttentionFlops::kCausal);
  backward.norms = 2 * forward.norms;
  backward.pointwise = 2 * forward.pointwise;
  if (options_.recompute) {
    flops[kRecompute].attention = forward.attention;
    flops[kRecompute].norms = forward.norms;
    flops[kRecompute].pointwise = forward.pointwise;
  }
  return flops;
}

}  // namespace brigade::models
