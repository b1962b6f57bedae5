#ifndef BRIGADE_EMULATOR_PTX_LANE_ACCESS_H_
#define BRIGADE_EMULATOR_PTX_LANE_ACCESS_H_

// How the lanes of a warp reach memory, and all that is checked and counted of it.

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "brigade/emulator/ptx/access_counts.h"
#include "brigade/emulator/ptx/block.h"
#include "brigade/emulator/ptx/memory.h"
#include "brigade/emulator/ptx/module.h"
#include "brigade/emulator/ptx/warp.h"

namespace brigade::emulator {

// Eight bytes of ByteState::kInitialized.
inline constexpr uint64_t kAllInitialized =
    uint64_t{0x0101010101010101} * static_cast<uint64_t>(ByteState::kInitialized);

// Bytes that a lane accesses, and what is known of them; `past` is null where no other thread can
// reach them, `states` where all were written before the launch.
struct Place {
  // In global memory; 0: elsewhere.
  uint64_t address = 0;
  uint8_t* data = nullptr;
  ByteState* states = nullptr;
  PastAccesses* past = nullptr;
};

// Calls f with a value of the unsigned type of that size: 1, 2, 4 or 8 bytes.
template <typename F>
void WithWord(size_t bytes, const F& f) {
  if (bytes == 1) return f(uint8_t{0});
  if (bytes == 2) return f(uint16_t{0});
  if (bytes == 4) return f(uint32_t{0});
  f(uint64_t{0});
}

// Bytes of a kernel's memory, and their states, are read and written by these alone, aligned: what
// races in the kernel is a value too old or too new here, and no undefined behaviour.
inline uint64_t LoadWord(const void* from, size_t bytes) {
  uint64_t value = 0;
  WithWord(bytes, [&]<typename T>(T) {
    T& word = *const_cast<T*>(static_cast<const T*>(from));
    value = std::atomic_ref<T>(word).load(std::memory_order_relaxed);
  });
  return value;
}
inline void StoreWord(void* to, uint64_t value, size_t bytes) {
  WithWord(bytes, [&]<typename T>(T) {
    std::atomic_ref<T>(*static_cast<T*>(to))
        .store(static_cast<T>(value), std::memory_order_relaxed);
  });
}

// Where the lanes of an instruction find what they access.
struct Target {
  Operand address = 0;
  int64_t offset = 0;
  Space space = Space::kGeneric;
  // Of each lane: 1, 2, 4, 8 or 16.
  int bytes = 0;
};

// What the lanes of one instruction access.
class Access {
 public:
  // An access that reads and writes counts as a write.
  Access(Warp& warp, const Instruction& instruction, Operand address, bool writes,
         bool reads_first = false)
      : Access(warp, instruction,
               Target{address, instruction.offset, instruction.space,
                      instruction.element_bytes * instruction.elements},
               writes, reads_first) {}
  Access(Warp& warp, const Instruction& instruction, const Target& target, bool writes,
         bool reads_first = false)
      : warp_(warp),
        block_(warp.block()),
        instruction_(instruction),
        addresses_(warp.lanes(target.address)),
        offset_(static_cast<uint64_t>(target.offset)),
        of_(target.space),
        bytes_(target.bytes),
        word_(std::min(bytes_, 8)),
        initialized_(kAllInitialized >> (64 - 8 * word_)),
        writes_(writes),
        reads_(!writes || reads_first) {
    if (warp.unwritten() != nullptr) UseOf(target.address);
  }

  // Calls transfer(lane, data) for each lane whose access is right.
  template <typename Transfer>
  void Run(const Transfer& transfer) {
    if (instruction_.releases) warp_.Fence();
    if (!instruction_.is_synchronizing) warp_.NoteAccess();
    warp_.ForEachActive([&](int lane) {
      Place place;
      if (!Find(lane, place)) return;
      CheckState(lane, place);
      if (!IsInFlight(lane, place)) CheckRaces(lane, place, lane, 0, bytes_);
      const bool is_flag = instruction_.is_flag && place.address != 0;
      const bool is_atomic = is_flag && instruction_.is_atomic;
      // What is published is there before the flag is, and nothing is missed that the flag tells.
      if (is_atomic) warp_.Observe(lane, place.address);
      if (is_flag && writes_) warp_.Publish(lane, place.address, is_atomic);
      transfer(lane, place.data);
      if (is_flag && !writes_) warp_.Observe(lane, place.address);
      if (writes_ && place.states != nullptr) {
        SetInitialized(place.states);
        if (warp_.unwritten() != nullptr && !instruction_.is_atomic) SetUnwritten(lane, place);
      }
    });
    if (instruction_.acquires) warp_.Fence();
    Count();
  }

