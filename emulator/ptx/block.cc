#include "brigade/emulator/ptx/block.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace brigade::emulator {

void Block::Bytes::Reset(int64_t bytes, ByteState state) {
  const auto size = static_cast<size_t>(bytes);
  data.assign(size, 0xcb);
  states.assign(size, state);
}

Block::Block(LaunchState& launch, LaunchCounts& counts)
    : launch_(launch),
      counts_(counts),
      local_(launch.kernel.local_bytes > 0 ? static_cast<size_t>(launch.options.block.count())
                                           : 0) {
  const int64_t warps = (launch.options.block.count() + kLanes - 1) / kLanes;
  for (int warp = 0; warp < warps; ++warp) {
    warps_.push_back(std::make_unique<Warp>(*this, warp, launch.kernel));
  }
}

void Block::Start(int64_t number) {
  const Dim3& grid = launch_.options.grid;
  id_ = {static_cast<int>(number % grid.x), static_cast<int>(number / grid.x % grid.y),
         static_cast<int>(number / grid.x / grid.y)};
  serial_ = launch_.first_serial + static_cast<uint64_t>(number);
  random_.seed(static_cast<uint32_t>(
      (launch_.options.seed + static_cast<uint64_t>(number)) * 0x9e3779b97f4a7c15 >> 32));
  epoch_ = 0;
  stopped_ = false;
  StartShared();
  shared_origins_.clear();
  for (Bytes& local : local_) local.Reset(kernel().local_bytes, ByteState::kUninitialized);
  const int64_t threads = launch_.options.block.count();
  for (auto& warp : warps_) {
    const int64_t lanes = std::min<int64_t>(kLanes, threads - warp->number() * kLanes);
    warp->Start(static_cast<uint32_t>((uint64_t{1} << lanes) - 1));
    for (const Kernel::Constant& constant : kernel().constants) {
      uint64_t value = constant.value;
      if (constant.variable >= 0) {
        value += launch_.loaded.variables()[static_cast<size_t>(constant.variable)];
      }
      std::fill_n(warp->lanes(constant.operand), kLanes, value);
    }
    for (const Kernel::SpecialRegister& each : kernel().specials) {
      for (int lane = 0; lane < kLanes; ++lane) {
        warp->lanes(each.operand)[lane] =
            static_cast<uint32_t>(special(each.special, warp->number(), lane));
      }
    }
  }
}

void Block::StartShared() {
  SharedVariable dynamic = kernel().dynamic_shared;
  dynamic.bytes = launch_.options.dynamic_shared_bytes;
  shared_.Reset(dynamic.offset + dynamic.bytes, ByteState::kNone);
  shared_.past.assign(shared_.data.size(), {});
  const auto allocate = [&](const SharedVariable& variable) {
    std::fill_n(shared_.states.begin() + variable.offset, variable.bytes,
                ByteState::kUninitialized);
  };
  for (const SharedVariable& variable : kernel().shared) allocate(variable);
  allocate(dynamic);
}

std::string Block::DescribeShared(uint64_t address) const {
  SharedVariable near = kernel().dynamic_shared;
  near.bytes = launch_.options.dynamic_shared_bytes;
  const auto offset = static_cast<int64_t>(address);
  // The last one that begins at or before the address, or the first.
  if (offset < near.offset || near.bytes == 0) {
    for (const SharedVariable& variable : kernel().shared) {
      if (variable.offset <= offset || near.bytes == 0) near = variable;
    }
  }
  return absl::StrCat("byte ", offset - near.offset, " of ", near.bytes, " of shared \"", near.name,
                      "\"");
}

void Block::Run(int64_t number) {
  Start(number);
  std::vector<Warp*> order;
  for (auto& warp : warps_) order.push_back(warp.get());
  while (!stopped_ && !launch_.is_stopped.load(std::memory_order_relaxed)) {
    std::shuffle(order.begin(), order.end(), random_);
    bool has_run = false;
    for (Warp* warp : order) has_run |= warp->Run();
    if (stopped_ || has_run) continue;
    const bool all_left =
        std::all_of(order.begin(), order.end(), [](Warp* warp) { return warp->has_left(); });
    if (all_left || !PassBarrier()) return;
  }
}

