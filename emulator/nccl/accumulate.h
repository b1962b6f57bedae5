#ifndef BRIGADE_EMULATOR_NCCL_ACCUMULATE_H_
#define BRIGADE_EMULATOR_NCCL_ACCUMULATE_H_

#include <cstddef>

#include "brigade/emulator/nccl/emulated_nccl.h"

namespace brigade::emulator {

// result[i] = op(result[i], input[i]), rounded to the type. Like NCCL's, minima and maxima may lose
// a NaN. Neither address need be aligned.
void Accumulate(NcclType type, NcclOp op, const void* input, size_t count, void* result);

}  // namespace brigade::emulator

#endif  // BRIGADE_EMULATOR_NCCL_ACCUMULATE_H_