  // The bytes that a lane has read and that nobody has written, one bit for each.
  uint32_t unwritten(int lane) const { return (young_lanes_ >> lane & 1) != 0 ? young_[lane] : 0; }

  // Bytes that an atomic takes from a register.
  void UseOf(Operand operand) const {
    warp_.unwritten()->Use(warp_, instruction_, operand, warp_.active());
  }

  // The place of a lane; false, with a report, if the access is wrong. Only its first `bytes` need
  // be there.
  bool Find(int lane, Place& place) { return Find(lane, place, bytes_); }
  bool Find(int lane, Place& place, int bytes) {
    uint64_t address = addresses_[lane] + offset_;
    const Space space = Resolve(address);
    if (address % static_cast<uint64_t>(bytes_) != 0) {
      Report(FindingKind::kMisaligned, lane,
             absl::StrCat(verb(), " of ", bytes_, " bytes at ", Describe(space, address)));
      return false;
    }
    bool is_there = false;
    if (space == Space::kGlobal) {
      is_there = FindGlobal(address, place);
    } else if (space == Space::kParam) {
      const std::vector<uint8_t>& parameters = block_.launch().parameters;
      is_there = !writes_ && FitsInto(address, parameters.size(), bytes);
      if (is_there) place.data = const_cast<uint8_t*>(parameters.data()) + address;
    } else {
      const int thread = warp_.number() * kLanes + lane;
      Block::Bytes& in = space == Space::kShared ? block_.shared() : block_.local(thread);
      is_there = FitsInto(address, in.data.size(), bytes);
      if (is_there) {
        place = {0, in.data.data() + address, in.states.data() + address,
                 space == Space::kShared ? in.past.data() + address : nullptr};
      }
    }
    if (!is_there || FirstOf(ByteState::kNone, place, bytes) < bytes) {
      Report(FindingKind::kOutOfBounds, lane,
             absl::StrCat(verb(), " of ", bytes_, " bytes at ", Describe(space, address)));
      return false;
    }
    if (count_ == 0) space_ = space;
    if (space == space_) {
      touched_[lane] = address;
      touching_ |= uint32_t{1} << lane;
      ++count_;
    }
    return true;
  }

  // Notes which of the bytes that are read nobody has written.
  void CheckState(int lane, const Place& place) { CheckState(lane, place, bytes_); }
  void CheckState(int lane, const Place& place, int bytes) {
    if (!reads_ || place.states == nullptr) return;
    const int young = FirstOf(ByteState::kUninitialized, place, bytes);
    if (young == bytes) return;
    std::string what = UnwrittenText(lane, bytes, young);
    if (instruction_.is_atomic) return Report(FindingKind::kUninitialized, lane, std::move(what));
    // What comes of them is a mistake only where it is used.
    warp_.MakeUnwritten();
    Unwritten::Origin origin = {&instruction_, lane, std::move(what)};
    if (place.address == 0) {
      const auto stored = block_.shared_origins().find(SharedOffset(place));
      if (stored != block_.shared_origins().end()) origin = stored->second;
    }
    warp_.unwritten()->SetOrigin(instruction_, std::move(origin));
    young_lanes_ |= uint32_t{1} << lane;
    young_[lane] = 0;
    for (int i = 0; i < bytes; ++i) {
      const bool is_young =
          LoadWord(place.states + i, 1) == static_cast<uint64_t>(ByteState::kUninitialized);
      young_[lane] |= uint32_t{is_young} << i;
    }
  }

  // What a report says of bytes that are read, whose byte `first` nobody has written.
  std::string UnwrittenText(int lane, int bytes, int first) const {
    return absl::StrCat("read of ", bytes, " bytes at ", Describe(lane), ": byte ", first,
                        " of them has never been written");
  }

  // Whether a copy of cp.async has begun to write to the place, with a report.
  bool IsInFlight(int lane, const Place& place) {
    if (place.past == nullptr || place.address != 0) return false;
    const int first = FirstOf(ByteState::kInFlight, place, bytes_);
    if (first == bytes_) return false;
    Report(FindingKind::kRaceInBlock, lane,
           absl::StrCat(verb(), " of ", bytes_, " bytes at ", Describe(lane), ": ",
                        block_.DescribeCopy(SharedOffset(place) + static_cast<uint64_t>(first)),
                        " has not been waited for"));
    return true;
  }

