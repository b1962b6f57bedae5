#include "brigade/emulator/ptx/opcodes.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cfenv>
#include <cmath>
#include <cstdint>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "brigade/emulator/ptx/access.h"
#include "brigade/emulator/ptx/arithmetic.h"
#include "brigade/emulator/ptx/block.h"
#include "brigade/emulator/ptx/warp.h"

namespace brigade::emulator {
namespace {

// Types as PTX writes them. Those of bits are taken as unsigned.
enum class Type : uint8_t {
  kPred,
  kB8,
  kB16,
  kB32,
  kB64,
  kU8,
  kU16,
  kU32,
  kU64,
  kS8,
  kS16,
  kS32,
  kS64,
  kF16,
  kBF16,
  kF32,
  kF64,
};

struct TypeInfo {
  absl::string_view name;
  Type type;
  int bytes;
};

constexpr TypeInfo kTypes[] = {
    {"pred", Type::kPred, 0}, {"b8", Type::kB8, 1},   {"b16", Type::kB16, 2},
    {"b32", Type::kB32, 4},   {"b64", Type::kB64, 8}, {"u8", Type::kU8, 1},
    {"u16", Type::kU16, 2},   {"u32", Type::kU32, 4}, {"u64", Type::kU64, 8},
    {"s8", Type::kS8, 1},     {"s16", Type::kS16, 2}, {"s32", Type::kS32, 4},
    {"s64", Type::kS64, 8},   {"f16", Type::kF16, 2}, {"bf16", Type::kBF16, 2},
    {"f32", Type::kF32, 4},   {"f64", Type::kF64, 8},
};

int SizeOf(Type type) {
  return std::find_if(std::begin(kTypes), std::end(kTypes),
                      [&](const TypeInfo& info) { return info.type == type; })
      ->bytes;
}

bool IsSigned(Type type) {
  return type == Type::kS8 || type == Type::kS16 || type == Type::kS32 || type == Type::kS64;
}

// Calls visit(T()) for the integers (numbers) that the type is read as; null if it is none.
template <typename Visit>
Handler VisitInteger(Type type, const Visit& visit) {
  switch (type) {
    case Type::kB8:
    case Type::kU8:
      return visit(uint8_t());
    case Type::kB16:
    case Type::kU16:
      return visit(uint16_t());
    case Type::kB32:
    case Type::kU32:
      return visit(uint32_t());
    case Type::kB64:
    case Type::kU64:
      return visit(uint64_t());
    case Type::kS8:
      return visit(int8_t());
    case Type::kS16:
      return visit(int16_t());
    case Type::kS32:
      return visit(int32_t());
    case Type::kS64:
      return visit(int64_t());
    default:
      return nullptr;
  }
}

template <typename Visit>
Handler VisitFloat(Type type, const Visit& visit) {
  if (type == Type::kF32) return visit(float());
  if (type == Type::kF64) return visit(double());
  return nullptr;
}

template <typename Visit>
Handler VisitNumber(Type type, const Visit& visit) {
  const Handler handler = VisitInteger(type, visit);
  return handler != nullptr ? handler : VisitFloat(type, visit);
}

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
void ApproximateRcp(Warp& warp, const Instruction& it) {
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

uint32_t Combine(Combination combination, uint32_t a, uint32_t b) {
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

void Select(Warp& warp, const Instruction& it) {
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
void NotPredicate(Warp& warp, const Instruction& it) {
  warp.WritePredicate(it.operands[0], ~warp.ReadPredicate(it, 1));
}
void MovePredicate(Warp& warp, const Instruction& it) {
  warp.WritePredicate(it.operands[0], warp.ReadPredicate(it, 1));
}

// to, parts: from the lowest bits up. And the other way round.
void Pack(Warp& warp, const Instruction& it) {
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
void Unpack(Warp& warp, const Instruction& it) {
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

template <typename To, typename From>
void ConvertInteger(Warp& warp, const Instruction& it) {
  Lanes& to = warp.lanes(it.operands[0]);
  const Lanes& from = warp.lanes(it.operands[1]);
  ForLanes(warp, to, [&](int lane) {
    const From value = FromBits<From>(from[lane]);
    To result = static_cast<To>(value);
    if (it.saturates) {
      using Wide = __int128;
      result = static_cast<To>(
          std::clamp<Wide>(value, std::numeric_limits<To>::min(), std::numeric_limits<To>::max()));
    }
    // Into a wider register by the sign of the source's type, as hardware extends it.
    if constexpr (std::is_signed_v<To>) return static_cast<uint64_t>(int64_t{result});
    return ToBits(result);
  });
}

template <typename To, typename From>
void ConvertToInteger(Warp& warp, const Instruction& it) {
  Lanes& to = warp.lanes(it.operands[0]);
  const Lanes& from = warp.lanes(it.operands[1]);
  ForLanes(warp, to, [&](int lane) {
    From value = FromBits<From>(from[lane]);
    if constexpr (std::is_same_v<From, float>) {
      if (it.flushes_to_zero) value = FlushToZero(value);
    }
    // Into a wider register by its sign.
    const To result = ToInteger<To>(value, it.rounding);
    if constexpr (std::is_signed_v<To>) return static_cast<uint64_t>(int64_t{result});
    return ToBits(result);
  });
}

template <typename To, typename From>
void ConvertFromInteger(Warp& warp, const Instruction& it) {
  Lanes& to = warp.lanes(it.operands[0]);
  const Lanes& from = warp.lanes(it.operands[1]);
  const HostRounding rounding(it.rounding);
  ForLanes(warp, to,
           [&](int lane) { return ToBits<To>(static_cast<To>(FromBits<From>(from[lane]))); });
}

// Floating-point types, by their bits.
struct HalfFormat {
  static float Read(uint64_t bits) { return HalfToFloat(static_cast<uint16_t>(bits)); }
  static uint64_t Write(float value, Rounding rounding) { return FloatToHalf(value, rounding); }
};
struct BFloat16Format {
  static float Read(uint64_t bits) { return BFloat16ToFloat(static_cast<uint16_t>(bits)); }
  static uint64_t Write(float value, Rounding rounding) { return FloatToBFloat16(value, rounding); }
};
template <typename T>
struct HostFormat {
  static T Read(uint64_t bits) { return FromBits<T>(bits); }
  template <typename From>
  static uint64_t Write(From value, Rounding) {
    return ToBits<T>(Canonical(static_cast<T>(value)));
  }
};

template <typename To, typename From>
void ConvertFloat(Warp& warp, const Instruction& it) {
  Lanes& to = warp.lanes(it.operands[0]);
  const Lanes& from = warp.lanes(it.operands[1]);
  const HostRounding rounding(it.rounding);
  ForLanes(warp, to, [&](int lane) {
    auto value = From::Read(from[lane]);
    if constexpr (std::is_same_v<decltype(value), float>) {
      if (it.flushes_to_zero) value = FlushToZero(value);
    }
    return To::Write(value, it.rounding);
  });
}

template <typename T>
void RoundToInteger(Warp& warp, const Instruction& it) {
  Lanes& to = warp.lanes(it.operands[0]);
  const Lanes& from = warp.lanes(it.operands[1]);
  ForLanes(warp, to, [&](int lane) {
    const T value = FromBits<T>(from[lane]);
    switch (it.rounding) {
      case Rounding::kZero:
        return ToBits(Canonical(std::trunc(value)));
      case Rounding::kDown:
        return ToBits(Canonical(std::floor(value)));
      case Rounding::kUp:
        return ToBits(Canonical(std::ceil(value)));
      default:
        return ToBits(Canonical(std::nearbyint(value)));
    }
  });
}

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

enum class VoteMode : uint8_t { kAll, kAny, kUni };

template <VoteMode kMode>
void Vote(Warp& warp, const Instruction& it) {
  const uint32_t votes = warp.ReadPredicate(it, 1) & warp.active();
  bool is_so = votes == warp.active();
  if (kMode == VoteMode::kAny) is_so = votes != 0;
  if (kMode == VoteMode::kUni) is_so = is_so || votes == 0;
  warp.WritePredicate(it.operands[0], is_so ? ~uint32_t{0} : 0);
}

void Ballot(Warp& warp, const Instruction& it) {
  Lanes& to = warp.lanes(it.operands[0]);
  const uint32_t votes = warp.ReadPredicate(it, 1) & warp.active();
  ForLanes(warp, to, [&](int) { return uint64_t{votes}; });
}

void PassWarpBarrier(Warp& warp, const Instruction&) { warp.Meet(); }

// The parts of a mnemonic between its dots, which are taken out one by one.
class Parts {
 public:
  explicit Parts(absl::string_view mnemonic) : parts_(absl::StrSplit(mnemonic, '.')) {
    base_ = parts_.front();
    parts_.erase(parts_.begin());
  }

  absl::string_view base() const { return base_; }
  bool Take(absl::string_view part) {
    const auto found = std::find(parts_.begin(), parts_.end(), part);
    if (found == parts_.end()) return false;
    parts_.erase(found);
    return true;
  }
  // The first type that is left.
  std::optional<Type> TakeType() {
    for (auto part = parts_.begin(); part != parts_.end(); ++part) {
      for (const TypeInfo& info : kTypes) {
        if (*part != info.name) continue;
        parts_.erase(part);
        return info.type;
      }
    }
    return std::nullopt;
  }
  // Names in order of the enumerators.
  template <typename E, size_t kCount>
  std::optional<E> TakeOneOf(const std::array<absl::string_view, kCount>& names) {
    for (size_t i = 0; i < kCount; ++i) {
      if (Take(names[i])) return static_cast<E>(i);
    }
    return std::nullopt;
  }
  const std::vector<std::string>& left() const { return parts_; }

 private:
  std::string base_;
  std::vector<std::string> parts_;
};

using enum OperandKind;

// What a decoder knows of an instruction: null run and no control, it is unknown.
struct Decoder {
  Parts& parts;
  MovShape shape;
  int pieces;
  Decoded out = {};

  Instruction& it() { return out.instruction; }

  void Is(Handler run, std::vector<OperandKind> operands) {
    it().run = run;
    out.operands = std::move(operands);
  }

  template <typename Op, int kSources>
  void Float(Type type) {
    it().rounding = TakeRounding();
    if (type == Type::kF32) {
      it().flushes_to_zero = parts.Take("ftz");
      it().saturates = parts.Take("sat");
    }
    Is(VisitFloat(type, [](auto t) -> Handler { return MapFloat<Op, decltype(t), kSources>; }),
       std::vector<OperandKind>(1 + kSources, kSource));
    out.operands[0] = kDestination;
  }
  template <typename Op>
  void IntegerUnary(Type type) {
    Is(VisitInteger(type, [](auto t) -> Handler { return Map<Op, decltype(t), decltype(t)>; }),
       {kDestination, kSource});
  }
  template <typename Op>
  void Unary(Type type) {
    if (type == Type::kF32 || type == Type::kF64) return Float<Op, 1>(type);
    IntegerUnary<Op>(type);
  }
  template <typename Op>
  void IntegerBinary(Type type) {
    Is(VisitInteger(
           type, [](auto t) -> Handler { return Map<Op, decltype(t), decltype(t), decltype(t)>; }),
       {kDestination, kSource, kSource});
  }
  template <typename Op>
  void Binary(Type type) {
    if (type == Type::kF32 || type == Type::kF64) return Float<Op, 2>(type);
    IntegerBinary<Op>(type);
  }
  template <typename Op>
  void IntegerTernary(Type type) {
    Is(VisitInteger(type,
                    [](auto t) -> Handler {
                      using T = decltype(t);
                      return Map<Op, T, T, T, T>;
                    }),
       {kDestination, kSource, kSource, kSource});
  }
  template <typename Op>
  void Division(Type type) {
    Is(VisitInteger(type, [](auto t) -> Handler { return MapDivision<Op, decltype(t)>; }),
       {kDestination, kSource, kSource});
  }
  template <typename Op>
  void Logic(Type type) {
    if (type == Type::kPred) {
      Is(MapPredicates<Op>, {kDestinationPredicate, kSourcePredicate, kSourcePredicate});
    } else {
      IntegerBinary<Op>(type);
    }
  }
  template <typename Op>
  void Shift(Type type) {
    Is(VisitInteger(type,
                    [](auto t) -> Handler {
                      using T = decltype(t);
                      return Map<Op, T, T, uint32_t>;
                    }),
       {kDestination, kSource, kSource});
  }
  template <typename Op>
  void Count(Type type) {
    if (type == Type::kB32) Is(Map<Op, uint32_t, uint32_t>, {kDestination, kSource});
    if (type == Type::kB64) Is(Map<Op, uint32_t, uint64_t>, {kDestination, kSource});
  }

  Rounding TakeRounding() {
    return parts.TakeOneOf<Rounding>(std::array<absl::string_view, 4>{"rn", "rz", "rm", "rp"})
        .value_or(Rounding::kNearest);
  }

  void SetPredicateOf(Type type) {
    const auto comparison = parts.TakeOneOf<Comparison>(
        std::array<absl::string_view, 14>{"eq", "ne", "lt", "le", "gt", "ge", "equ", "neu", "ltu",
                                          "leu", "gtu", "geu", "num", "nan"});
    // Of unsigned integers: lower, lower or same, higher, higher or same.
    const auto unsigned_comparison =
        parts.TakeOneOf<int>(std::array<absl::string_view, 4>{"lo", "ls", "hi", "hs"});
    if (!comparison.has_value() && !unsigned_comparison.has_value()) return;
    it().comparison = comparison.value_or(static_cast<Comparison>(
        static_cast<int>(Comparison::kLt) + unsigned_comparison.value_or(0)));
    // "and" before a type is a combination; lo to hs are kLt to kGe.
    const auto combination =
        parts.TakeOneOf<int>(std::array<absl::string_view, 3>{"and", "or", "xor"});
    if (combination.has_value()) it().combination = static_cast<Combination>(*combination + 1);
    it().flushes_to_zero = parts.Take("ftz");
    Is(VisitNumber(type, [](auto t) -> Handler { return SetPredicate<decltype(t)>; }),
       {kTwoPredicates, kSource, kSource});
    if (combination.has_value()) out.operands.push_back(kSourcePredicate);
  }

  void Access(bool loads, Type type) {
    if (type == Type::kPred) return;
    it().space = parts
                     .TakeOneOf<Space>(std::array<absl::string_view, 5>{
                         "generic", "param", "global", "shared", "local"})
                     .value_or(Space::kGeneric);
    if (parts.Take("const")) it().space = Space::kGlobal;
    parts.Take("weak");
    for (const absl::string_view order : {"volatile", "relaxed", "acquire", "release"}) {
      if (parts.Take(order)) it().is_synchronizing = true;
    }
    // Of caches, and of who sees it.
    for (const absl::string_view hint :
         {"nc", "ca", "cg", "cs", "cv", "lu", "wb", "wt", "cta", "cluster", "gpu", "sys"}) {
      parts.Take(hint);
    }
    it().elements = 1;
    if (parts.Take("v2")) it().elements = 2;
    if (parts.Take("v4")) it().elements = 4;
    it().element_bytes = static_cast<uint8_t>(SizeOf(type));
    (loads ? it().is_load : it().is_store) = true;
    if (loads) {
      Is(IsSigned(type) ? LoadSigned : LoadUnsigned, {kDestinationVector, kAddress});
    } else {
      Is(Store, {kAddress, kSourceVector});
    }
  }

  void Move(Type type) {
    if (type == Type::kPred) return Is(MovePredicate, {kDestinationPredicate, kSourcePredicate});
    if (shape == MovShape::kPlain) {
      return Is(VisitInteger(
                    // A move of bits, whatever they mean.
                    SizeOf(type) == 8   ? Type::kB64
                    : SizeOf(type) == 4 ? Type::kB32
                                        : Type::kB16,
                    [](auto t) -> Handler { return Map<CopyOp, decltype(t), decltype(t)>; }),
                {kDestination, kSource});
    }
    if (pieces < 2 || pieces > 4 || SizeOf(type) % pieces != 0) return;
    it().elements = static_cast<uint8_t>(pieces);
    it().element_bytes = static_cast<uint8_t>(SizeOf(type) / pieces);
    if (shape == MovShape::kPack) return Is(Pack, {kDestination, kSourceVector});
    Is(Unpack, {kDestinationVector, kSource});
  }

  template <typename To>
  Handler ConvertFloatTo(Type from) {
    if (from == Type::kF16) return ConvertFloat<To, HalfFormat>;
    if (from == Type::kBF16) return ConvertFloat<To, BFloat16Format>;
    if (from == Type::kF32) return ConvertFloat<To, HostFormat<float>>;
    return nullptr;
  }

  void Convert(Type to, Type from) {
    const auto is_float = [](Type type) { return type >= Type::kF16; };
    const auto to_integer =
        parts.TakeOneOf<Rounding>(std::array<absl::string_view, 4>{"rni", "rzi", "rmi", "rpi"});
    it().rounding = to_integer.has_value() ? *to_integer : TakeRounding();
    if (!is_float(to) && !is_float(from)) it().saturates = parts.Take("sat");
    if (from == Type::kF32 && to != Type::kF32) it().flushes_to_zero = parts.Take("ftz");
    Handler run = nullptr;
    if (!is_float(to) && !is_float(from)) {
      run = VisitInteger(to, [&](auto t) -> Handler {
        return VisitInteger(
            from, [](auto f) -> Handler { return ConvertInteger<decltype(t), decltype(f)>; });
      });
    } else if (!is_float(to) && to_integer.has_value()) {
      run = VisitInteger(to, [&](auto t) -> Handler {
        return VisitFloat(
            from, [](auto f) -> Handler { return ConvertToInteger<decltype(t), decltype(f)>; });
      });
    } else if (is_float(to) && !is_float(from)) {
      run = VisitFloat(to, [&](auto t) -> Handler {
        return VisitInteger(
            from, [](auto f) -> Handler { return ConvertFromInteger<decltype(t), decltype(f)>; });
      });
    } else if (to == from && to_integer.has_value()) {
      run = VisitFloat(to, [](auto t) -> Handler { return RoundToInteger<decltype(t)>; });
    } else if (to == Type::kF16) {
      run = ConvertFloatTo<HalfFormat>(from);
    } else if (to == Type::kBF16) {
      run = ConvertFloatTo<BFloat16Format>(from);
    } else if (to == Type::kF32) {
      run = from == Type::kF64 ? ConvertFloat<HostFormat<float>, HostFormat<double>>
                               : ConvertFloatTo<HostFormat<float>>(from);
    } else if (to == Type::kF64) {
      run = ConvertFloatTo<HostFormat<double>>(from);
    }
    Is(run, {kDestination, kSource});
  }

  void ConvertAddress(Type) {
    const bool to_space = parts.Take("to");
    const auto space = parts.TakeOneOf<Space>(
        std::array<absl::string_view, 5>{"generic", "param", "global", "shared", "local"});
    if (parts.Take("const")) it().space = Space::kGlobal;
    if (space.has_value()) it().space = *space;
    Is(to_space ? FromGeneric : ToGeneric, {kDestination, kSource});
  }

  void WaitsForLanes(Handler run, std::vector<OperandKind> operands, int lane_mask) {
    it().control = Control::kWarpBarrier;
    it().lane_mask = static_cast<uint8_t>(lane_mask);
    Is(run, std::move(operands));
  }

  void ShuffleOf() {
    const std::vector<OperandKind> operands = {kDestinationAndPredicate, kSource, kSource, kSource,
                                               kSource};
    if (parts.Take("up")) WaitsForLanes(Shuffle<ShuffleMode::kUp>, operands, 5);
    if (parts.Take("down")) WaitsForLanes(Shuffle<ShuffleMode::kDown>, operands, 5);
    if (parts.Take("bfly")) WaitsForLanes(Shuffle<ShuffleMode::kBfly>, operands, 5);
    if (parts.Take("idx")) WaitsForLanes(Shuffle<ShuffleMode::kIdx>, operands, 5);
  }

  void VoteOf() {
    const std::vector<OperandKind> operands = {kDestinationPredicate, kSourcePredicate, kSource};
    if (parts.Take("all")) WaitsForLanes(Vote<VoteMode::kAll>, operands, 2);
    if (parts.Take("any")) WaitsForLanes(Vote<VoteMode::kAny>, operands, 2);
    if (parts.Take("uni")) WaitsForLanes(Vote<VoteMode::kUni>, operands, 2);
    if (parts.Take("ballot")) {
      WaitsForLanes(Ballot, {kDestination, kSourcePredicate, kSource}, 2);
    }
  }

  // Names of instructions that take a type.
  void DecodeTyped(absl::string_view base, Type type) {
    if (base == "add") return Binary<AddOp>(type);
    if (base == "sub") return Binary<SubOp>(type);
    if (base == "mul" || base == "mad") {
      const bool adds = base == "mad";
      if (type == Type::kF32 || type == Type::kF64) {
        return adds ? Float<FmaOp, 3>(type) : Float<MulOp, 2>(type);
      }
      if (parts.Take("lo")) return adds ? IntegerTernary<MadOp>(type) : IntegerBinary<MulOp>(type);
      if (parts.Take("hi")) {
        return adds ? IntegerTernary<MadHighOp>(type) : IntegerBinary<MulHighOp>(type);
      }
      if (parts.Take("wide")) return MultiplyWide(type, adds);
      return;
    }
    if (base == "fma") return Float<FmaOp, 3>(type);
    if (base == "div") {
      if (type == Type::kF32 || type == Type::kF64) return Float<DivOp, 2>(type);
      return Division<DivOp>(type);
    }
    if (base == "rem") return Division<RemOp>(type);
    if (base == "min") return Binary<MinOp>(type);
    if (base == "max") return Binary<MaxOp>(type);
    if (base == "abs") return Unary<AbsOp>(type);
    if (base == "neg") return Unary<NegOp>(type);
    if (base == "sqrt") return Float<SqrtOp, 1>(type);
    if (base == "rcp") {
      if (type == Type::kF64 && parts.Take("approx") && parts.Take("ftz")) {
        return Is(ApproximateRcp, {kDestination, kSource});
      }
      return Float<RcpOp, 1>(type);
    }
    if (base == "and") return Logic<AndOp>(type);
    if (base == "or") return Logic<OrOp>(type);
    if (base == "xor") return Logic<XorOp>(type);
    if (base == "not") {
      if (type == Type::kPred) return Is(NotPredicate, {kDestinationPredicate, kSourcePredicate});
      return IntegerUnary<NotOp>(type);
    }
    if (base == "shl") return Shift<ShlOp>(type);
    if (base == "shr") return Shift<ShrOp>(type);
    if (base == "popc") return Count<PopcOp>(type);
    if (base == "clz") return Count<ClzOp>(type);
    if (base == "prmt" && type == Type::kB32) {
      return Is(Map<PermuteOp, uint32_t, uint32_t, uint32_t, uint32_t>,
                {kDestination, kSource, kSource, kSource});
    }
    if (base == "setp") return SetPredicateOf(type);
    if (base == "selp") return Is(Select, {kDestination, kSource, kSource, kSourcePredicate});
    if (base == "mov") return Move(type);
    if (base == "ld") return Access(/*loads=*/true, type);
    if (base == "st") return Access(/*loads=*/false, type);
    if (base == "cvta") return ConvertAddress(type);
    if (base == "cvt") {
      const std::optional<Type> from = parts.TakeType();
      if (from.has_value()) Convert(type, *from);
      return;
    }
    if (base == "shfl" && parts.Take("sync")) return ShuffleOf();
    if (base == "vote" && parts.Take("sync")) return VoteOf();
  }

  void MultiplyWide(Type type, bool adds) {
    if (adds) return;  // not needed yet
    Handler run = nullptr;
    if (type == Type::kU16) run = Map<MulWideOp, uint32_t, uint16_t, uint16_t>;
    if (type == Type::kS16) run = Map<MulWideOp, int32_t, int16_t, int16_t>;
    if (type == Type::kU32) run = Map<MulWideOp, uint64_t, uint32_t, uint32_t>;
    if (type == Type::kS32) run = Map<MulWideOp, int64_t, int32_t, int32_t>;
    Is(run, {kDestination, kSource, kSource});
  }

  void DecodeUntyped(absl::string_view base) {
    if (base == "bra") {
      parts.Take("uni");
      it().control = Control::kBranch;
      out.operands = {kLabel};
    } else if (base == "ret" || base == "exit") {
      parts.Take("uni");
      it().control = Control::kExit;
    } else if (base == "bar" && parts.Take("warp") && parts.Take("sync")) {
      WaitsForLanes(PassWarpBarrier, {kSource}, 0);
      it().is_memory_barrier = true;
    } else if ((base == "bar" || base == "barrier") && (parts.Take("cta"), parts.Take("sync"))) {
      parts.Take("aligned");
      it().control = Control::kBlockBarrier;
      out.operands = {kBarrierZero};
    }
  }
};

}  // namespace

absl::StatusOr<Decoded> Decode(absl::string_view mnemonic, MovShape shape, int pieces) {
  Parts parts(mnemonic);
  Decoder decoder = {parts, shape, pieces};
  const std::optional<Type> type = parts.TakeType();
  if (type.has_value()) {
    decoder.DecodeTyped(parts.base(), *type);
  } else {
    decoder.DecodeUntyped(parts.base());
  }
  const Instruction& it = decoder.it();
  if (it.run == nullptr && it.control == Control::kNone) {
    return absl::UnimplementedError(absl::StrCat("the emulator does not know ", mnemonic));
  }
  if (!parts.left().empty()) {
    return absl::UnimplementedError(
        absl::StrCat("the emulator does not know .", parts.left().front(), " of ", mnemonic));
  }
  return std::move(decoder.out);
}

}  // namespace brigade::emulator
