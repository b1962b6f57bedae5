#ifndef BRIGADE_EMULATOR_PTX_WARP_OPS_H_
#define BRIGADE_EMULATOR_PTX_WARP_OPS_H_

// Handlers of what lanes of a warp do together: shuffles, votes and barriers.

#include <algorithm>
#include <bit>
#include <cstdint>

#include "absl/strings/str_cat.h"
#include "brigade/emulator/ptx/block.h"
#include "brigade/emulator/ptx/lane_ops.h"
#include "brigade/emulator/ptx/module.h"
#include "brigade/emulator/ptx/warp.h"

namespace brigade::emulator {

enum class ShuffleMode : uint8_t { kUp, kDown, kBfly, kIdx };

// d|p, a, b, c, mask: d is a of another lane, by b, inside of segments that c describes.
template <ShuffleMode kMode>
void Shuffle(Warp& warp, const Instruction& it) {
  Lanes& to = warp.lanes(it.operands[0]);
  const Lanes& b = warp.lanes(it.operands[3]);
  const Lanes& c = warp.lanes(it.operands[4]);
  Lanes from;
  std::copy_n(warp.lanes(it.operands[2]), kLanes, from);
  uint32_t in_range = 0;
  warp.ForEachActive([&](int lane) {
    const int by = static_cast<int>(b[lane] & 31);
    const int clamp = static_cast<int>(c[lane] & 31);
    const int segment = static_cast<int>(c[lane] >> 8 & 31);
    const int last = (lane & segment) | (clamp & ~segment);
    int other = lane;
    bool is_in_range = true;
    switch (kMode) {
      case ShuffleMode::kUp:
        other = lane - by;
        is_in_range = other >= last;
        break;
      case ShuffleMode::kDown:
        other = lane + by;
        is_in_range = other <= last;
        break;
      case ShuffleMode::kBfly:
        other = lane ^ by;
        is_in_range = other <= last;
        break;
      case ShuffleMode::kIdx:
        other = (lane & segment) | (by & ~segment);
        is_in_range = other <= last;
        break;
    }
    if (!is_in_range) other = lane;
    if ((warp.active() >> other & 1) == 0) {
      warp.block().Report(
          FindingKind::kLaneMask, warp, lane, it,
          absl::StrCat("takes the value of lane ", other, ", which is not in the mask"));
    }
    to[lane] = from[other] & 0xffffffff;
    in_range |= uint32_t{is_in_range} << lane;
  });
  warp.WritePredicate(it.operands[1], in_range);
}

// d, a, mask: all lanes get what the operation makes of their numbers.
template <typename Op, typename T>
void Reduce(Warp& warp, const Instruction& it) {
  const Lanes& a = warp.lanes(it.operands[1]);
  T result = FromBits<T>(a[std::countr_zero(warp.active())]);
  for (uint32_t left = warp.active() & (warp.active() - 1); left != 0; left &= left - 1) {
    result = Op::Run(result, FromBits<T>(a[std::countr_zero(left)]));
  }
  ForLanes(warp, warp.lanes(it.operands[0]), [&](int) { return ToBits(result); });
}

// d, a, mask: the lanes whose value is that of this one.
inline void MatchAny(Warp& warp, const Instruction& it) {
  Lanes a;
  std::copy_n(warp.lanes(it.operands[1]), kLanes, a);
  ForLanes(warp, warp.lanes(it.operands[0]), [&](int lane) {
    uint64_t alike = 0;
    warp.ForEachActive([&](int other) { alike |= uint64_t{a[other] == a[lane]} << other; });
    return alike;
  });
}

// d|p, a, mask: whether all values are one; then d is the lanes, otherwise 0.
inline void MatchAll(Warp& warp, const Instruction& it) {
  const Lanes& a = warp.lanes(it.operands[2]);
  bool is_one = true;
  warp.ForEachActive([&](int lane) { is_one &= a[lane] == a[std::countr_zero(warp.active())]; });
  ForLanes(warp, warp.lanes(it.operands[0]),
           [&](int) { return is_one ? uint64_t{warp.active()} : 0; });
  warp.WritePredicate(it.operands[1], is_one ? ~uint32_t{0} : 0);
}

inline void ActiveMask(Warp& warp, const Instruction& it) {
  ForLanes(warp, warp.lanes(it.operands[0]), [&](int) { return uint64_t{warp.active()}; });
}

inline void Fence(Warp& warp, const Instruction&) { warp.Fence(); }

// What only time or other observers would tell: prefetches, sleep, fences of a block.
inline void DoNothing(Warp&, const Instruction&) {}

inline void Trap(Warp& warp, const Instruction& it) {
  warp.block().Report(FindingKind::kTrap, warp, std::countr_zero(warp.active()), it,
                      "the launch is ended");
  warp.block().StopLaunch();
}

enum class VoteMode : uint8_t { kAll, kAny, kUni };

template <VoteMode kMode>
void Vote(Warp& warp, const Instruction& it) {
  const uint32_t votes = warp.ReadPredicate(it, 1) & warp.active();
  bool is_so = votes == warp.active();
  if (kMode == VoteMode::kAny) is_so = votes != 0;
  if (kMode == VoteMode::kUni) is_so = is_so || votes == 0;
  warp.WritePredicate(it.operands[0], is_so ? ~uint32_t{0} : 0);
}

inline void Ballot(Warp& warp, const Instruction& it) {
  Lanes& to = warp.lanes(it.operands[0]);
  const uint32_t votes = warp.ReadPredicate(it, 1) & warp.active();
  ForLanes(warp, to, [&](int) { return uint64_t{votes}; });
}

// p, barrier, q: what all threads of the block vote.
template <VoteMode kMode>
void BlockVote(Warp& warp, const Instruction& it) {
  const bool is_so = kMode == VoteMode::kAny ? warp.block().votes() > 0
                                             : warp.block().votes() == warp.block().voters();
  warp.WritePredicate(it.operands[0], is_so ? ~uint32_t{0} : 0);
}

inline void PassWarpBarrier(Warp& warp, const Instruction&) { warp.Meet(); }

}  // namespace brigade::emulator

#endif  // BRIGADE_EMULATOR_PTX_WARP_OPS_H_
