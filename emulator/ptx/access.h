#ifndef BRIGADE_EMULATOR_PTX_ACCESS_H_
#define BRIGADE_EMULATOR_PTX_ACCESS_H_

#include "brigade/emulator/ptx/module.h"

namespace brigade::emulator {

// ld: registers of the elements, then the address. Signed elements fill their registers by the
// sign, others by zeros.
void LoadUnsigned(Warp& warp, const Instruction& instruction);
void LoadSigned(Warp& warp, const Instruction& instruction);

// st: the address, then registers of the elements.
void Store(Warp& warp, const Instruction& instruction);

// cvta and cvta.to: between an address of a space and a generic one.
void ToGeneric(Warp& warp, const Instruction& instruction);
void FromGeneric(Warp& warp, const Instruction& instruction);

}  // namespace brigade::emulator

#endif  // BRIGADE_EMULATOR_PTX_ACCESS_H_