// All threads of the block wait at one instruction, or somebody never comes.
bool Block::PassBarrier() {
  const Warp* first = nullptr;
  uint32_t place = 0;
  const int64_t threads = launch_.options.block.count();
  int64_t waiting = 0;
  for (const auto& warp : warps_) {
    for (const LaneGroup& group : warp->groups()) {
      const int lane = std::countr_zero(group.mask);
      const Instruction& here = kernel().code[group.pc];
      if (group.state == LaneGroup::State::kAtWarpBarrier) {
        Report(
            FindingKind::kBarrier, *warp, lane, here,
            absl::StrCat("waits for lanes that do not come: the mask is ",
                         absl::Hex(warp->LaneMask(group)), ", here are ", absl::Hex(group.mask)));
        return false;
      }
      if (first == nullptr) {
        first = warp.get();
        place = group.pc;
      } else if (group.pc != place) {
        Report(FindingKind::kBarrier, *warp, lane, here,
               absl::StrCat("other threads wait at line ", kernel().code[place].line));
        return false;
      }
      waiting += std::popcount(group.mask);
    }
  }
  if (waiting < threads) {
    Report(FindingKind::kBarrier, *first, std::countr_zero(first->waiting()), kernel().code[place],
           absl::StrCat(threads - waiting, " threads of ", threads, " have left the kernel"));
    return false;
  }
  const Instruction& barrier = kernel().code[place];
  votes_ = 0;
  if (barrier.is_block_vote) {
    for (const auto& warp : warps_) {
      votes_ += std::popcount(warp->ReadPredicate(barrier, 1) & warp->waiting());
    }
  }
  for (auto& warp : warps_) warp->PassBlockBarrier(barrier);
  ++epoch_;
  return true;
}

Block::Bytes& Block::local(int thread) { return local_[static_cast<size_t>(thread)]; }

Dim3 Block::ThreadOf(int thread) const {
  const Dim3& block = launch_.options.block;
  return {thread % block.x, thread / block.x % block.y, thread / block.x / block.y};
}

int64_t Block::special(Special special, int warp, int lane) const {
  const Dim3& grid = launch_.options.grid;
  const Dim3& block = launch_.options.block;
  const Dim3 thread = ThreadOf(warp * kLanes + lane);
  const int64_t below = (int64_t{1} << lane) - 1;
  const int64_t self = int64_t{1} << lane;
  switch (special) {
    case Special::kTidX:
      return thread.x;
    case Special::kTidY:
      return thread.y;
    case Special::kTidZ:
      return thread.z;
    case Special::kNtidX:
      return block.x;
    case Special::kNtidY:
      return block.y;
    case Special::kNtidZ:
      return block.z;
    case Special::kCtaidX:
      return id_.x;
    case Special::kCtaidY:
      return id_.y;
    case Special::kCtaidZ:
      return id_.z;
    case Special::kNctaidX:
      return grid.x;
    case Special::kNctaidY:
      return grid.y;
    case Special::kNctaidZ:
      return grid.z;
    case Special::kLaneid:
      return lane;
    case Special::kWarpid:
      return warp;
    case Special::kNwarpid:
      return static_cast<int64_t>(warps_.size());
    case Special::kLanemaskLt:
      return below;
    case Special::kLanemaskLe:
      return below | self;
    case Special::kLanemaskEq:
      return self;
    case Special::kLanemaskGe:
      return ~below;
    case Special::kLanemaskGt:
      return ~(below | self);
  }
  return 0;
}

std::string Block::ThreadName(uint64_t id) const {
  const Dim3 thread = ThreadOf(AccessId::Thread(id));
  return absl::StrCat("thread (", thread.x, ", ", thread.y, ", ", thread.z, ")");
}

std::string Block::DescribeCopy(uint64_t offset) const {
  for (const auto& warp : warps_) {
    for (int lane = 0; lane < kLanes; ++lane) {
      const AsyncCopies::Copy* const copy = warp->copies().Find(lane, offset);
      if (copy == nullptr) continue;
      return absl::StrCat("the copy of line ", copy->instruction->line, " by ",
                          ThreadName(access_id(*warp, lane)));
    }
  }
  return "a copy";
}

void Block::Report(FindingKind kind, const Warp& warp, int lane, const Instruction& instruction,
                   std::string what) {
  if (is_silent_) return;
  const auto place = static_cast<uint32_t>(&instruction - kernel().code.data());
  const device::MutexLock lock(launch_.mutex);
  const auto [found, is_new] = launch_.findings.try_emplace({place, kind});
  Finding& finding = found->second;
  if (!is_new) {
    ++finding.times;
    return;
  }
  const Module& module = launch_.loaded.module();
  finding.kind = kind;
  finding.kernel = kernel().name;
  finding.block = id_;
  finding.thread = ThreadOf(warp.number() * kLanes + lane);
  finding.line = static_cast<int>(instruction.line);
  if (instruction.line > 0 && instruction.line <= module.lines.size()) {
    finding.instruction = module.lines[instruction.line - 1];
  }
  const auto name = [&](const SourcePlace& at) {
    const auto file = module.files.find(at.file);
    return at.line == 0 || file == module.files.end() ? ""
                                                      : absl::StrCat(file->second, ":", at.line);
  };
  finding.source = name(instruction.source);
  finding.caller = name(instruction.caller);
  finding.what = std::move(what);
}

}  // namespace brigade::emulator
