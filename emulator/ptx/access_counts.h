#ifndef BRIGADE_EMULATOR_PTX_ACCESS_COUNTS_H_
#define BRIGADE_EMULATOR_PTX_ACCESS_COUNTS_H_

// What the addresses of a warp's lanes cost the hardware. Lanes that access `bytes` bytes each are
// the bits of `touching`.

#include <cstdint>

#include "brigade/emulator/ptx/launch.h"
#include "brigade/emulator/ptx/warp.h"

namespace brigade::emulator {

// Adds the sectors of 32 bytes and lines of 128 that one access to global memory touches, and the
// fewest sectors that hold as many different bytes.
void CountSectors(const Lanes& addresses, uint32_t touching, int bytes, AccessCounts& counts);

// Of one access to shared memory: how often it is delivered beyond what its width takes.
int64_t BankConflicts(const Lanes& addresses, uint32_t touching, int bytes);

}  // namespace brigade::emulator

#endif  // BRIGADE_EMULATOR_PTX_ACCESS_COUNTS_H_
