#ifndef BRIGADE_EMULATOR_NCCL_ACCUMULATE_H_
#define BRIGADE_EMULATOR_NCCL_ACCUMULATE_H_

#include <cstddef>

#include "brigade/emulator/nccl/emulated_nccl.h"

namespace brigade::emulator {

// Whether it is one of NCCL's that is here: all but those that a program makes.
bool HasOp(NcclOp op);

// result[i] = op(result[i], input[i]), rounded to the type; an average begins as a sum. Like
// NCCL's, minima and maxima may lose a NaN. Neither address need be aligned.
void Accumulate(NcclType type, NcclOp op, const void* input, size_t count, void* result);

// Makes averages of sums over so many ranks; of integers rounded towards 0. Leaves the rest.
void Finish(NcclType type, NcclOp op, int ranks, size_t count, void* result);

}  // namespace brigade::emulator

#endif  // BRIGADE_EMULATOR_NCCL_ACCUMULATE_H_
