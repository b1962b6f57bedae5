#ifndef BRIGADE_TRAIN_DECODER_MODEL_H_
#define BRIGADE_TRAIN_DECODER_MODEL_H_

#include <optional>

#include "brigade/models/config.h"
#include "brigade/models/lora.h"
#include "brigade/train/model_task.h"

namespace brigade::train {

// GPT-2 or Llama of these sizes, a models::Decoder, as a model to train on data::TokenSamples; with
// `lora` only its adapters are trained. Of TrainConfig it takes
// the type of weights, and of `recompute` "none" and "block": InvalidArgument naming another one.
ModelFactory DecoderModel(const models::DecoderConfig& config,
                          const std::optional<models::LoraOptions>& lora = std::nullopt);

}  // namespace brigade::train

#endif  // BRIGADE_TRAIN_DECODER_MODEL_H_
