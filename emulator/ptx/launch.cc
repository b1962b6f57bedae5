#include "brigade/emulator/ptx/launch.h"

#include <algorithm>
#include <atomic>
#include <numeric>
#include <random>
#include <thread>

#include "absl/strings/str_cat.h"
#include "brigade/device/status_macros.h"
#include "brigade/emulator/ptx/block.h"

namespace brigade::emulator {
namespace {

// Of CUDA: threads of a block along each axis, blocks of a grid along each axis, and bytes of
// shared memory that a block of sm_90 may have.
constexpr int kMostBlock[] = {1024, 1024, 64};
constexpr int kMostGrid[] = {2147483647, 65535, 65535};
constexpr int kMostThreads = 1024;
constexpr int64_t kMostShared = 227 << 10;
// Of a thread.
constexpr int64_t kMostLocal = 512 << 10;

void Add(const LaunchCounts& from, LaunchCounts& to) {
  for (size_t i = 0; i < from.instructions.size(); ++i) {
    to.instructions[i].executed += from.instructions[i].executed;
    to.instructions[i].global += from.instructions[i].global;
    to.instructions[i].shared += from.instructions[i].shared;
  }
  to.read_again += from.read_again;
  to.written_again += from.written_again;
}

LaunchCounts CountsOf(const Kernel& kernel) {
  LaunchCounts counts;
  for (const Instruction& instruction : kernel.code) {
    LaunchCounts::OfInstruction& each = counts.instructions.emplace_back();
    each.mnemonic = instruction.mnemonic;
    each.line = static_cast<int>(instruction.line);
  }
  return counts;
}

AccessCounts SumOf(const LaunchCounts& counts, const Kernel& kernel, bool loads, int bytes) {
  AccessCounts sum;
  for (size_t i = 0; i < counts.instructions.size(); ++i) {
    const Instruction& instruction = kernel.code[i];
    const bool counts_here = loads ? instruction.is_load : instruction.is_store;
    if (!counts_here) continue;
    if (bytes == 0 || instruction.elements * instruction.element_bytes == bytes) {
      sum += counts.instructions[i].global;
    }
  }
  return sum;
}

}  // namespace

absl::string_view Name(FindingKind kind) {
  switch (kind) {
    case FindingKind::kOutOfBounds:
      return "out of bounds";
    case FindingKind::kMisaligned:
      return "misaligned";
    case FindingKind::kUninitialized:
      return "uninitialized";
    case FindingKind::kRaceInBlock:
      return "race in a block";
    case FindingKind::kRaceBetweenBlocks:
      return "race between blocks";
    case FindingKind::kBarrier:
      return "barrier";
    case FindingKind::kLaneMask:
      return "lane mask";
    case FindingKind::kDivisionByZero:
      return "division by zero";
    case FindingKind::kTrap:
      return "trap";
    case FindingKind::kEndless:
      return "endless";
  }
  return "unknown";
}

std::string Finding::ToString() const {
  std::string text = absl::StrCat(Name(kind), ": ", what, "; ", kernel, ", block (", block.x, ", ",
                                  block.y, ", ", block.z, "), thread (", thread.x, ", ", thread.y,
                                  ", ", thread.z, "), PTX line ", line, ": ", instruction);
  if (!source.empty()) absl::StrAppend(&text, ", ", source);
  if (!caller.empty()) absl::StrAppend(&text, ", called at ", caller);
  if (times > 1) absl::StrAppend(&text, ", ", times, " times");
  return text;
}

AccessCounts& AccessCounts::operator+=(const AccessCounts& other) {
  requests += other.requests;
  accesses += other.accesses;
  bytes += other.bytes;
  sectors += other.sectors;
  least_sectors += other.least_sectors;
  lines += other.lines;
  bank_conflicts += other.bank_conflicts;
  return *this;
}

int64_t LaunchCounts::executed() const {
  int64_t sum = 0;
  for (const OfInstruction& each : instructions) sum += each.executed;
  return sum;
}

AccessCounts LaunchCounts::GlobalLoads(const Kernel& kernel, int bytes) const {
  return SumOf(*this, kernel, /*loads=*/true, bytes);
}

AccessCounts LaunchCounts::GlobalStores(const Kernel& kernel, int bytes) const {
  return SumOf(*this, kernel, /*loads=*/false, bytes);
}

absl::StatusOr<LoadedModule> LoadedModule::Create(std::shared_ptr<const Module> module,
                                                  Memory& memory, int device) {
  LoadedModule loaded;
  for (const Variable& variable : module->variables) {
    BRIGADE_ASSIGN_OR_RETURN(const uint64_t address,
                             memory.Allocate(variable.bytes, variable.name, device));
    std::vector<uint8_t> initial = variable.initial;
    initial.resize(static_cast<size_t>(variable.bytes), 0);
    BRIGADE_RETURN_IF_ERROR(memory.Write(address, initial.data(), variable.bytes));
    loaded.variables_.push_back(address);
  }
  loaded.module_ = std::move(module);
  loaded.memory_ = &memory;
  loaded.device_ = device;
  return loaded;
}

absl::Status CheckLaunch(const Kernel& kernel, absl::Span<const uint8_t> parameters,
                         const LaunchOptions& options) {
  BRIGADE_RETURN_IF_ERROR(kernel.unknown);
  const auto invalid = [&](const auto&... what) {
    return absl::InvalidArgumentError(absl::StrCat("launch of ", kernel.name, ": ", what...));
  };
  const int block[] = {options.block.x, options.block.y, options.block.z};
  const int grid[] = {options.grid.x, options.grid.y, options.grid.z};
  for (int axis = 0; axis < 3; ++axis) {
    if (block[axis] < 1 || block[axis] > kMostBlock[axis]) {
      return invalid("a block of ", block[axis], " threads along axis ", axis);
    }
    if (grid[axis] < 1 || grid[axis] > kMostGrid[axis]) {
      return invalid("a grid of ", grid[axis], " blocks along axis ", axis);
    }
  }
  const int most = kernel.most_threads > 0 ? kernel.most_threads : kMostThreads;
  if (options.block.count() > most) {
    return invalid("a block of ", options.block.count(), " threads, and at most ", most);
  }
  if (static_cast<int64_t>(parameters.size()) != kernel.parameter_bytes) {
    return invalid(parameters.size(), " bytes of parameters instead of ", kernel.parameter_bytes);
  }
  int64_t shared_bytes = 0;
  for (const SharedVariable& variable : kernel.shared) shared_bytes += variable.bytes;
  if (options.dynamic_shared_bytes < 0 ||
      shared_bytes + options.dynamic_shared_bytes > kMostShared) {
    return invalid(shared_bytes, " and ", options.dynamic_shared_bytes, " bytes of shared memory");
  }
  if (kernel.local_bytes > kMostLocal) {
    return invalid(kernel.local_bytes, " bytes of local memory");
  }
  if (options.threads < 1) return invalid(options.threads, " threads of the host");
  return absl::OkStatus();
}

absl::StatusOr<LaunchResult> Launch(const LoadedModule& loaded, const Kernel& kernel,
                                    absl::Span<const uint8_t> parameters,
                                    const LaunchOptions& options) {
  BRIGADE_RETURN_IF_ERROR(CheckLaunch(kernel, parameters, options));
  const int64_t blocks = options.grid.count();
  LaunchState state(loaded, kernel, parameters, options);
  BRIGADE_ASSIGN_OR_RETURN(
      state.first_serial,
      loaded.memory().TakeSerials(static_cast<uint64_t>(blocks), AccessId::kMostSerials));
  {
    const device::MutexLock lock(state.mutex);
    state.counts = CountsOf(kernel);
  }
  // A bijection of the blocks, without a list of them: steps of a length that shares no factor.
  std::mt19937_64 random(options.seed);
  const auto count = static_cast<uint64_t>(blocks);
  uint64_t step = 1, first = 0;
  if (options.seed != 0 && !kernel.spins && blocks > 2) {
    first = random() % count;
    do {
      step = 1 + random() % (count - 1);
    } while (std::gcd(step, count) != 1);
  }
  std::atomic<uint64_t> next{0};
  const auto run = [&] {
    LaunchCounts counts = CountsOf(kernel);
    Block block(state, counts);
    for (uint64_t i = next.fetch_add(1); i < count && !state.is_stopped; i = next.fetch_add(1)) {
      block.Run(static_cast<int64_t>(
          static_cast<uint64_t>((static_cast<unsigned __int128>(i) * step + first) % count)));
    }
    const device::MutexLock lock(state.mutex);
    Add(counts, state.counts);
  };
  std::vector<std::thread> others;
  for (int64_t i = 1; i < std::min<int64_t>(options.threads, blocks); ++i) others.emplace_back(run);
  run();
  for (std::thread& other : others) other.join();
  loaded.memory().ReturnSerials();
  LaunchResult result;
  const device::MutexLock lock(state.mutex);
  for (auto& [place, finding] : state.findings) result.findings.push_back(std::move(finding));
  result.counts = std::move(state.counts);
  return result;
}

}  // namespace brigade::emulator