  // Checks `count` of the bytes that `lane` has the address of, from the first on, as accessed by
  // lane `by`.
  void CheckRaces(int lane, const Place& place, int by, int first, int count) {
    if (place.past == nullptr) return;
    const uint64_t now = block_.access_id(warp_, by);
    const uint64_t first_serial = block_.launch().first_serial;
    const auto is_ordered = [&](uint64_t past) {
      return AccessId::IsOrdered(past, now, first_serial, warp_);
    };
    uint64_t conflict = 0, ordered = 0;
    const auto check = [&](uint64_t past) {
      if (is_ordered(past) || past == conflict || instruction_.is_synchronizing) return;
      if (past == ordered ||
          block_.launch().order.IsOrdered(past, now, place.address, first_serial, warp_)) {
        ordered = past;
      } else {
        conflict = past;
      }
    };
    for (int i = first; i < first + count; ++i) {
      const std::atomic_ref<uint64_t> write(place.past[i].write), read(place.past[i].read);
      uint64_t last = 0;
      if (writes_) {
        // Of two blocks that run at the same time one sees the other.
        last = write.exchange(now, std::memory_order_relaxed);
        check(last);
        check(read.load(std::memory_order_relaxed));
      } else {
        last = read.load(std::memory_order_relaxed);
        uint64_t next = now;
        do {
          next = is_ordered(last) ? now : AccessId::With(last, now);
        } while (next != last &&
                 !read.compare_exchange_weak(last, next, std::memory_order_relaxed));
        check(write.load(std::memory_order_relaxed));
      }
      again_ += AccessId::Serial(last) >= first_serial ? 1 : 0;
    }
    if (conflict != 0) ReportRace(lane, by, conflict, now);
  }

  // Adds what the accesses of all lanes cost to the launch's counts.
  void Count() {
    if (count_ == 0 || space_ == Space::kParam || space_ == Space::kLocal) return;
    const auto place = static_cast<size_t>(&instruction_ - block_.kernel().code.data());
    LaunchCounts::OfInstruction& of = block_.counts().instructions[place];
    AccessCounts& counts = space_ == Space::kShared ? of.shared : of.global;
    ++counts.requests;
    counts.accesses += count_;
    counts.bytes += count_ * bytes_;
    if (space_ == Space::kShared) {
      counts.bank_conflicts += BankConflicts(touched_, touching_, bytes_);
      return;
    }
    (writes_ ? block_.counts().written_again : block_.counts().read_again) += again_;
    CountSectors(touched_, touching_, bytes_, counts);
  }

  std::string Describe(int lane) const {
    uint64_t address = addresses_[lane] + offset_;
    const Space space = Resolve(address);
    return Describe(space, address);
  }

  // Where the place is in shared memory; some other number if it is not there.
  uint64_t SharedOffset(const Place& place) const {
    return static_cast<uint64_t>(place.states - block_.shared().states.data());
  }

 private:
  absl::string_view verb() const { return writes_ ? "write" : "read"; }

  void Report(FindingKind kind, int lane, std::string what) {
    block_.Report(kind, warp_, lane, instruction_, std::move(what));
  }

  // The space of an address, and the address in it.
  Space Resolve(uint64_t& address) const {
    if (of_ != Space::kGeneric) {
      // An address may stand in a register of 32 bits.
      if (of_ != Space::kGlobal) address &= 0xffffffff;
      return of_;
    }
    const uint64_t window = address & kWindowMask;
    if (window == kSharedWindow || window == kLocalWindow || window == kParameterWindow) {
      address &= ~kWindowMask;
    }
    return window == kSharedWindow      ? Space::kShared
           : window == kLocalWindow     ? Space::kLocal
           : window == kParameterWindow ? Space::kParam
                                        : Space::kGlobal;
  }

  static bool FitsInto(uint64_t address, size_t size, int bytes) {
    return address <= size && static_cast<uint64_t>(bytes) <= size - address;
  }

  bool FindGlobal(uint64_t address, Place& place) const {
    Memory& memory = block_.memory();
    // Aligned, so that the last byte is in the range with the first one.
    if (!memory.Reaches(block_.launch().loaded.device(), address)) return false;
    place = {address, memory.Host(address), memory.State(address), memory.Past(address)};
    return true;
  }

