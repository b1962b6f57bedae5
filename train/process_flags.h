#ifndef BRIGADE_TRAIN_PROCESS_FLAGS_H_
#define BRIGADE_TRAIN_PROCESS_FLAGS_H_

#include "brigade/train/trainer.h"

namespace brigade::train {

// --rendezvous_folder and --interface, of any program that links this, whose ranks may be
// processes: how they find each other. Ranks that are threads refuse them.
void SetProcesses(TrainerOptions& options);

}  // namespace brigade::train

#endif  // BRIGADE_TRAIN_PROCESS_FLAGS_H_
