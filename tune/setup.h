#ifndef BRIGADE_TUNE_SETUP_H_
#define BRIGADE_TUNE_SETUP_H_

// From a user's config, a model and a number of ranks: what is tuned, and between what.

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "brigade/examples/gpt/model.h"
#include "brigade/train/config/autotuning.h"
#include "brigade/tune/space.h"

namespace brigade::tune {

// What flags say beside the config.
struct SetupFlags {
  int ranks = 4;
  // Texts of a step; 0: the config says it.
  int64_t batch = 0;
  // Tuned although the config has a value, and not tuned although it has none.
  std::vector<Dimension> tuned = {}, kept = {};
  // Of which a flag of the trainer has the value.
  std::vector<Dimension> given = {};
  // What those say of ranks that share a model: 0 of none.
  int tensor = 0, context = 0, pipeline = 0;
};

struct TuningSetup {
  Json config = {};
  train::AutotuningOptions options = {};
  Totals totals = {};
  Space space = {};
  std::vector<Dimension> tuned = {};
};

// A file's text, as an object with the order of its keys. Errors of checkpoint::ParseJson, and
// InvalidArgument of what is no object.
absl::StatusOr<Json> ParseConfigText(absl::string_view text);

// Tuned is what the config does not give: it has "auto" there, or nothing; with "fast" of these
// stage and micro-batch, and what is "auto".
//
// Errors       InvalidArgument: of "autotuning", naming the key; where nobody says how many texts a
//              step has, or no grid can have so many; where nothing is tuned.
absl::StatusOr<TuningSetup> SetupOf(absl::string_view text, const gpt::ModelOptions& model,
                                    const SetupFlags& flags);

// The values that a dimension is tried with.
void AddValues(Dimension dimension, const Json& config, const gpt::ModelOptions& model,
               const Totals& totals, const train::AutotuningOptions& options, Space& space);

// "gpt2", "gpt2-medium", "gpt2-large", "gpt2-xl", or LAYERSxWIDTHxHEADSxCONTEXT. InvalidArgument
// naming the text and what it may be; errors of gpt::Validate.
absl::StatusOr<gpt::ModelOptions> ParseModel(absl::string_view text);

}  // namespace brigade::tune

#endif  // BRIGADE_TUNE_SETUP_H_
