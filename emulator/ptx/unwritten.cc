#include "brigade/emulator/ptx/unwritten.h"

#include <algorithm>
#include <array>

#include "absl/strings/str_cat.h"
#include "brigade/emulator/ptx/block.h"
#include "brigade/emulator/ptx/warp.h"

namespace brigade::emulator {
namespace {

// Values of unwritten bits: the second and the fourth are the opposites of those before.
constexpr int kFillings = 4;
uint64_t Filling(int number, int lane) {
  const uint64_t pattern =
      number < 2 ? 0 : uint64_t{0x9e3779b97f4a7c15} * static_cast<uint64_t>(2 * lane + 1);
  return number % 2 == 0 ? pattern : ~pattern;
}

// What the operands of an instruction hold.
struct Values {
  std::array<std::array<uint64_t, kLanes>, Instruction::kMostOperands> registers;
  std::array<uint32_t, Instruction::kMostOperands> predicates;
};

template <typename RunRegister, typename RunPredicate>
void ForOperands(const Instruction& it, bool written, const RunRegister& run_register,
                 const RunPredicate& run_predicate) {
  for (size_t i = 0; i < it.operand_count; ++i) {
    if (((it.written >> i & 1) != 0) != written || it.operands[i] == 0) continue;
    (it.predicates >> i & 1) != 0 ? run_predicate(i, it.operands[i])
                                  : run_register(i, it.operands[i]);
  }
}

}  // namespace

const Instruction* Unwritten::OriginOf(const Warp& warp, const Instruction& it) const {
  const Instruction* origin = nullptr;
  ForOperands(
      it, /*written=*/false,
      [&](size_t, Operand operand) {
        const Register& source = registers_[operand];
        if (source.origin == nullptr) return;
        warp.ForEachActive([&](int lane) {
          if (source.bits[lane] != 0) origin = source.origin;
        });
      },
      [&](size_t, Operand operand) {
        const Predicate& source = predicates_[operand];
        if ((source.bits & warp.active()) != 0) origin = source.origin;
      });
  return origin;
}

void Unwritten::Run(Warp& warp, const Instruction& it) {
  const Instruction* const origin = OriginOf(warp, it);
  Values before, first, differ = {};
  const auto save = [&](Values& to, bool written) {
    ForOperands(
        it, written,
        [&](size_t i, Operand operand) {
          std::copy_n(warp.lanes(operand), kLanes, to.registers[i].begin());
        },
        [&](size_t i, Operand operand) { to.predicates[i] = warp.predicate(operand); });
  };
  const auto restore = [&](bool written) {
    ForOperands(
        it, written,
        [&](size_t i, Operand operand) {
          std::copy_n(before.registers[i].begin(), kLanes, warp.lanes(operand));
        },
        [&](size_t i, Operand operand) { warp.predicate(operand) = before.predicates[i]; });
  };
  if (origin != nullptr) {
    save(before, true);
    save(before, false);
    warp.block().SetSilent(true);
    for (int filling = 0; filling < kFillings; ++filling) {
      restore(true);
      ForOperands(
          it, /*written=*/false,
          [&](size_t i, Operand operand) {
            for (int lane = 0; lane < kLanes; ++lane) {
              const uint64_t bits = registers_[operand].bits[lane];
              warp.lanes(operand)[lane] = (before.registers[i][static_cast<size_t>(lane)] & ~bits) |
                                          (Filling(filling, lane) & bits);
            }
          },
          [&](size_t i, Operand operand) {
            uint32_t filled = 0;
            for (int lane = 0; lane < kLanes; ++lane) {
              filled |= static_cast<uint32_t>(Filling(filling, lane) & 1) << lane;
            }
            const uint32_t bits = predicates_[operand].bits;
            warp.predicate(operand) = (before.predicates[i] & ~bits) | (filled & bits);
          });
      it.run(warp, it);
      Values& result = filling == 0 ? first : differ;
      ForOperands(
          it, /*written=*/true,
          [&](size_t i, Operand operand) {
            for (size_t lane = 0; lane < kLanes; ++lane) {
              const uint64_t value = warp.lanes(operand)[lane];
              if (filling == 0) {
                first.registers[i][lane] = value;
              } else {
                result.registers[i][lane] |= value ^ first.registers[i][lane];
              }
            }
          },
          [&](size_t i, Operand operand) {
            const uint32_t value = warp.predicate(operand);
            if (filling == 0) {
              first.predicates[i] = value;
            } else {
              result.predicates[i] |= value ^ first.predicates[i];
            }
          });
    }
    warp.block().SetSilent(false);
    restore(true);
    restore(false);
  }
  it.run(warp, it);
  ForOperands(
      it, /*written=*/true,
      [&](size_t i, Operand operand) {
        Register& to = registers_[operand];
        if (origin != nullptr) to.origin = origin;
        warp.ForEachActive(
            [&](int lane) { to.bits[lane] = differ.registers[i][static_cast<size_t>(lane)]; });
      },
      [&](size_t i, Operand operand) {
        Predicate& to = predicates_[operand];
        if (origin != nullptr) to.origin = origin;
        to.bits = (to.bits & ~warp.active()) | (differ.predicates[i] & warp.active());
      });
}

void Unwritten::Report(Warp& warp, const Instruction& user, const Instruction* origin) const {
  const Origin& of = origins_.at(origin);
  warp.block().Report(FindingKind::kUninitialized, warp, of.lane, *of.load,
                      absl::StrCat(of.what, "; line ", user.line, " uses it"));
}

void Unwritten::Use(Warp& warp, const Instruction& user, Operand operand, uint32_t mask) const {
  const Register& used = registers_[operand];
  for (; mask != 0; mask &= mask - 1) {
    if (used.bits[std::countr_zero(mask)] != 0) return Report(warp, user, used.origin);
  }
}

void Unwritten::UseGuard(Warp& warp, const Instruction& user, uint32_t mask) const {
  const Predicate& used = predicates_[user.guard];
  if ((used.bits & mask) != 0) Report(warp, user, used.origin);
}

}  // namespace brigade::emulator
