#ifndef BRIGADE_TRAIN_STEP_FLAGS_H_
#define BRIGADE_TRAIN_STEP_FLAGS_H_

#include "brigade/train/config/config.h"
#include "brigade/train/config/flag_refusals.h"

namespace brigade::train {

// --batch, --lr and --precision, of any program that links this: what they say goes before the
// file of --config, and is what "auto" in it means. In place of what is refused stands something
// that is right, as if it were given.
StepFlags StepOfFlags(Refusals& refusals);

}  // namespace brigade::train

#endif  // BRIGADE_TRAIN_STEP_FLAGS_H_
