#ifndef BRIGADE_EMULATOR_PTX_MODULE_H_
#define BRIGADE_EMULATOR_PTX_MODULE_H_

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace brigade::emulator {

class Warp;
struct Instruction;

// The threads of a warp, which is also how many values a register has.
inline constexpr int kLanes = 32;

// Computes an instruction for all lanes of a warp that are active.
using Handler = void (*)(Warp& warp, const Instruction& instruction);

// What the scheduler does with an instruction, besides running its handler.
enum class Control : uint8_t {
  kNone,
  kBranch,
  kExit,
  // Waits for the threads of the block, or for lanes of the warp; then runs the handler, if any.
  kBlockBarrier,
  kWarpBarrier,
};

enum class Space : uint8_t { kGeneric, kParam, kGlobal, kShared, kLocal };

enum class Rounding : uint8_t { kNearest, kZero, kDown, kUp };

// Of numbers; a comparison with a NaN is false but for those of the second line, and the last.
enum class Comparison : uint8_t {
  kEq,
  kNe,
  kLt,
  kLe,
  kGt,
  kGe,
  kEqu,
  kNeu,
  kLtu,
  kLeu,
  kGtu,
  kGeu,
  kNum,
  kNan,
};

// How a comparison's result meets another predicate.
enum class Combination : uint8_t { kNone, kAnd, kOr, kXor };

// A register or constant, by its number among those of the kernel, or one of its predicates.
using Operand = uint16_t;

struct SourcePlace {
  // A number of Module::files.
  uint16_t file = 0;
  // Counted from 1; 0: unknown.
  uint32_t line = 0;
};

// One instruction of a kernel, ready to run. Operands stand in the order in which PTX writes them,
// those of a vector one by one.
struct Instruction {
  // Those of the largest matrix product.
  static constexpr int kMostOperands = 14;

  Handler run = nullptr;
  Control control = Control::kNone;
  // Of an access to memory.
  Space space = Space::kGeneric;
  uint8_t element_bytes = 0;
  uint8_t elements = 0;
  bool is_load = false;
  bool is_store = false;
  bool is_atomic = false;
  // Of arithmetic on floating-point numbers.
  Rounding rounding = Rounding::kNearest;
  bool flushes_to_zero = false;
  bool saturates = false;
  Comparison comparison = Comparison::kEq;
  Combination combination = Combination::kNone;
  // Not checked for races: volatile, relaxed, acquire and release accesses.
  bool is_synchronizing = false;
  // One that other blocks may take as a flag, and whether it is a fence after (before) it as well.
  bool is_flag = false;
  bool acquires = false;
  bool releases = false;

  // Runs where the predicate is true (false). Predicate 0 is always true.
  bool guard_is_negated = false;
  Operand guard = 0;
  // For each operand that is a predicate: whether it is negated.
  uint16_t negated = 0;
  std::array<Operand, kMostOperands> operands = {};
  uint8_t operand_count = 0;
  // For each operand: whether it is written, and whether it is a predicate.
  uint16_t written = 0;
  uint16_t predicates = 0;
  // Of kWarpBarrier: which operand is the mask of its lanes.
  uint8_t lane_mask = 0;
  // Of kWarpBarrier: it has no mask, since all lanes of the warp must come.
  bool is_aligned = false;
  // Of kWarpBarrier: lanes may wait for each other at different places, and memory is ordered.
  bool is_memory_barrier = false;
  // Of kBlockBarrier: the last operand is what each thread votes.
  bool is_block_vote = false;
  // Of an address, in bytes; and of a second one.
  int64_t offset = 0;
  int64_t second_offset = 0;
  // Of a branch: an index of Kernel::code.
  uint32_t target = 0;

  // Index of Module::mnemonics.
  uint16_t mnemonic = 0;
  // Of the PTX, counted from 1.
  uint32_t line = 0;
  // In the source, and where the function around it was inlined.
  SourcePlace source, caller;

  bool accesses_memory() const { return is_load || is_store; }
};

// %tid.x and so on. The numbering of axes is x, y, z.
enum class Special : uint8_t {
  kTidX,
  kTidY,
  kTidZ,
  kNtidX,
  kNtidY,
  kNtidZ,
  kCtaidX,
  kCtaidY,
  kCtaidZ,
  kNctaidX,
  kNctaidY,
  kNctaidZ,
  kLaneid,
  kWarpid,
  kNwarpid,
  kLanemaskLt,
  kLanemaskLe,
  kLanemaskEq,
  kLanemaskGe,
  kLanemaskGt,
};

struct Parameter {
  std::string name;
  int64_t offset = 0;
  int64_t bytes = 0;
};

// A variable of the module in global memory.
struct Variable {
  std::string name;
  int64_t bytes = 0;
  int64_t alignment = 1;
  // Of its first bytes; zeros follow.
  std::vector<uint8_t> initial;
};

struct SharedVariable {
  std::string name;
  int64_t offset = 0;
  int64_t bytes = 0;
};

struct Kernel {
  struct Constant {
    Operand operand = 0;
    uint64_t value = 0;
    // Index of Module::variables whose address is added, or -1.
    int variable = -1;
  };
  struct SpecialRegister {
    Operand operand = 0;
    Special special = {};
  };

  std::string name;
  std::vector<Parameter> parameters;
  int64_t parameter_bytes = 0;
  // In shared memory, in the order of their offsets, each from the first bank on, and 128 bytes or
  // more behind the one before: what leaves one meets bytes of none.
  std::vector<SharedVariable> shared;
  // What a launch adds begins behind them.
  SharedVariable dynamic_shared = {"dynamic shared memory", 0, 0};
  int64_t local_bytes = 0;
  // 0: not said.
  int most_threads = 0;
  // Each with kLanes values; number 0 takes what nobody reads.
  int registers = 1;
  int predicates = 1;
  std::vector<Constant> constants;
  std::vector<SpecialRegister> specials;
  std::vector<Instruction> code;
  // A block may wait for one that was started before it.
  bool spins = false;
  // Not OK: what the emulator does not know of it; it has no code, and a launch is this error.
  absl::Status unknown;
};

struct Module {
  std::string file;
  // 90 for .target sm_90; 0: not said.
  int architecture = 0;
  // Of the source, by number in the PTX.
  absl::flat_hash_map<int, std::string> files;
  std::vector<std::string> mnemonics;
  std::vector<Variable> variables;
  std::vector<Kernel> kernels;
  // The PTX's lines, for reports.
  std::vector<std::string> lines;

  const Kernel* Find(absl::string_view name) const;
};

// Reads PTX as nvcc writes it. `file` names it in errors.
//
// Errors       InvalidArgument for what is not PTX, Unimplemented for an instruction, a directive
//              or an operand that the emulator does not know; both name file, line and text. With
//              kKeep a kernel with something unknown is kept, as Kernel::unknown says, for the
//              sake of the others.
enum class UnknownKernels : uint8_t { kRefuse, kKeep };
absl::StatusOr<std::shared_ptr<const Module>> Parse(
    absl::string_view text, absl::string_view file,
    UnknownKernels unknown = UnknownKernels::kRefuse);

}  // namespace brigade::emulator

#endif  // BRIGADE_EMULATOR_PTX_MODULE_H_
