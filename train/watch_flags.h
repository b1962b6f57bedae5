#ifndef BRIGADE_TRAIN_WATCH_FLAGS_H_
#define BRIGADE_TRAIN_WATCH_FLAGS_H_

#include "brigade/train/config/flag_refusals.h"
#include "brigade/train/watch.h"

namespace brigade::train {

// --metrics, --dashboard and --trace, of any program that links this; paths are those of the user's
// folder. Refuses a port beyond 65535, and a file that two flags name.
WatchOptions WatchFlags(Refusals& refusals);

}  // namespace brigade::train

#endif  // BRIGADE_TRAIN_WATCH_FLAGS_H_