  // The first of `bytes` bytes whose state is `state`; `bytes` if none is.
  int FirstOf(ByteState state, const Place& place, int bytes) const {
    if (place.states == nullptr) return bytes;
    for (int i = 0; i < bytes; i += word_) {
      const uint64_t word = LoadWord(place.states + i, static_cast<size_t>(word_));
      if (word == initialized_) continue;
      for (int b = 0; b < std::min(word_, bytes - i); ++b) {
        if (static_cast<ByteState>(word >> 8 * b & 0xff) == state) return i + b;
      }
    }
    return bytes;
  }

  void SetInitialized(ByteState* states) const {
    for (int i = 0; i < bytes_; i += word_) {
      StoreWord(states + i, initialized_, static_cast<size_t>(word_));
    }
  }

  std::string Describe(Space space, uint64_t address) const {
    if (space == Space::kGlobal) return block_.memory().Describe(address);
    if (space == Space::kShared) return block_.DescribeShared(address);
    const bool is_local = space == Space::kLocal;
    const size_t size = is_local ? static_cast<size_t>(block_.kernel().local_bytes)
                                 : block_.launch().parameters.size();
    return absl::StrCat("byte ", address, " of ", size, " of ", is_local ? "local" : "parameter",
                        " memory");
  }

  // Bytes that come of such are such again. In global memory a whole element of them is a mistake:
  // what is copied with others may be padding.
  void SetUnwritten(int lane, const Place& place) {
    const int bytes = instruction_.element_bytes;
    for (int e = 0; e < instruction_.elements; ++e) {
      const Operand from = instruction_.operands[static_cast<size_t>(1 + e)];
      const uint64_t bits = warp_.unwritten()->bits(from, lane);
      int count = 0;
      for (int i = 0; bits != 0 && i < bytes; ++i) {
        if ((bits >> 8 * i & 0xff) == 0) continue;
        StoreWord(place.states + e * bytes + i, static_cast<uint64_t>(ByteState::kUninitialized),
                  1);
        ++count;
      }
      if (count > 0 && place.address == 0) {
        const uint64_t offset = SharedOffset(place) + static_cast<uint64_t>(e * bytes);
        block_.shared_origins()[offset] = warp_.unwritten()->origin(from);
      }
      if (count == bytes && place.address != 0) {
        warp_.unwritten()->Use(warp_, instruction_, from, uint32_t{1} << lane);
      }
    }
  }

  void ReportRace(int lane, int by, uint64_t conflict, uint64_t now) {
    const AccessId::Others others = AccessId::OthersOf(conflict);
    const bool in_block = others != AccessId::Others::kOfOtherBlocks &&
                          AccessId::Serial(conflict) == AccessId::Serial(now);
    std::string who;
    if (in_block) {
      who = absl::StrCat(block_.ThreadName(conflict),
                         others != AccessId::Others::kNone ? " and others" : "",
                         " accessed it and no barrier is between");
    } else if (others == AccessId::Others::kOfOtherBlocks) {
      who = "several blocks of the launch accessed it";
    } else {
      who = absl::StrCat("block ", AccessId::Serial(conflict) - block_.launch().first_serial,
                         " accessed it in the same launch");
    }
    Report(in_block ? FindingKind::kRaceInBlock : FindingKind::kRaceBetweenBlocks, by,
           absl::StrCat(verb(), " of ", bytes_, " bytes at ", Describe(lane), ": ", who));
  }

  Warp& warp_;
  Block& block_;
  const Instruction& instruction_;
  const Lanes& addresses_;
  const uint64_t offset_;
  const Space of_;
  const int bytes_;
  // So many bytes of states are read at once.
  const int word_;
  const uint64_t initialized_;
  const bool writes_;
  const bool reads_;
  // Of the first lane; others are not counted.
  Space space_ = Space::kGlobal;
  int count_ = 0;
  int64_t again_ = 0;
  Lanes touched_;
  uint32_t touching_ = 0;
  uint32_t young_[kLanes];
  uint32_t young_lanes_ = 0;
};

// The bits of a register whose bytes are those of a mask; a signed one is filled by its sign.
inline uint64_t BitsOf(uint32_t mask, size_t bytes, bool is_signed) {
  uint64_t bits = 0;
  for (size_t i = 0; i < bytes; ++i) bits |= (mask >> i & 1) != 0 ? uint64_t{0xff} << 8 * i : 0;
  const bool extends = is_signed && bytes < 8 && (mask >> (bytes - 1) & 1) != 0;
  return extends ? bits | ~uint64_t{0} << 8 * bytes : bits;
}

}  // namespace brigade::emulator

#endif  // BRIGADE_EMULATOR_PTX_LANE_ACCESS_H_
