#ifndef BRIGADE_TRAIN_DECODER_MODEL_H_
#define BRIGADE_TRAIN_DECODER_MODEL_H_

#include <optional>

#include "brigade/models/config.h"
#include "brigade/models/lora.h"
#include "brigade/train/model_task.h"

namespace brigade::train {

struct DecoderModelOptions {
  // Then only the adapters are trained.
  std::optional<models::LoraOptions> lora = std::nullopt;
  // Of samples whose pieces are apart: models::DecoderOptions.
  bool restart_positions = true;
};

// GPT-2 or Llama of these sizes, a models::Decoder, as a model to train on data::TokenSamples of
// either form. Of TrainConfig it takes the type of weights, of `recompute` "none" and "block", and
// what it says of tensor shards and of the sums over them.
//
// Errors       InvalidArgument naming another policy of `recompute`, or samples of another size;
//              sizes that tensor shards do not divide (models::Validate).
ModelFactory DecoderModel(const models::DecoderConfig& config,
                          const DecoderModelOptions& options = {});

}  // namespace brigade::train

#endif  // BRIGADE_TRAIN_DECODER_MODEL_H_
