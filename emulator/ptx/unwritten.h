#ifndef BRIGADE_EMULATOR_PTX_UNWRITTEN_H_
#define BRIGADE_EMULATOR_PTX_UNWRITTEN_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "brigade/emulator/ptx/module.h"

namespace brigade::emulator {

class Warp;

// Which bits of a warp's registers come of bytes that nobody has written. Loading them is no
// mistake: compilers and libraries load more than they use (padding, the rest of a vector, what a
// condition then discards). A mistake is to use them: as an address, as a condition of what runs,
// as data of an atomic, or as a whole element that is stored in global memory.
class Unwritten {
 public:
  // Where such bytes were first read, and what they were: for the report of a use.
  struct Origin {
    const Instruction* load = nullptr;
    int lane = 0;
    std::string what;
  };

  explicit Unwritten(const Kernel& kernel)
      : registers_(static_cast<size_t>(kernel.registers)),
        predicates_(static_cast<size_t>(kernel.predicates)) {}

  // A load has filled a register of a lane, with such bits or none.
  void Set(Operand operand, int lane, uint64_t bits, const Instruction& load) {
    Register& to = registers_[operand];
    to.bits[lane] = bits;
    if (bits != 0) to.origin = &load;
  }
  void SetOrigin(const Instruction& load, Origin origin) { origins_[&load] = std::move(origin); }
  const Origin& origin(Operand operand) const { return origins_.at(registers_[operand].origin); }
  uint64_t bits(Operand operand, int lane) const { return registers_[operand].bits[lane]; }

  // Runs an instruction that computes. Those bits of its results come of unwritten ones that
  // differ when unwritten ones do: it runs for several values of these, too.
  void Run(Warp& warp, const Instruction& it);

  // Reports that `user` needs a register, or its guard, in the lanes of `mask` where it is such.
  void Use(Warp& warp, const Instruction& user, Operand operand, uint32_t mask) const;
  void UseGuard(Warp& warp, const Instruction& user, uint32_t mask) const;

 private:
  struct Register {
    uint64_t bits[kLanes] = {};
    // One of the loads that they come of.
    const Instruction* origin = nullptr;
  };
  struct Predicate {
    // Of lanes.
    uint32_t bits = 0;
    const Instruction* origin = nullptr;
  };

  // A load that a source of the instruction comes of; null if none is unwritten.
  const Instruction* OriginOf(const Warp& warp, const Instruction& it) const;
  void Report(Warp& warp, const Instruction& user, const Instruction* origin) const;

  std::vector<Register> registers_;
  std::vector<Predicate> predicates_;
  absl::flat_hash_map<const Instruction*, Origin> origins_;
};

}  // namespace brigade::emulator

#endif  // BRIGADE_EMULATOR_PTX_UNWRITTEN_H_
