#ifndef BRIGADE_TESTS_CHECKPOINT_SAVED_TOY_H_
#define BRIGADE_TESTS_CHECKPOINT_SAVED_TOY_H_

#include <string>
#include <vector>

#include "brigade/checkpoint/saver.h"
#include "brigade/device/file/system_calls.h"
#include "brigade/zero/zero_optimizer.h"

namespace brigade::checkpoint::testing {

// The toy model, with matrices in it, and 16 bits in its frozen parameter.
zero::ModelSpec ToyWithShapes();

// [array][parameter][i]: masters and moments, as the optimizer has them.
using ToyArrays = std::vector<std::vector<std::vector<float>>>;

// Trains it for three steps with three ranks in stage 2, and saves it as ROOT/step-00000003, in
// several files.
ToyArrays SaveToy(device::SystemCalls& system, const std::string& root, WriteMode mode);

}  // namespace brigade::checkpoint::testing

#endif  // BRIGADE_TESTS_CHECKPOINT_SAVED_TOY_H_
