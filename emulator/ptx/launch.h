#ifndef BRIGADE_EMULATOR_PTX_LAUNCH_H_
#define BRIGADE_EMULATOR_PTX_LAUNCH_H_

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "brigade/emulator/ptx/memory.h"
#include "brigade/emulator/ptx/module.h"

namespace brigade::emulator {

struct Dim3 {
  int x = 1, y = 1, z = 1;

  int64_t count() const { return int64_t{x} * y * z; }
};

enum class FindingKind : uint8_t {
  // Of memory that is in no live allocation, or of shared, local or parameter memory out of range.
  kOutOfBounds,
  kMisaligned,
  // A read of bytes that nobody has written.
  kUninitialized,
  // Two threads of a block, without a barrier between, or two blocks of a launch; one writes.
  kRaceInBlock,
  kRaceBetweenBlocks,
  // Threads that wait at a barrier, a shuffle or a vote for others that will not come.
  kBarrier,
  // A mask without the lane itself, or with lanes that have left.
  kLaneMask,
  kDivisionByZero,
  // The kernel's own instruction to end with an error.
  kTrap,
  // More instructions than LaunchOptions::most_instructions.
  kEndless,
};

absl::string_view Name(FindingKind kind);

// What a kernel did wrong, at the first of the places where it did it.
struct Finding {
  FindingKind kind = {};
  std::string kernel;
  Dim3 block = {0, 0, 0};
  Dim3 thread = {0, 0, 0};
  // Of the PTX.
  int line = 0;
  std::string instruction;
  // "file:line" of the source and, if a function was inlined there, of its call; empty without line
  // information.
  std::string source, caller;
  // What is wrong and with which buffer.
  std::string what;
  // How often, at this instruction.
  int64_t times = 1;

  // One line.
  std::string ToString() const;
};

// What the warps' accesses of one instruction, or of all, cost.
struct AccessCounts {
  // Instructions of warps, and of their lanes.
  int64_t requests = 0;
  int64_t accesses = 0;
  int64_t bytes = 0;
  // Global memory: sectors of 32 bytes touched, the fewest that hold as many bytes, and lines of
  // 128 bytes.
  int64_t sectors = 0;
  int64_t least_sectors = 0;
  int64_t lines = 0;
  // Shared memory: passes beyond the first that accesses of one bank take.
  int64_t bank_conflicts = 0;

  AccessCounts& operator+=(const AccessCounts& other);
};

// What a launch did.
struct LaunchCounts {
  struct OfInstruction {
    // Index of Module::mnemonics.
    uint16_t mnemonic = 0;
    int line = 0;
    // Of threads.
    int64_t executed = 0;
    AccessCounts global, shared;
  };

  // Of each instruction of the kernel, in its order.
  std::vector<OfInstruction> instructions;
  // Bytes of global memory that were read (written) when some thread of the launch had done so.
  int64_t read_again = 0;
  int64_t written_again = 0;

  int64_t executed() const;
  // Of the loads (stores) of global memory whose lanes access `bytes` each; 0: of any width.
  AccessCounts GlobalLoads(const Kernel& kernel, int bytes = 0) const;
  AccessCounts GlobalStores(const Kernel& kernel, int bytes = 0) const;
};

struct LaunchResult {
  // By the order of the kernel's code. Empty: nothing is wrong.
  std::vector<Finding> findings;
  LaunchCounts counts;
};

struct LaunchOptions {
  Dim3 grid;
  Dim3 block;
  int64_t dynamic_shared_bytes = 0;
  // Chooses the order of blocks and of the warps between barriers.
  uint64_t seed = 0;
  // Of the host; each runs blocks of its own.
  int threads = 1;
  // Of one thread of the kernel, before it counts as endless.
  int64_t most_instructions = int64_t{1} << 32;
};

// A module whose variables have their place in the memory of a device.
class LoadedModule {
 public:
  // ResourceExhausted if the variables do not fit.
  static absl::StatusOr<LoadedModule> Create(std::shared_ptr<const Module> module, Memory& memory,
                                             int device = 0);

  const Module& module() const { return *module_; }
  Memory& memory() const { return *memory_; }
  int device() const { return device_; }
  // Addresses of Module::variables.
  const std::vector<uint64_t>& variables() const { return variables_; }

 private:
  std::shared_ptr<const Module> module_;
  Memory* memory_ = nullptr;
  int device_ = 0;
  std::vector<uint64_t> variables_;
};

// InvalidArgument for a launch that CUDA refuses: sizes out of range, parameters of another size,
// more shared memory than 227 KiB. Kernel::unknown.
absl::Status CheckLaunch(const Kernel& kernel, absl::Span<const uint8_t> parameters,
                         const LaunchOptions& options);

// Runs a kernel. Bad accesses are left out, so that the rest goes on; a barrier that some never
// reach and an endless loop end their block.
//
// Order        Blocks in an order that the seed chooses (in ascending order if the kernel spins),
//              warps of a block likewise, each until it waits. Lanes of a warp run together where
//              they are at the same instruction; of several places the first in the code goes on.
// Errors       Those of CheckLaunch.
absl::StatusOr<LaunchResult> Launch(const LoadedModule& loaded, const Kernel& kernel,
                                    absl::Span<const uint8_t> parameters,
                                    const LaunchOptions& options);

}  // namespace brigade::emulator

#endif  // BRIGADE_EMULATOR_PTX_LAUNCH_H_
