#ifndef BRIGADE_TRAIN_PROCESS_FLAGS_H_
#define BRIGADE_TRAIN_PROCESS_FLAGS_H_

#include "brigade/train/config/flag_refusals.h"
#include "brigade/train/trainer.h"

namespace brigade::train {

// --rendezvous_folder and --interface, of any program that links this, whose ranks may be
// processes: how they find each other, and nothing else of the options. Refuses them where ranks
// are threads.
TrainerOptions ProcessFlags(bool are_processes, Refusals& refusals);

}  // namespace brigade::train

#endif  // BRIGADE_TRAIN_PROCESS_FLAGS_H_
