#ifndef BRIGADE_EMULATOR_RUNTIME_COUNTS_H_
#define BRIGADE_EMULATOR_RUNTIME_COUNTS_H_

#include <vector>

#include "brigade/emulator/runtime/control.h"

namespace brigade::emulator {

// A table on standard error, a line for each kernel: launches, instructions, the sectors of its
// loads and stores over the fewest that hold as many bytes, the share of accesses that are 16 bytes
// wide, and bank conflicts.
void PrintCounts(const std::vector<LaunchRecord>& launches);

}  // namespace brigade::emulator

#endif  // BRIGADE_EMULATOR_RUNTIME_COUNTS_H_
