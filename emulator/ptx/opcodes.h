#ifndef BRIGADE_EMULATOR_PTX_OPCODES_H_
#define BRIGADE_EMULATOR_PTX_OPCODES_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "brigade/emulator/ptx/module.h"

namespace brigade::emulator {

// What an operand of an instruction may be.
enum class OperandKind : uint8_t {
  kDestination,
  // A register, a number or the address of a variable.
  kSource,
  kDestinationPredicate,
  kSourcePredicate,
  // A register or predicate, and perhaps a second predicate after a |.
  kDestinationAndPredicate,
  kTwoPredicates,
  // In braces, or one register where there is one element.
  kDestinationVector,
  kSourceVector,
  kAddress,
  kLabel,
  // The number 4, 8 or 16, which becomes Instruction::element_bytes, and the instruction's alone.
  kCopyBytes,
  // A source that may be left out at the end: it is then the number Instruction::element_bytes.
  kOptionalSource,
  // The number 0: the one barrier of a block that the emulator has.
  kBarrierZero,
};

// An instruction without its operands, and what those must be.
struct Decoded {
  Instruction instruction;
  std::vector<OperandKind> operands;
  // Of the register, or of each of a vector, that an operand is: so many bytes, or at least as many
  // if the number is negative; 0: any.
  std::vector<int> bytes;
  // Of each operand that is a vector: how many registers it has; empty: Instruction::elements.
  std::vector<int> sizes = {};
};

// How the operands of mov are written: packed from, or unpacked into, parts in braces.
enum class MovShape : uint8_t { kPlain, kPack, kUnpack };

// Unimplemented for what the emulator does not know, with the part that is unknown.
absl::StatusOr<Decoded> Decode(absl::string_view mnemonic, MovShape shape, int parts);

}  // namespace brigade::emulator

#endif  // BRIGADE_EMULATOR_PTX_OPCODES_H_
