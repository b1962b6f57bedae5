#ifndef BRIGADE_EXAMPLES_GPT_TEXT_BATCH_H_
#define BRIGADE_EXAMPLES_GPT_TEXT_BATCH_H_

// Texts of a rank as samples of a step's batch: of a text, the rank's positions and what follows
// the last one of each run of them.

#include <cstdint>

#include "brigade/examples/gpt/pass_shape.h"
#include "brigade/nn/texts.h"
#include "brigade/train/step_batch.h"

namespace brigade::gpt {

train::BatchShape BatchShapeOf(const PassShape& shape);

// `whole` is [context + 1]; positions of other ranks are left out.
void WriteText(const PassShape& shape, const char* whole, uint8_t* sample);

// Of a micro-batch, on the device.
nn::Texts TextsOf(const PassShape& shape, const train::StepBatch& batch, int64_t micro_batch);

}  // namespace brigade::gpt

#endif  // BRIGADE_EXAMPLES_GPT_TEXT_BATCH_H_
