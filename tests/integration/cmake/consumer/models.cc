// The token of the greatest logit, and a pattern of layers' names.
#include <cstdint>
#include <cstdio>

#include "absl/status/statusor.h"
#include "brigade/models/module_pattern.h"
#include "brigade/models/sampling.h"

int main() {
  namespace models = brigade::models;
  const float logits[] = {0, 3, 1};
  const absl::StatusOr<int64_t> token = models::SampleToken(logits, {.temperature = 0}, 0, 0);
  const auto pattern = models::ModulePattern::Parse(".*_proj");
  std::printf("%s; %s\n", token.status().ToString().c_str(), pattern.status().ToString().c_str());
  return token.ok() && *token == 1 && pattern.ok() && pattern->Matches("q_proj") &&
                 !pattern->Matches("q_norm")
             ? 0
             : 1;
}
