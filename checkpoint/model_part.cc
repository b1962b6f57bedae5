#include "brigade/checkpoint/model_part.h"

#include <cstddef>

namespace brigade::checkpoint {

std::vector<zero::Parameter> WholeParameters(const zero::Plan& plan, const ModelPart& part) {
  std::vector<zero::Parameter> parameters = plan.parameters();
  for (size_t p = 0; p < part.parameters.size(); ++p) {
    parameters[p].spec.size = part.parameters[p].size();
    parameters[p].spec.shape = part.parameters[p].shape;
  }
  return parameters;
}

}  // namespace brigade::checkpoint
