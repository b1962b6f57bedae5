#ifndef BRIGADE_TRAIN_TRAINING_FLAGS_H_
#define BRIGADE_TRAIN_TRAINING_FLAGS_H_

// --save, --save_every, --keep, --resume, --weights, --fall_back, --may_differ; --digest,
// --digest_every, --digest_dump, --digest_dump_step, --verify_replicas; --profile, --profile_step,
// --ceilings, --peak_tflops: of any program that links this. Paths are those of the user's folder.
// What is wrong with a flag goes to `refusals`.

#include <cstdint>
#include <string>

#include "absl/flags/declare.h"
#include "brigade/train/config/config.h"
#include "brigade/train/config/flag_refusals.h"
#include "brigade/train/job.h"
#include "brigade/train/watch.h"

// For programs with another default.
ABSL_DECLARE_FLAG(int, keep);

namespace brigade::train {

// Before flags are parsed, on main's own: --resume may stand alone, as the last word or before the
// next flag, for the folder of --save.
void ResumeFromSave(int argc, char** argv);

Checkpoints CheckpointFlags(Refusals& refusals);
// Of a training of so many steps.
Digests DigestFlags(int64_t steps, Refusals& refusals);
// Where --digest leads; empty: nowhere.
std::string DigestPath();

// On a config, before what it says: of a profile, and comparisons of ranks. Where it is not known
// what it says, flags are refused by themselves alone.
void SetByFlags(bool is_known, TrainConfig& config, Refusals& refusals);

// Behind SetByFlags: refuses one file for two of what is written, --digest, --profile, --ceilings,
// and the watch's --trace and --metrics, whose own pair WatchFlags refuses.
void CheckFiles(const WatchOptions& watch, const TrainConfig& config, Refusals& refusals);

}  // namespace brigade::train

#endif  // BRIGADE_TRAIN_TRAINING_FLAGS_H_
