#ifndef BRIGADE_EXAMPLES_GPT_JOB_FLAGS_H_
#define BRIGADE_EXAMPLES_GPT_JOB_FLAGS_H_

// The flags that say what is trained: model, text, config, what stands before it, checkpoints.

#include <string>

#include "absl/status/statusor.h"
#include "brigade/collectives/init.h"
#include "brigade/examples/gpt/job.h"
#include "brigade/train/config/flag_refusals.h"

namespace brigade::gpt {

struct JobRanks {
  int count = 1;
  // Which a launcher has started, not threads of this one.
  bool processes = false;
  collectives::Backend backend = collectives::Backend::kAuto;
};

// With the text. Its device has no number yet. Errors name the flag, or the key of the config, and
// what it must be: `refusals`, of other flags; all flags that are wrong by themselves, with the
// files that they name; all keys, and flags beside them (ParseConfig); and what the model cannot
// be, where keys and flags are right also together with them.
absl::StatusOr<Job> JobOfFlags(const JobRanks& ranks, train::Refusals refusals);

// A config in the place of the file that --config names.
struct ConfigText {
  // JSON, whose paths begin at `folder`.
  std::string text;
  std::string folder = ".";
  // Without it the job has no text to train on, and texts are not asked whether they are long
  // enough.
  bool reads_texts = true;
};

// The same flags beside such a config: what the trainer would make of it.
absl::StatusOr<Job> JobOfFlags(const JobRanks& ranks, train::Refusals refusals,
                               const ConfigText& config);

}  // namespace brigade::gpt

#endif  // BRIGADE_EXAMPLES_GPT_JOB_FLAGS_H_
