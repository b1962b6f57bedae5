#ifndef BRIGADE_TRAIN_DECODER_MODEL_H_
#define BRIGADE_TRAIN_DECODER_MODEL_H_

#include "brigade/models/config.h"
#include "brigade/train/model_task.h"

namespace brigade::train {

// GPT-2 or Llama of these sizes as a model to train, on data::TokenSamples. Of TrainConfig it takes
// the type of weights, and of `recompute` "none" and "block": InvalidArgument naming another one.
ModelFactory DecoderModel(const models::DecoderConfig& config);

}  // namespace brigade::train

#endif  // BRIGADE_TRAIN_DECODER_MODEL_H_
