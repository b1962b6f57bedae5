#ifndef BRIGADE_EMULATOR_PTX_HALF_OPS_H_
#define BRIGADE_EMULATOR_PTX_HALF_OPS_H_

// Handlers of arithmetic on fp16 and bf16, alone or two in a register.

#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "brigade/emulator/ptx/arithmetic.h"
#include "brigade/emulator/ptx/convert_ops.h"
#include "brigade/emulator/ptx/lane_ops.h"
#include "brigade/emulator/ptx/module.h"
#include "brigade/emulator/ptx/warp.h"

namespace brigade::emulator {

struct HalfAddOp {
  static float Run(float a, float b) { return FusedToOdd(a, 1, b); }
};
struct HalfSubOp {
  static float Run(float a, float b) { return FusedToOdd(b, -1, a); }
};
struct HalfMulOp {
  static float Run(float a, float b) { return FusedToOdd(a, b, -0.0f); }
};
struct HalfFmaOp {
  static float Run(float a, float b, float c) { return FusedToOdd(a, b, c); }
};

// Op::Run(sources) in each lane for each of the kParts numbers of its registers, rounded to the
// nearest of the format.
template <typename Op, typename Format, int kParts, int kSources>
void MapHalf(Warp& warp, const Instruction& it) {
  Lanes& to = warp.lanes(it.operands[0]);
  std::array<const Lanes*, kSources> from = {};
  for (size_t i = 0; i < kSources; ++i) from[i] = &warp.lanes(it.operands[1 + i]);
  ForLanes(warp, to, [&](int lane) {
    uint64_t result = 0;
    for (int part = 0; part < kParts; ++part) {
      const float value = [&]<size_t... kIndex>(std::index_sequence<kIndex...>) {
        return Op::Run(Format::Read((*from[kIndex])[lane] >> (16 * part) & 0xffff)...);
      }
      (std::make_index_sequence<kSources>());
      result |= Format::Write(value, Rounding::kNearest) << (16 * part);
    }
    return result;
  });
}

// d, a, b: two numbers of fp32 to one register, a in its upper half.
template <typename Format>
void ConvertPair(Warp& warp, const Instruction& it) {
  Lanes& to = warp.lanes(it.operands[0]);
  const Lanes& a = warp.lanes(it.operands[1]);
  const Lanes& b = warp.lanes(it.operands[2]);
  ForLanes(warp, to, [&](int lane) {
    return Format::Write(FromBits<float>(a[lane]), it.rounding) << 16 |
           Format::Write(FromBits<float>(b[lane]), it.rounding);
  });
}

}  // namespace brigade::emulator

#endif  // BRIGADE_EMULATOR_PTX_HALF_OPS_H_
