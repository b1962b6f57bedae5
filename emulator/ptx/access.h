#ifndef BRIGADE_EMULATOR_PTX_ACCESS_H_
#define BRIGADE_EMULATOR_PTX_ACCESS_H_

#include <cstdint>

#include "brigade/emulator/ptx/module.h"
#include "brigade/emulator/ptx/types.h"

namespace brigade::emulator {

// ld: registers of the elements, then the address. Signed elements fill their registers by the
// sign, others by zeros.
void LoadUnsigned(Warp& warp, const Instruction& instruction);
void LoadSigned(Warp& warp, const Instruction& instruction);

// st: the address, then registers of the elements.
void Store(Warp& warp, const Instruction& instruction);

enum class AtomicOp : uint8_t {
  kAdd,
  kMin,
  kMax,
  kAnd,
  kOr,
  kXor,
  kExch,
  kCas,
  // Up to a bound, then 0; down to 0, then the bound.
  kInc,
  kDec,
};

// atom: a register for what was there, the address, and one or two sources; red is without the
// register. Null for a type that the operation does not have.
Handler AtomicHandler(AtomicOp op, Type type, bool returns);

// cvta and cvta.to: between an address of a space and a generic one.
void ToGeneric(Warp& warp, const Instruction& instruction);
void FromGeneric(Warp& warp, const Instruction& instruction);

}  // namespace brigade::emulator

#endif  // BRIGADE_EMULATOR_PTX_ACCESS_H_
