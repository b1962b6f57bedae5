#ifndef BRIGADE_EMULATOR_PTX_LANE_OPS_H_
#define BRIGADE_EMULATOR_PTX_LANE_OPS_H_

// Handlers of what computes in each lane by itself: arithmetic, logic, comparisons, moves.

#include <algorithm>
#include <array>
#include <bit>
#include <cfenv>
#include <cmath>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "brigade/emulator/ptx/arithmetic.h"
#include "brigade/emulator/ptx/block.h"
#include "brigade/emulator/ptx/module.h"
#include "brigade/emulator/ptx/warp.h"

namespace brigade::emulator {

// result[lane] = compute(lane) for the active lanes.
template <typename Compute>
void ForLanes(Warp& warp, Lanes& result, const Compute& compute) {
  if (warp.active() == ~uint32_t{0}) {
    for (int lane = 0; lane < kLanes; ++lane) result[lane] = compute(lane);
  } else {
    warp.ForEachActive([&](int lane) { result[lane] = compute(lane); });
  }
}

// Op::Run(sources) in each lane.
template <typename Op, typename Result, typename... Sources>
void Map(Warp& warp, const Instruction& it) {
  Lanes& to = warp.lanes(it.operands[0]);
  [&]<size_t... kIndex>(std::index_sequence<kIndex...>) {
    const std::array<const Lanes*, sizeof...(Sources)> from = {
        &warp.lanes(it.operands[1 + kIndex])...};
    ForLanes(warp, to, [&](int lane) {
      return ToBits<Result>(
          static_cast<Result>(Op::Run(FromBits<Sources>((*from[kIndex])[lane])...)));
    });
  }
  (std::make_index_sequence<sizeof...(Sources)>());
}

// Rounding of the host's instructions, for a scope.
class HostRounding {
 public:
  explicit HostRounding(Rounding rounding) : is_nearest_(rounding == Rounding::kNearest) {
    constexpr int kModes[] = {FE_TONEAREST, FE_TOWARDZERO, FE_DOWNWARD, FE_UPWARD};
    if (!is_nearest_) std::fesetround(kModes[static_cast<int>(rounding)]);
  }
  ~HostRounding() {
    if (!is_nearest_) std::fesetround(FE_TONEAREST);
  }
  HostRounding(const HostRounding&) = delete;
  HostRounding& operator=(const HostRounding&) = delete;

