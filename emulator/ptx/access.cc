#include "brigade/emulator/ptx/access.h"

#include <array>
#include <bit>

#include "brigade/emulator/ptx/block.h"
#include "brigade/emulator/ptx/lane_access.h"
#include "brigade/emulator/ptx/lane_ops.h"
#include "brigade/emulator/ptx/warp.h"

namespace brigade::emulator {
namespace {

template <bool kSigned>
void Load(Warp& warp, const Instruction& instruction) {
  const size_t elements = instruction.elements, bytes = instruction.element_bytes;
  // The address may be in a register that is loaded.
  const Operand address = instruction.operands[elements];
  std::array<std::array<uint64_t, kLanes>, 4> loaded = {};
  uint32_t done = 0;
  Access access(warp, instruction, address, /*writes=*/false);
  access.Run([&](int lane, const uint8_t* data) {
    done |= uint32_t{1} << lane;
    for (size_t e = 0; e < elements; ++e) {
      uint64_t value = LoadWord(data + e * bytes, bytes);
      if constexpr (kSigned) {
        const size_t unused = 64 - 8 * bytes;
        value = static_cast<uint64_t>(static_cast<int64_t>(value << unused) >> unused);
      }
      loaded[e][static_cast<size_t>(lane)] = value;
    }
  });
  for (size_t e = 0; e < elements; ++e) {
    Lanes& to = warp.lanes(instruction.operands[e]);
    for (uint32_t left = done; left != 0; left &= left - 1) {
      const int lane = std::countr_zero(left);
      to[lane] = loaded[e][static_cast<size_t>(lane)];
    }
    if (Unwritten* const unwritten = warp.unwritten(); unwritten != nullptr) {
      for (uint32_t left = done; left != 0; left &= left - 1) {
        const int lane = std::countr_zero(left);
        const uint64_t bits = BitsOf(access.unwritten(lane) >> e * bytes, bytes, kSigned);
        unwritten->Set(instruction.operands[e], lane, bits, instruction);
      }
    }
  }
}

template <AtomicOp kOp, typename T>
T Updated(T old, T b, T c) {
  if constexpr (kOp == AtomicOp::kAdd) return AddOp::Run(old, b);
  if constexpr (kOp == AtomicOp::kMin) return MinOp::Run(old, b);
  if constexpr (kOp == AtomicOp::kMax) return MaxOp::Run(old, b);
  if constexpr (kOp == AtomicOp::kAnd) return AndOp::Run(old, b);
  if constexpr (kOp == AtomicOp::kOr) return OrOp::Run(old, b);
  if constexpr (kOp == AtomicOp::kXor) return XorOp::Run(old, b);
  if constexpr (kOp == AtomicOp::kExch) return b;
  if constexpr (kOp == AtomicOp::kCas) return old == b ? c : old;
  if constexpr (kOp == AtomicOp::kInc) return old >= b ? T{0} : static_cast<T>(old + 1);
  if constexpr (kOp == AtomicOp::kDec) return old == 0 || old > b ? b : static_cast<T>(old - 1);
}

template <AtomicOp kOp, typename T, bool kReturns>
void Atomic(Warp& warp, const Instruction& instruction) {
  constexpr size_t kAddress = kReturns ? 1 : 0;
  const Lanes& b = warp.lanes(instruction.operands[kAddress + 1]);
  const Lanes& c =
      warp.lanes(instruction.operands[kOp == AtomicOp::kCas ? kAddress + 2 : kAddress + 1]);
  // The register may be the one of the address.
  Lanes before = {};
  uint32_t done = 0;
  {
    const device::MutexLock lock(warp.block().launch().atomics);
    Access access(warp, instruction, instruction.operands[kAddress], /*writes=*/true,
                  /*reads_first=*/kOp != AtomicOp::kExch);
    if (warp.unwritten() != nullptr) {
      access.UseOf(instruction.operands[kAddress + 1]);
      if (kOp == AtomicOp::kCas) access.UseOf(instruction.operands[kAddress + 2]);
    }
    access.Run([&](int lane, uint8_t* data) {
      before[lane] = LoadWord(data, sizeof(T));
      const T next =
          Updated<kOp, T>(FromBits<T>(before[lane]), FromBits<T>(b[lane]), FromBits<T>(c[lane]));
      StoreWord(data, ToBits(next), sizeof(T));
      done |= uint32_t{1} << lane;
    });
  }
  if constexpr (kReturns) {
    Lanes& to = warp.lanes(instruction.operands[0]);
    for (uint32_t left = done; left != 0; left &= left - 1) {
      const int lane = std::countr_zero(left);
      to[lane] = before[lane];
      if (warp.unwritten() != nullptr) {
        warp.unwritten()->Set(instruction.operands[0], lane, 0, instruction);
      }
    }
  }
}

template <AtomicOp kOp, bool kReturns>
Handler AtomicOfType(Type type) {
  constexpr bool kAdds = kOp == AtomicOp::kAdd;
  constexpr bool kOrders = kOp == AtomicOp::kMin || kOp == AtomicOp::kMax;
  constexpr bool kWraps = kOp == AtomicOp::kInc || kOp == AtomicOp::kDec;
  if (type == Type::kU32 && (kAdds || kOrders || kWraps)) return Atomic<kOp, uint32_t, kReturns>;
  if constexpr (kWraps) return nullptr;
  if (type == Type::kU64 && (kAdds || kOrders)) return Atomic<kOp, uint64_t, kReturns>;
  if constexpr (kAdds || kOrders) {
    if (type == Type::kS32) return Atomic<kOp, int32_t, kReturns>;
    if (type == Type::kS64 && kOrders) return Atomic<kOp, int64_t, kReturns>;
    if constexpr (kAdds) {
      if (type == Type::kF32) return Atomic<kOp, float, kReturns>;
      if (type == Type::kF64) return Atomic<kOp, double, kReturns>;
    }
    return nullptr;
  }
  if (type == Type::kB32) return Atomic<kOp, uint32_t, kReturns>;
  if (type == Type::kB64) return Atomic<kOp, uint64_t, kReturns>;
  return nullptr;
}

template <bool kReturns>
Handler AtomicOf(AtomicOp op, Type type) {
  switch (op) {
    case AtomicOp::kAdd:
      return AtomicOfType<AtomicOp::kAdd, kReturns>(type);
    case AtomicOp::kMin:
      return AtomicOfType<AtomicOp::kMin, kReturns>(type);
    case AtomicOp::kMax:
      return AtomicOfType<AtomicOp::kMax, kReturns>(type);
    case AtomicOp::kAnd:
      return AtomicOfType<AtomicOp::kAnd, kReturns>(type);
    case AtomicOp::kOr:
      return AtomicOfType<AtomicOp::kOr, kReturns>(type);
    case AtomicOp::kXor:
      return AtomicOfType<AtomicOp::kXor, kReturns>(type);
    case AtomicOp::kExch:
      return AtomicOfType<AtomicOp::kExch, kReturns>(type);
    case AtomicOp::kCas:
      return AtomicOfType<AtomicOp::kCas, kReturns>(type);
    case AtomicOp::kInc:
      return AtomicOfType<AtomicOp::kInc, kReturns>(type);
    case AtomicOp::kDec:
      return AtomicOfType<AtomicOp::kDec, kReturns>(type);
  }
  return nullptr;
}

uint64_t WindowOf(Space space) {
  switch (space) {
    case Space::kShared:
      return kSharedWindow;
    case Space::kLocal:
      return kLocalWindow;
    case Space::kParam:
      return kParameterWindow;
    default:
      return 0;
  }
}

}  // namespace

void LoadUnsigned(Warp& warp, const Instruction& instruction) { Load<false>(warp, instruction); }
void LoadSigned(Warp& warp, const Instruction& instruction) { Load<true>(warp, instruction); }

void Store(Warp& warp, const Instruction& instruction) {
  const size_t elements = instruction.elements, bytes = instruction.element_bytes;
  Access(warp, instruction, instruction.operands[0], /*writes=*/true)
      .Run([&](int lane, uint8_t* data) {
        for (size_t e = 0; e < elements; ++e) {
          StoreWord(data + e * bytes, warp.lanes(instruction.operands[1 + e])[lane], bytes);
        }
      });
}

Handler AtomicHandler(AtomicOp op, Type type, bool returns) {
  return returns ? AtomicOf<true>(op, type) : AtomicOf<false>(op, type);
}

void ToGeneric(Warp& warp, const Instruction& instruction) {
  Lanes& to = warp.lanes(instruction.operands[0]);
  const Lanes& from = warp.lanes(instruction.operands[1]);
  const uint64_t window = WindowOf(instruction.space);
  warp.ForEachActive([&](int lane) { to[lane] = from[lane] + window; });
}

void FromGeneric(Warp& warp, const Instruction& instruction) {
  Lanes& to = warp.lanes(instruction.operands[0]);
  const Lanes& from = warp.lanes(instruction.operands[1]);
  const uint64_t window = WindowOf(instruction.space);
  warp.ForEachActive([&](int lane) { to[lane] = from[lane] - window; });
}

}  // namespace brigade::emulator
