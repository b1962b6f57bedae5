#ifndef BRIGADE_EMULATOR_PTX_CONVERT_OPS_H_
#define BRIGADE_EMULATOR_PTX_CONVERT_OPS_H_

// Handlers of cvt.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "brigade/emulator/ptx/arithmetic.h"
#include "brigade/emulator/ptx/lane_ops.h"
#include "brigade/emulator/ptx/module.h"
#include "brigade/emulator/ptx/warp.h"

namespace brigade::emulator {

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

}  // namespace brigade::emulator

#endif  // BRIGADE_EMULATOR_PTX_CONVERT_OPS_H_