 private:
  const bool is_nearest_;
};

// The same for floating-point numbers, with what the instruction says of rounding, subnormal
// numbers and saturation.
template <typename Op, typename T, int kSources>
void MapFloat(Warp& warp, const Instruction& it) {
  Lanes& to = warp.lanes(it.operands[0]);
  std::array<const Lanes*, kSources> from = {};
  for (size_t i = 0; i < kSources; ++i) from[i] = &warp.lanes(it.operands[1 + i]);
  const auto compute = [&](int lane, auto prepare) {
    return [&]<size_t... kIndex>(std::index_sequence<kIndex...>) {
      return Canonical(Op::Run(prepare(FromBits<T>((*from[kIndex])[lane]))...));
    }
    (std::make_index_sequence<kSources>());
  };
  if (it.rounding == Rounding::kNearest && !it.flushes_to_zero && !it.saturates) {
    ForLanes(warp, to,
             [&](int lane) { return ToBits(compute(lane, [](T value) { return value; })); });
    return;
  }
  const HostRounding rounding(it.rounding);
  ForLanes(warp, to, [&](int lane) {
    T result = compute(lane, [&](T value) {
      if constexpr (std::is_same_v<T, float>) {
        return it.flushes_to_zero ? FlushToZero(value) : value;
      }
      return value;
    });
    if constexpr (std::is_same_v<T, float>) {
      if (it.flushes_to_zero) result = FlushToZero(result);
      if (it.saturates) result = Saturate(result);
    }
    return ToBits(result);
  });
}

struct AddOp {
  template <typename T>
  static T Run(T a, T b) {
    if constexpr (std::is_integral_v<T>) {
      return static_cast<T>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
    }
    return a + b;
  }
};
struct SubOp {
  template <typename T>
  static T Run(T a, T b) {
    if constexpr (std::is_integral_v<T>) {
      return static_cast<T>(static_cast<uint64_t>(a) - static_cast<uint64_t>(b));
    }
    return a - b;
  }
};
struct MulOp {
  template <typename T>
  static T Run(T a, T b) {
    if constexpr (std::is_integral_v<T>) {
      return static_cast<T>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
    }
    return a * b;
  }
};
struct MulHighOp {
  template <typename T>
  static T Run(T a, T b) {
    return HighProduct(a, b);
  }
};
// Of 16 or 32 bits, to twice as many.
struct MulWideOp {
  template <typename T>
  static int64_t Run(T a, T b) {
    return static_cast<int64_t>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
  }
};
struct MadOp {
  template <typename T>
  static T Run(T a, T b, T c) {
    return AddOp::Run(MulOp::Run(a, b), c);
  }
};
struct MadHighOp {
  template <typename T>
  static T Run(T a, T b, T c) {
    return AddOp::Run(HighProduct(a, b), c);
  }
};
struct DivOp {
  template <typename T>
  static T Run(T a, T b) {
    if constexpr (std::is_integral_v<T>) {
      if (std::is_signed_v<T> && b == static_cast<T>(-1)) return SubOp::Run(T{0}, a);
    }
    return a / b;
  }
};
struct RemOp {
  template <typename T>
  static T Run(T a, T b) {
    if (std::is_signed_v<T> && b == static_cast<T>(-1)) return 0;
    return static_cast<T>(a % b);
  }
};
struct MinOp {
  template <typename T>
  static T Run(T a, T b) {
    return Minimum(a, b);
  }
};
struct MaxOp {
  template <typename T>
  static T Run(T a, T b) {
    return Maximum(a, b);
  }
};
struct AbsOp {
  template <typename T>
  static T Run(T a) {
    if constexpr (std::is_floating_point_v<T>) return std::fabs(a);
    return a < 0 ? SubOp::Run(T{0}, a) : a;
  }
};
struct NegOp {
  template <typename T>
  static T Run(T a) {
    if constexpr (std::is_floating_point_v<T>) return -a;
    return SubOp::Run(T{0}, a);
  }
};
struct SqrtOp {
  template <typename T>
  static T Run(T a) {
    return std::sqrt(a);
  }
};
struct RcpOp {
  template <typename T>
  static T Run(T a) {
    return T{1} / a;
  }
};
// PTX bounds the errors of these two; here they give the nearest number.
struct Ex2Op {
  static float Run(float a) { return static_cast<float>(std::exp2(static_cast<double>(a))); }
};
struct Lg2Op {
  static float Run(float a) { return static_cast<float>(std::log2(static_cast<double>(a))); }
};
struct FmaOp {
  template <typename T>
  static T Run(T a, T b, T c) {
    return std::fma(a, b, c);
  }
};
struct AndOp {
  template <typename T>
  static T Run(T a, T b) {
    return a & b;
  }
};
struct OrOp {
  template <typename T>
  static T Run(T a, T b) {
    return a | b;
  }
};
struct XorOp {
  template <typename T>
  static T Run(T a, T b) {
    return a ^ b;
  }
};
struct NotOp {
  template <typename T>
  static T Run(T a) {
    return static_cast<T>(~a);
  }
};
struct CopyOp {
  template <typename T>
  static T Run(T a) {
    return a;
  }
};
// Shifts by more than the width shift everything out.
struct ShlOp {
  template <typename T>
  static T Run(T a, uint32_t by) {
    return by >= 8 * sizeof(T) ? T{0} : static_cast<T>(a << by);
  }
};
struct ShrOp {
  template <typename T>
  static T Run(T a, uint32_t by) {
    if (by >= 8 * sizeof(T)) return a < 0 ? static_cast<T>(-1) : T{0};
    return static_cast<T>(a >> by);
  }
};
struct PermuteOp {
  static uint32_t Run(uint32_t a, uint32_t b, uint32_t selection) {
    return PermuteBytes(a, b, selection);
  }
};
// Of each bit of a, b and c, the bit of the table that these three choose.
struct Lop3Op {
  static uint32_t Run(uint32_t a, uint32_t b, uint32_t c, uint32_t table) {
    uint32_t result = 0;
    for (uint32_t i = 0; i < 8; ++i) {
      if ((table >> i & 1) == 0) continue;
      result |= ((i & 4) != 0 ? a : ~a) & ((i & 2) != 0 ? b : ~b) & ((i & 1) != 0 ? c : ~c);
    }
    return result;
  }
};
struct ReverseOp {
  template <typename T>
  static T Run(T a) {
    return ReverseBits(a);
  }
};
struct BitMaskOp {
  static uint32_t Run(uint32_t first, uint32_t width) { return BitMask(first, width); }
};
// Of the amounts the lowest five bits.
struct BitMaskWrapOp {
  static uint32_t Run(uint32_t first, uint32_t width) { return BitMask(first & 31, width & 31); }
};
// The low `width` bits of a, at `first` of b.
struct InsertBitsOp {
  template <typename T>
  static T Run(T a, T b, uint32_t first, uint32_t width) {
    const T mask = ShlOp::Run(LowBits<T>(width & 0xff), first & 0xff);
    return (b & ~mask) | (ShlOp::Run(a, first & 0xff) & mask);
  }

