#include "brigade/train/decoder_model.h"

#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "brigade/models/decoder.h"
#include "brigade/recompute/policy.h"

namespace brigade::train {

ModelFactory DecoderModel(const models::DecoderConfig& config) {
  using Kind = recompute::Policy::Kind;
  return [config](const ModelPlace& place) -> absl::StatusOr<std::unique_ptr<models::Model>> {
    const recompute::Policy& policy = place.config.recompute;
    const bool is_whole = policy.kind == Kind::kNone || policy.kind == Kind::kBlock;
    if (!is_whole || policy.stash != recompute::StashTier::kNone) {
      return absl::InvalidArgumentError(
          absl::StrCat("brigade.recompute is ", recompute::ToString(policy),
                       policy.stash == recompute::StashTier::kNone ? "" : " with a stash",
                       "; for this model it may be \"none\" or \"block\", without a stash"));
    }
    return models::Decoder::Create(config,
                                   {.dtype = place.config.zero.dtype,
                                    .samples = place.samples,
                                    .positions = place.positions,
                                    .recompute = policy.kind == Kind::kBlock},
                                   place.context);
  };
}

}  // namespace brigade::train
