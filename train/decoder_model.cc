#include "brigade/train/decoder_model.h"

#include <cstdint>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "brigade/models/decoder.h"
#include "brigade/recompute/policy.h"

namespace brigade::train {

ModelFactory DecoderModel(const models::DecoderConfig& config, const DecoderModelOptions& options) {
  using Kind = recompute::Policy::Kind;
  return
      [config, options](const ModelPlace& place) -> absl::StatusOr<std::unique_ptr<models::Model>> {
        const recompute::Policy& policy = place.config.recompute;
        const bool is_whole = policy.kind == Kind::kNone || policy.kind == Kind::kBlock;
        if (!is_whole || policy.stash != recompute::StashTier::kNone) {
          return absl::InvalidArgumentError(
              absl::StrCat("brigade.recompute is ", recompute::ToString(policy),
                           policy.stash == recompute::StashTier::kNone ? "" : " with a stash",
                           "; for this model it may be \"none\" or \"block\", without a stash"));
        }
        // Ids alone, or with positions and ends of segments.
        const int64_t ids_bytes = place.positions * static_cast<int64_t>(sizeof(int32_t));
        if (place.input_bytes != ids_bytes && place.input_bytes != 3 * ids_bytes) {
          return absl::InvalidArgumentError(
              absl::StrCat("samples of ", place.input_bytes, " bytes; ids of ", place.positions,
                           " positions are ", ids_bytes, ", with segments three times as many"));
        }
        return models::Decoder::Create(config,
                                       {.dtype = place.config.zero.dtype,
                                        .samples = place.samples,
                                        .positions = place.positions,
                                        .segments = place.input_bytes == 3 * ids_bytes,
                                        .restart_positions = options.restart_positions,
                                        .recompute = policy.kind == Kind::kBlock,
                                        .lora = options.lora,
                                        .context_ranks = place.context_ranks,
                                        .stage = place.stage,
                                        .tensor = place.tensor},
                                       place.context);
      };
}

}  // namespace brigade::train
