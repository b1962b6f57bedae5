#ifndef BRIGADE_EMULATOR_PTX_WARP_H_
#define BRIGADE_EMULATOR_PTX_WARP_H_

#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#include "brigade/emulator/ptx/async_copies.h"
#include "brigade/emulator/ptx/launch.h"
#include "brigade/emulator/ptx/module.h"
#include "brigade/emulator/ptx/order.h"
#include "brigade/emulator/ptx/unwritten.h"

namespace brigade::emulator {

class Block;

// A register's value in each lane, in the low bits.
using Lanes = uint64_t[kLanes];

template <typename T>
T FromBits(uint64_t bits) {
  if constexpr (std::is_same_v<T, float>) {
    return std::bit_cast<float>(static_cast<uint32_t>(bits));
  } else if constexpr (std::is_same_v<T, double>) {
    return std::bit_cast<double>(bits);
  } else {
    return static_cast<T>(bits);
  }
}

template <typename T>
uint64_t ToBits(T value) {
  if constexpr (std::is_same_v<T, float>) {
    return std::bit_cast<uint32_t>(value);
  } else if constexpr (std::is_same_v<T, double>) {
    return std::bit_cast<uint64_t>(value);
  } else {
    return static_cast<std::make_unsigned_t<T>>(value);
  }
}

// Lanes of a warp that are at the same instruction.
struct LaneGroup {
  enum class State : uint8_t { kRuns, kAtBlockBarrier, kAtWarpBarrier };

  uint32_t pc = 0;
  uint32_t mask = 0;
  State state = State::kRuns;
};

// 32 threads of a block: their registers, and where each of them is.
class Warp {
 public:
  Warp(Block& block, int number, const Kernel& kernel);

  // All lanes of `mask` are at the first instruction.
  void Start(uint32_t mask);

  Block& block() const { return block_; }
  int number() const { return number_; }
  // The lanes for which the current instruction runs.
  uint32_t active() const { return active_; }

  Lanes& lanes(Operand operand) { return values_[operand].lanes; }
  uint32_t& predicate(Operand operand) { return predicates_[operand]; }
  // Operand `i` of the instruction as a predicate, negated if it says so.
  uint32_t ReadPredicate(const Instruction& instruction, int i) const {
    const uint32_t value = predicates_[instruction.operands[static_cast<size_t>(i)]];
    return (instruction.negated >> i & 1) != 0 ? ~value : value;
  }
  void WritePredicate(Operand operand, uint32_t value) {
    predicates_[operand] = (predicates_[operand] & ~active_) | (value & active_);
    predicates_[0] = ~uint32_t{0};
  }

  // Calls run(lane) for the active ones.
  template <typename Run>
  void ForEachActive(const Run& run) const {
    for (uint32_t left = active_; left != 0; left &= left - 1) run(std::countr_zero(left));
  }

  // Barriers of the warp that a lane has passed, modulo 4096.
  uint16_t epoch(int lane) const { return passed_[lane][lane] & kEpochMask; }
  // Whether a lane has met another one, or all, at a barrier of the warp since that one was at
  // `epoch`; directly or through others.
  bool IsBehind(int lane, int other, uint16_t epoch) const {
    return IsBehind(passed_[lane][other], epoch);
  }
  static bool IsBehind(uint32_t passed, uint16_t epoch) {
    const uint32_t since = (passed - epoch) & kEpochMask;
    return since > 0 && since <= kEpochMask / 2;
  }
  bool IsBehindAll(int lane, uint16_t epoch) const {
    for (int other = 0; other < kLanes; ++other) {
      if ((started_ >> other & 1) != 0 && !IsBehind(lane, other, epoch)) return false;
    }
    return true;
  }
  // The active lanes meet.
  void Meet();

  // What its registers hold of bytes that nobody has written; null: nothing.
  Unwritten* unwritten() const { return unwritten_.get(); }
  void MakeUnwritten() {
    if (unwritten_ == nullptr) unwritten_ = std::make_unique<Unwritten>(kernel_);
  }

  AsyncCopies& copies() { return copies_; }

  // The active lanes access memory that others may access.
  void NoteAccess() { accessed_ |= active_; }
  // The active lanes pass a fence.
  void Fence();
  // A lane writes a flag for other blocks, or has read one.
  void Publish(int lane, uint64_t address, bool hands_on);
  void Observe(int lane, uint64_t address);

  // Runs until all lanes wait or have left, or for so long that others are to run. Returns false
  // if nothing could be run.
  bool Run();
  // The lanes that wait at the block's barrier.
  uint32_t waiting() const;
  bool has_left() const { return groups_.empty(); }
  // All lanes at the block's barrier, which is this instruction, go on.
  void PassBlockBarrier(const Instruction& barrier);
  // In the order of their places.
  const std::vector<LaneGroup>& groups() const { return groups_; }
  // Of a group that waits for lanes of the warp: the mask that its first lane gives.
  uint32_t LaneMask(const LaneGroup& group) {
    return LaneMask(kernel_.code[group.pc], std::countr_zero(group.mask));
  }

 private:
  struct Register {
    alignas(64) Lanes lanes;
  };

  void Execute(const Instruction& instruction) {
    if (unwritten_ == nullptr || instruction.accesses_memory()) {
      instruction.run(*this, instruction);
    } else {
      unwritten_->Run(*this, instruction);
    }
  }
  uint32_t LaneMask(const Instruction& instruction, int lane) {
    if (instruction.is_aligned) return ~uint32_t{0};
    return static_cast<uint32_t>(lanes(instruction.operands[instruction.lane_mask])[lane]);
  }
  // Runs group `g` until it branches, comes to the place of another one, waits, or leaves.
  void RunGroup(size_t g);
  // Lets lanes go on whose mask of a shuffle, a vote or a barrier is complete.
  bool PassWarpBarriers();
  // The same for the lanes that wait with the mask of a group's first lane.
  bool PassWarpBarrier(const LaneGroup& group);
  // Sorts the groups by place, and joins those at one.
  void Merge();

  Block& block_;
  const int number_;
  const Kernel& kernel_;
  std::vector<Register> values_;
  std::vector<uint32_t> predicates_;
  std::vector<LaneGroup> groups_;
  uint32_t active_ = 0;
  static constexpr uint16_t kEpochMask = 0xfff;
  // The lanes that the block has, and those that have left.
  uint32_t started_ = 0;
  uint32_t left_ = 0;
  // What each lane knows of the barriers that each other one has passed.
  uint32_t passed_[kLanes][kLanes] = {};
  // Lanes that have accessed memory since their last fence.
  uint32_t accessed_ = 0;
  // Of a lane, as numbers of Order.
  struct Flags {
    int32_t last_fence = Order::kNone;
    // What was published at the flags that it has read since, and at the last one.
    std::vector<int32_t> seen;
    int32_t last_seen = Order::kNone;
  };
  std::array<Flags, kLanes> flags_;
  std::unique_ptr<Unwritten> unwritten_;
  AsyncCopies copies_;
  // Instructions, however many lanes ran them.
  int64_t steps_ = 0;
  // Which of the groups goes on, where one has run for long.
  size_t turn_ = 0;
};

}  // namespace brigade::emulator

#endif  // BRIGADE_EMULATOR_PTX_WARP_H_
