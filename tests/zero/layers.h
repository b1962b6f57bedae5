#ifndef BRIGADE_TESTS_ZERO_LAYERS_H_
#define BRIGADE_TESTS_ZERO_LAYERS_H_

#include <cstdint>
#include <string>

#include "brigade/zero/plan/plan.h"

namespace brigade::zero {

// Four layers as a transformer's, of 64 columns, behind a table that is looked up; each has one
// more matrix, of the test's.
inline ModelSpec LayersWith(const std::string& name, int64_t rows, int64_t columns) {
  ModelSpec model = {{"embedding", {{"wte", 100 * 64, {}, 0, true, {100, 64}}}}};
  model[0].parameters[0].low_rank = false;
  for (const char* layer : {"a", "b", "c", "d"}) {
    const std::string of = layer;
    model.push_back({of,
                     {{of + ".qkv", 192 * 64, {}, 0, true, {192, 64}},
                      {of + "." + name, rows * columns, {}, 0, true, {rows, columns}},
                      {of + ".up", 256 * 64, {}, 0, true, {256, 64}},
                      {of + ".down", 64 * 256, {}, 0, true, {64, 256}},
                      {of + ".frozen", 64, {}, 0, false, {8, 8}},
                      {of + ".norm", 64}}});
  }
  return model;
}

}  // namespace brigade::zero

#endif  // BRIGADE_TESTS_ZERO_LAYERS_H_