  template <typename T>
  static T LowBits(uint32_t count) {
    return static_cast<T>(~ShlOp::Run(static_cast<T>(~T{0}), count));
  }
};
// `width` bits of a from `first` on; of signed numbers the last of them is the sign.
struct ExtractBitsOp {
  template <typename T>
  static T Run(T a, uint32_t first, uint32_t width) {
    constexpr uint32_t kBits = 8 * sizeof(T);
    first &= 0xff, width &= 0xff;
    if (width == 0) return 0;
    const uint32_t last = std::min(first + width, kBits) - 1;
    // Of what begins behind the number, the sign.
    if (first > last) return a < 0 ? static_cast<T>(-1) : T{0};
    using Unsigned = std::make_unsigned_t<T>;
    const auto high = static_cast<Unsigned>(static_cast<Unsigned>(a) << (kBits - 1 - last));
    return static_cast<T>(static_cast<T>(high) >> (kBits - 1 - last + first));
  }
};
struct PopcOp {
  template <typename T>
  static uint32_t Run(T a) {
    return static_cast<uint32_t>(std::popcount(a));
  }
};
struct ClzOp {
  template <typename T>
  static uint32_t Run(T a) {
    return static_cast<uint32_t>(std::countl_zero(a));
  }
};

// Integers by zero: PTX leaves the result open.
template <typename Op, typename T>
void MapDivision(Warp& warp, const Instruction& it) {
  Lanes& to = warp.lanes(it.operands[0]);
  const Lanes& a = warp.lanes(it.operands[1]);
  const Lanes& b = warp.lanes(it.operands[2]);
  ForLanes(warp, to, [&](int lane) {
    const T divisor = FromBits<T>(b[lane]);
    if (divisor == 0) {
      warp.block().Report(FindingKind::kDivisionByZero, warp, lane, it,
                          "the result is not specified");
      return ~uint64_t{0};
    }
    return ToBits<T>(Op::Run(FromBits<T>(a[lane]), divisor));
  });
}

// 1 / a by an approximation whose lower 32 bits are zero. The hardware's has other errors.
inline void ApproximateRcp(Warp& warp, const Instruction& it) {
  Lanes& to = warp.lanes(it.operands[0]);
  const Lanes& a = warp.lanes(it.operands[1]);
  ForLanes(warp, to, [&](int lane) {
    double value = FromBits<double>(a[lane]);
    if (std::fpclassify(value) == FP_SUBNORMAL) value = std::copysign(0.0, value);
    double result = 1 / value;
    if (std::fpclassify(result) == FP_SUBNORMAL) result = std::copysign(0.0, result);
    return ToBits(result) & ~uint64_t{0xffffffff};
  });
}

template <typename T>
bool Compare(Comparison comparison, T a, T b) {
  const bool unordered = a != a || b != b;
  switch (comparison) {
    case Comparison::kEq:
      return a == b;
    case Comparison::kNe:
      return a != b && !unordered;
    case Comparison::kLt:
      return a < b;
    case Comparison::kLe:
      return a <= b;
    case Comparison::kGt:
      return a > b;
    case Comparison::kGe:
      return a >= b;
    case Comparison::kEqu:
      return a == b || unordered;
    case Comparison::kNeu:
      return a != b;
    case Comparison::kLtu:
      return a < b || unordered;
    case Comparison::kLeu:
      return a <= b || unordered;
    case Comparison::kGtu:
      return a > b || unordered;
    case Comparison::kGeu:
      return a >= b || unordered;
    case Comparison::kNum:
      return !unordered;
    case Comparison::kNan:
      return unordered;
  }
  return false;
}

inline uint32_t Combine(Combination combination, uint32_t a, uint32_t b) {
  switch (combination) {
    case Combination::kNone:
      return a;
    case Combination::kAnd:
      return a & b;
    case Combination::kOr:
      return a | b;
    case Combination::kXor:
      return a ^ b;
  }
  return a;
}

// p|q, a, b, c: p is (a compared to b) combined with c, and q the same of the opposite.
template <typename T>
void SetPredicate(Warp& warp, const Instruction& it) {
  const Lanes& a = warp.lanes(it.operands[2]);
  const Lanes& b = warp.lanes(it.operands[3]);
  uint32_t is_so = 0;
  warp.ForEachActive([&](int lane) {
    T left = FromBits<T>(a[lane]), right = FromBits<T>(b[lane]);
    if constexpr (std::is_same_v<T, float>) {
      if (it.flushes_to_zero) left = FlushToZero(left), right = FlushToZero(right);
    }
    is_so |= uint32_t{Compare(it.comparison, left, right)} << lane;
  });
  const uint32_t with = it.combination == Combination::kNone ? 0 : warp.ReadPredicate(it, 4);
  const Operand p = it.operands[0], q = it.operands[1];
  warp.WritePredicate(q, Combine(it.combination, ~is_so, with));
  warp.WritePredicate(p, Combine(it.combination, is_so, with));
}

inline void Select(Warp& warp, const Instruction& it) {
  Lanes& to = warp.lanes(it.operands[0]);
  const Lanes& a = warp.lanes(it.operands[1]);
  const Lanes& b = warp.lanes(it.operands[2]);
  const uint32_t chosen = warp.ReadPredicate(it, 3);
  ForLanes(warp, to, [&](int lane) { return (chosen >> lane & 1) != 0 ? a[lane] : b[lane]; });
}

template <typename Op>
void MapPredicates(Warp& warp, const Instruction& it) {
  warp.WritePredicate(it.operands[0],
                      Op::Run(warp.ReadPredicate(it, 1), warp.ReadPredicate(it, 2)));
}
inline void NotPredicate(Warp& warp, const Instruction& it) {
  warp.WritePredicate(it.operands[0], ~warp.ReadPredicate(it, 1));
}
inline void MovePredicate(Warp& warp, const Instruction& it) {
  warp.WritePredicate(it.operands[0], warp.ReadPredicate(it, 1));
}

// to, parts: from the lowest bits up. And the other way round.
inline void Pack(Warp& warp, const Instruction& it) {
  Lanes& to = warp.lanes(it.operands[0]);
  const int bits = 8 * it.element_bytes;
  ForLanes(warp, to, [&](int lane) {
    uint64_t value = 0;
    for (size_t e = 0; e < it.elements; ++e) {
      const uint64_t part = warp.lanes(it.operands[1 + e])[lane] & (~uint64_t{0} >> (64 - bits));
      value |= part << (static_cast<int>(e) * bits);
    }
    return value;
  });
}
inline void Unpack(Warp& warp, const Instruction& it) {
  const Lanes& from = warp.lanes(it.operands[it.elements]);
  const int bits = 8 * it.element_bytes;
  warp.ForEachActive([&](int lane) {
    const uint64_t value = from[lane];  // its register may be one of the parts
    for (size_t e = 0; e < it.elements; ++e) {
      warp.lanes(it.operands[e])[lane] =
          value >> (static_cast<int>(e) * bits) & (~uint64_t{0} >> (64 - bits));
    }
  });
}

}  // namespace brigade::emulator

#endif  // BRIGADE_EMULATOR_PTX_LANE_OPS_H_
