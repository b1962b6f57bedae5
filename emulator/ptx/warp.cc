#include "brigade/emulator/ptx/warp.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "absl/strings/str_cat.h"
#include "brigade/emulator/ptx/block.h"

namespace brigade::emulator {

using State = LaneGroup::State;

// Instructions of a warp, after which others run: one of them may be what it waits for.
constexpr int64_t kTurn = 20'000;

Warp::Warp(Block& block, int number, const Kernel& kernel)
    : block_(block),
      number_(number),
      kernel_(kernel),
      values_(static_cast<size_t>(kernel.registers)),
      predicates_(static_cast<size_t>(kernel.predicates)) {}

void Warp::Start(uint32_t mask) {
  std::fill(predicates_.begin(), predicates_.end(), 0);
  predicates_[0] = ~uint32_t{0};
  // What nobody has written is the same in every block.
  std::memset(values_.data(), 0xcb, values_.size() * sizeof(Register));
  groups_ = {{.mask = mask}};
  started_ = mask;
  left_ = 0;
  std::memset(passed_, 0, sizeof(passed_));
  accessed_ = 0;
  flags_.fill({});
  unwritten_.reset();
  copies_.Clear();
  steps_ = 0;
  turn_ = 0;
}

void Warp::Meet() {
  uint32_t joined[kLanes] = {};
  ForEachActive([&](int lane) {
    for (int other = 0; other < kLanes; ++other) {
      joined[other] = std::max(joined[other], passed_[lane][other]);
    }
  });
  // Fences have counted on in some of them.
  uint32_t last = 0;
  ForEachActive([&](int lane) { last = std::max(last, joined[lane]); });
  ForEachActive([&](int lane) { joined[lane] = last + 1; });
  ForEachActive([&](int lane) { std::copy_n(joined, kLanes, passed_[lane]); });
}

// Counts like a barrier that the lane passes alone: what it does next is not behind the fence.
void Warp::Fence() {
  ForEachActive([&](int lane) {
    Flags& flags = flags_[static_cast<size_t>(lane)];
    const bool has_accessed = (accessed_ >> lane & 1) != 0;
    if (!has_accessed && flags.seen.empty() && flags.last_fence != Order::kNone) return;
    const uint64_t id = block_.access_id(*this, lane);
    ++passed_[lane][lane];
    Order::Point point = {block_.serial(), block_.epoch(), number_ * kLanes + lane};
    for (size_t other = 0; other < kLanes; ++other) {
      point.passed[other] = static_cast<uint16_t>(passed_[lane][other] & kEpochMask);
    }
    flags.last_fence = block_.launch().order.AddPoint(point, id, flags.seen);
    flags.seen.clear();
  });
  accessed_ &= ~active_;
}

void Warp::Publish(int lane, uint64_t address, bool hands_on) {
  block_.launch().order.Publish(address, flags_[static_cast<size_t>(lane)].last_fence, hands_on);
}

void Warp::Observe(int lane, uint64_t address) {
  Flags& flags = flags_[static_cast<size_t>(lane)];
  const int32_t published = block_.launch().order.Published(address);
  if (published == Order::kNone || published == flags.last_seen) return;
  flags.last_seen = published;
  flags.seen.push_back(published);
}

uint32_t Warp::waiting() const {
  uint32_t mask = 0;
  for (const LaneGroup& group : groups_) {
    if (group.state == State::kAtBlockBarrier) mask |= group.mask;
  }
  return mask;
}

bool Warp::Run() {
  const int64_t end = steps_ + kTurn;
  bool has_run = false;
  while (!block_.stopped() && steps_ < end) {
    const auto runs = [](const LaneGroup& group) { return group.state == State::kRuns; };
    // They are sorted: the first one goes on; every other turn after a long one it is another's.
    const auto running = static_cast<size_t>(std::count_if(groups_.begin(), groups_.end(), runs));
    if (running > 0) {
      size_t g = 0;
      for (size_t skip = turn_ % 2 == 0 ? 0 : turn_ / 2 % running; skip > 0 || !runs(groups_[g]);
           ++g) {
        if (runs(groups_[g])) --skip;
      }
      RunGroup(g);
    } else if (!PassWarpBarriers()) {
      return has_run;
    }
    has_run = true;
  }
  ++turn_;
  return has_run;
}

void Warp::RunGroup(size_t g) {
  const Instruction* const code = kernel_.code.data();
  LaunchCounts::OfInstruction* const counts = block_.counts().instructions.data();
  const LaneGroup group = groups_[g];
  uint32_t pc = group.pc;
  // Where another group is, this one joins it.
  const uint32_t end =
      g + 1 < groups_.size() ? groups_[g + 1].pc : std::numeric_limits<uint32_t>::max();
  const auto leave_to = [&](LaneGroup to, uint32_t others) {
    groups_[g] = to;
    // Those for which the guard is false go on by themselves.
    if (others != 0) groups_.push_back({pc + 1, others, State::kRuns});
  };
  for (bool goes_on = true; goes_on;) {
    const Instruction& instruction = code[pc];
    active_ = predicates_[instruction.guard];
    active_ = group.mask & (instruction.guard_is_negated ? ~active_ : active_);
    if (unwritten_ != nullptr) unwritten_->UseGuard(*this, instruction, group.mask);
    const uint32_t others = group.mask & ~active_;
    counts[pc].executed += std::popcount(active_);
    ++steps_;
    goes_on = false;
    // Nothing is to be waited for where the whole warp is.
    const bool is_complete = instruction.is_aligned && active_ == ~uint32_t{0};
    if (active_ == 0 || instruction.control == Control::kNone || is_complete) {
      if (active_ != 0) Execute(instruction);
      ++pc;
      goes_on = pc < end && !block_.stopped();
      if (!goes_on) groups_[g].pc = pc;
    } else if (instruction.control == Control::kBranch) {
      leave_to({instruction.target, active_, State::kRuns}, others);
    } else if (instruction.control == Control::kExit) {
      left_ |= active_;
      leave_to({pc + 1, others, State::kRuns}, 0);
    } else {
      leave_to({pc, active_,
                instruction.control == Control::kBlockBarrier ? State::kAtBlockBarrier
                                                              : State::kAtWarpBarrier},
               others);
    }
  }
  if (steps_ > block_.launch().options.most_instructions) {
    block_.Report(FindingKind::kEndless, *this, std::countr_zero(group.mask), code[group.pc],
                  "the launch is ended");
    block_.StopLaunch();
  }
  Merge();
}

void Warp::Merge() {
  const auto key = [](const LaneGroup& group) { return std::pair(group.pc, group.state); };
  std::erase_if(groups_, [](const LaneGroup& group) { return group.mask == 0; });
  std::sort(groups_.begin(), groups_.end(),
            [&](const LaneGroup& a, const LaneGroup& b) { return key(a) < key(b); });
  size_t kept = 0;
  for (size_t g = 1; g < groups_.size(); ++g) {
    if (key(groups_[g]) == key(groups_[kept])) {
      groups_[kept].mask |= groups_[g].mask;
    } else {
      groups_[++kept] = groups_[g];
    }
  }
  if (!groups_.empty()) groups_.resize(kept + 1);
}

void Warp::PassBlockBarrier(const Instruction& barrier) {
  active_ = waiting();
  if (barrier.run != nullptr && active_ != 0) Execute(barrier);
  for (LaneGroup& group : groups_) {
    if (group.state == State::kAtBlockBarrier) group = {group.pc + 1, group.mask, State::kRuns};
  }
  Merge();
}

bool Warp::PassWarpBarriers() {
  for (const LaneGroup& group : groups_) {
    if (group.state == State::kAtWarpBarrier && PassWarpBarrier(group)) return true;
    if (block_.stopped()) return false;
  }
  return false;
}

// A group may hold lanes of several masks; the first lane's is looked at, and those of the others
// when it is their turn.
bool Warp::PassWarpBarrier(const LaneGroup& group) {
  for (uint32_t left = group.mask; left != 0;) {
    const Instruction& instruction = kernel_.code[group.pc];
    const uint32_t members = LaneMask(instruction, std::countr_zero(left));
    // Lanes that wait with this mask: here, or at another barrier of the same kind.
    uint32_t alike = 0;
    for (const LaneGroup& other : groups_) {
      const Instruction& at = kernel_.code[other.pc];
      const bool is_other_place = other.pc != group.pc;
      if (other.state != State::kAtWarpBarrier) continue;
      if (is_other_place && !(instruction.is_memory_barrier && at.is_memory_barrier)) continue;
      for (uint32_t rest = other.mask; rest != 0; rest &= rest - 1) {
        const int lane = std::countr_zero(rest);
        if (LaneMask(at, lane) == members) alike |= uint32_t{1} << lane;
      }
    }
    left &= ~alike;
    if ((alike & ~members) != 0) {
      block_.Report(FindingKind::kLaneMask, *this, std::countr_zero(alike & ~members), instruction,
                    "the mask is without the lane itself");
      block_.Stop();
      return false;
    }
    // Lanes that have left, and those that the block never had, are not waited for.
    if ((members & started_ & ~left_) != alike) continue;
    if (instruction.is_aligned && alike != members) {
      block_.Report(FindingKind::kBarrier, *this, std::countr_zero(alike), instruction,
                    absl::StrCat("needs all lanes of the warp; here are ", absl::Hex(alike)));
      block_.Stop();
      return false;
    }
    active_ = alike;
    if (instruction.run != nullptr) Execute(instruction);
    std::vector<LaneGroup> passed;
    for (LaneGroup& other : groups_) {
      if (other.state != State::kAtWarpBarrier || (other.mask & alike) == 0) continue;
      passed.push_back({other.pc + 1, other.mask & alike, State::kRuns});
      other.mask &= ~alike;
    }
    groups_.insert(groups_.end(), passed.begin(), passed.end());
    Merge();
    return true;
  }
  return false;
}

}  // namespace brigade::emulator
