#ifndef BRIGADE_EXAMPLES_GPT_CONFIG_RULES_H_
#define BRIGADE_EXAMPLES_GPT_CONFIG_RULES_H_

// What keys say beside one another.

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "brigade/examples/gpt/config.h"
#include "brigade/examples/gpt/config_keys.h"
#include "brigade/examples/gpt/json_reader.h"
#include "brigade/recompute/policy.h"

namespace brigade::gpt {

// "PATH is VALUE, but WHY". Value and reason may hold a name of a file, of any bytes.
std::string ButText(absl::string_view path, const Json& value, absl::string_view why);

// Of all files.
const std::optional<std::string>& Directory(const Settings& settings);

recompute::Policy PolicyOf(const Json& config, const Settings& settings);

// Adds the keys that are right by themselves, but have no effect beside the others: to those that
// are refused, or, where they change no result, to those without effect. `model`: as flags and file
// have it. What goes by a section with a refused key is left out: it is not known.
void CheckThatKeysHaveAnEffect(const Json& config, const Settings& settings,
                               const ModelParallelism& model, Reading& reading);

// InvalidArgument where a schedule rises to another rate than --lr gives, or the type is another
// than --precision.
absl::Status CheckFlags(const Settings& settings);

// Of weights and gradients.
precision::DType TypeOf(const Settings& settings);

}  // namespace brigade::gpt

#endif  // BRIGADE_EXAMPLES_GPT_CONFIG_RULES_H_
