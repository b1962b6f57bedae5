#include "brigade/emulator/ptx/tile_access.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "absl/strings/str_cat.h"
#include "brigade/emulator/ptx/async_copies.h"
#include "brigade/emulator/ptx/block.h"
#include "brigade/emulator/ptx/lane_access.h"
#include "brigade/emulator/ptx/warp.h"

namespace brigade::emulator {
namespace {

constexpr int kMatrixRows = 8, kElementBytes = 2;
constexpr int kRowBytes = kMatrixRows * kElementBytes;

template <int kMatrices, bool kTransposed>
void LoadMatrices(Warp& warp, const Instruction& instruction) {
  constexpr int kRows = kMatrices * kMatrixRows;
  // The lane that gets an element of a row, and at which half of its register.
  const auto receiver = [](int row, int element) {
    return kTransposed ? 4 * element + row / 2 : 4 * row + element / 2;
  };
  const auto half = [](int row, int element) { return (kTransposed ? row : element) % 2; };
  // The address may be in a register that is loaded.
  std::array<std::array<uint64_t, kLanes>, kMatrices> loaded = {}, unwritten = {};
  Access access(warp, instruction,
                {instruction.operands[kMatrices], instruction.offset, instruction.space, kRowBytes},
                /*writes=*/false);
  warp.NoteAccess();
  for (int lane = 0; lane < kRows; ++lane) {
    const auto matrix = static_cast<size_t>(lane / kMatrixRows);
    const int row = lane % kMatrixRows;
    Place place;
    if (!access.Find(lane, place)) continue;
    access.CheckState(lane, place);
    const bool is_in_flight = access.IsInFlight(lane, place);
    for (int e = 0; e < kMatrixRows; ++e) {
      const int to = receiver(row, e), first = e * kElementBytes;
      if (!is_in_flight) access.CheckRaces(lane, place, to, first, kElementBytes);
      const int shift = 16 * half(row, e);
      loaded[matrix][static_cast<size_t>(to)] |= LoadWord(place.data + first, kElementBytes)
                                                 << shift;
      unwritten[matrix][static_cast<size_t>(to)] |=
          BitsOf(access.unwritten(lane) >> first & 3, kElementBytes, /*is_signed=*/false) << shift;
    }
  }
  access.Count();
  for (size_t m = 0; m < kMatrices; ++m) {
    const Operand operand = instruction.operands[m];
    for (int lane = 0; lane < kLanes; ++lane) {
      const auto l = static_cast<size_t>(lane);
      warp.lanes(operand)[lane] = loaded[m][l];
      if (warp.unwritten() != nullptr) {
        warp.unwritten()->Set(operand, lane, unwritten[m][l], instruction);
      }
    }
  }
}

// What a copy was waited for: its bytes are there, written by the lane that waits.
void Land(Warp& warp, const Instruction& wait, int lane, const AsyncCopies::Copy& copy) {
  Block& block = warp.block();
  Memory& memory = block.memory();
  const auto at = static_cast<size_t>(copy.to);
  const uint64_t now = block.access_id(warp, lane);
  bool has_changed = false;
  for (int i = 0; i < copy.bytes; ++i) {
    const auto b = static_cast<size_t>(i);
    if (i < copy.read) {
      const uint64_t from = LoadWord(memory.Host(copy.from + b), 1);
      has_changed |= (copy.unwritten >> i & 1) == 0 && from != copy.data[b];
    }
    const bool is_unwritten = (copy.unwritten >> i & 1) != 0;
    StoreWord(block.shared().data.data() + at + b, copy.data[b], 1);
    StoreWord(
        block.shared().states.data() + at + b,
        static_cast<uint64_t>(is_unwritten ? ByteState::kUninitialized : ByteState::kInitialized),
        1);
    std::atomic_ref<uint64_t>(block.shared().past[at + b].write)
        .store(now, std::memory_order_relaxed);
  }
  if (copy.unwritten != 0) {
    block.shared_origins()[copy.to] = {copy.instruction, lane, copy.what};
  } else {
    block.shared_origins().erase(copy.to);
  }
  if (has_changed) {
    block.Report(FindingKind::kRaceInBlock, warp, lane, wait,
                 absl::StrCat("the bytes at ", memory.Describe(copy.from), ", which line ",
                              copy.instruction->line,
                              " copies, were written again before it had been waited for"));
  }
}

void Await(Warp& warp, const Instruction& instruction, int lane, uint64_t left) {
  for (const AsyncCopies::Copy& copy : warp.copies().Await(lane, left)) {
    Land(warp, instruction, lane, copy);
  }
}

}  // namespace

Handler LoadMatricesHandler(int matrices, bool is_transposed) {
  if (matrices == 1) return is_transposed ? LoadMatrices<1, true> : LoadMatrices<1, false>;
  if (matrices == 2) return is_transposed ? LoadMatrices<2, true> : LoadMatrices<2, false>;
  if (matrices == 4) return is_transposed ? LoadMatrices<4, true> : LoadMatrices<4, false>;
  return nullptr;
}

void CopyAsync(Warp& warp, const Instruction& instruction) {
  Block& block = warp.block();
  const int bytes = instruction.element_bytes;
  const Operand size = instruction.operands[2];
  Access to(warp, instruction, {instruction.operands[0], instruction.offset, Space::kShared, bytes},
            /*writes=*/true);
  Access from(warp, instruction,
              {instruction.operands[1], instruction.second_offset, Space::kGlobal, bytes},
              /*writes=*/false);
  if (warp.unwritten() != nullptr) to.UseOf(size);
  warp.NoteAccess();
  warp.ForEachActive([&](int lane) {
    AsyncCopies::Copy copy;
    copy.instruction = &instruction;
    copy.bytes = bytes;
    const auto read = static_cast<uint32_t>(warp.lanes(size)[lane]);
    copy.read = static_cast<int>(std::min(read, static_cast<uint32_t>(bytes)));
    if (read > static_cast<uint32_t>(bytes)) {
      block.Report(FindingKind::kOutOfBounds, warp, lane, instruction,
                   absl::StrCat("a copy of ", bytes, " bytes that reads ", read));
    }
    Place source, target;
    if (!to.Find(lane, target) || to.IsInFlight(lane, target)) return;
    // Where nothing is read, the address may be any.
    if (copy.read > 0) {
      if (!from.Find(lane, source, copy.read)) return;
      from.CheckState(lane, source, copy.read);
      from.CheckRaces(lane, source, lane, 0, copy.read);
      copy.from = source.address;
      copy.unwritten = from.unwritten(lane);
      if (copy.unwritten != 0)
        copy.what = from.UnwrittenText(lane, copy.read, std::countr_zero(copy.unwritten));
      for (int i = 0; i < copy.read; ++i) {
        copy.data[static_cast<size_t>(i)] = static_cast<uint8_t>(LoadWord(source.data + i, 1));
      }
    }
    to.CheckRaces(lane, target, lane, 0, bytes);
    for (int i = 0; i < bytes; ++i) {
      StoreWord(target.states + i, static_cast<uint64_t>(ByteState::kInFlight), 1);
    }
    copy.to = to.SharedOffset(target);
    warp.copies().Begin(lane, std::move(copy));
  });
  to.Count();
  from.Count();
}

void CommitCopies(Warp& warp, const Instruction&) {
  warp.ForEachActive([&](int lane) { warp.copies().Commit(lane); });
}

void AwaitCopyGroups(Warp& warp, const Instruction& instruction) {
  const Lanes& left = warp.lanes(instruction.operands[0]);
  warp.ForEachActive([&](int lane) { Await(warp, instruction, lane, left[lane]); });
}

void AwaitAllCopies(Warp& warp, const Instruction& instruction) {
  warp.ForEachActive([&](int lane) {
    warp.copies().Commit(lane);
    Await(warp, instruction, lane, 0);
  });
}

}  // namespace brigade::emulator
