#ifndef BRIGADE_EMULATOR_PTX_TILE_ACCESS_H_
#define BRIGADE_EMULATOR_PTX_TILE_ACCESS_H_

// Handlers of what moves tiles of matrices: ldmatrix from shared memory to registers, cp.async from
// global to shared memory.

#include "brigade/emulator/ptx/module.h"

namespace brigade::emulator {

// ldmatrix.m8n8.x1, .x2 or .x4: registers, one for each matrix, then the address; null for another
// number.
//
// Lane 8 m + r has the address of row r of matrix m, 8 elements of 16 bits. Lane 4 i + j gets
// elements 2 j and 2 j + 1 of row i, and of a transposed matrix of column i. An element counts as
// read by the lane that gets it.
// Source: "ldmatrix" of the PTX ISA.
Handler LoadMatricesHandler(int matrices, bool is_transposed);

// cp.async: the address in shared memory, the one in global memory, and how many bytes are read of
// Instruction::element_bytes; zeros are written for the others.
//
// The bytes are read here and written where the thread waits for them. Until then every access to
// them in shared memory is a race, whoever makes it, and so is a change of what was read.
void CopyAsync(Warp& warp, const Instruction& instruction);
void CommitCopies(Warp& warp, const Instruction& instruction);
// cp.async.wait_group: how many of the last groups need not be waited for. And cp.async.wait_all.
void AwaitCopyGroups(Warp& warp, const Instruction& instruction);
void AwaitAllCopies(Warp& warp, const Instruction& instruction);

}  // namespace brigade::emulator

#endif  // BRIGADE_EMULATOR_PTX_TILE_ACCESS_H_
