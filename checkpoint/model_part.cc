#include "brigade/checkpoint/model_part.h"

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"

namespace brigade::checkpoint {

std::vector<int> NumbersIn(absl::Span<const zero::Parameter> model, const zero::Plan& plan) {
  absl::flat_hash_map<absl::string_view, int> by_name;
  by_name.reserve(model.size());
  for (const zero::Parameter& parameter : model) {
    by_name.emplace(parameter.spec.name, static_cast<int>(by_name.size()));
  }
  std::vector<int> numbers;
  numbers.reserve(plan.parameters().size());
  for (const zero::Parameter& parameter : plan.parameters()) {
    const auto found = by_name.find(parameter.spec.name);
    numbers.push_back(found == by_name.end() ? -1 : found->second);
  }
  return numbers;
}

}  // namespace brigade::checkpoint
