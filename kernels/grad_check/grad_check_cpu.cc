// Sum of squares and finiteness of a list on the CPU: reads each gradient once, 4 or 2 bytes an
// element.
//
// To keep up with memory at 2 bytes an element a core has to add five squares in double per cycle.
// Loops for the compiler's vectoriser reached 0.3 to 0.7 of that for 16-bit types, so this kernel
// is written with Highway. foreach_target.h includes this file again for each instruction set.

#include "brigade/kernels/grad_check/grad_check_cpu.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "brigade/kernels/grad_check/grad_check_math.h"
#include "brigade/kernels/simd.h"
#include "brigade/precision/float16.h"

// TargetIndex chooses none of these x86 targets. The vectors of SVE have no size that the compiler
// knows, so there are no arrays of them: Arm has NEON here.
#define HWY_DISABLED_TARGETS \
  (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/grad_check/grad_check_cpu.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace brigade::kernels {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using Sums = hn::ScalableTag<double>;
using Floats = hn::Rebind<float, Sums>;

constexpr int kVectors = 4;  // that are added side by side: enough to hide the addition

// In how many parts of equal length the lanes lie: part p has the elements with index mod kParts ==
// p.
template <typename Grad>
constexpr int kParts = std::is_same_v<Grad, precision::BFloat16> ? 4 : 1;

// LoadWide loads kVectors vectors of gradients, widened to double, in the order of their lanes'
// places; or their magnitudes.

HWY_INLINE void LoadWide(const float* from, hn::Vec<Sums> (&to)[kVectors]) {
  for (int k = 0; k < kVectors; ++k) {
    to[k] = hn::PromoteTo(Sums(), hn::LoadU(Floats(), from + k * hn::Lanes(Sums())));
  }
}

HWY_INLINE void LoadWide(const precision::Half* from, hn::Vec<Sums> (&to)[kVectors]) {
#if HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128 || (HWY_ARCH_X86 && HWY_TARGET > HWY_AVX2)
  // Without an instruction Highway widens infinity to 65536.
  HWY_ALIGN_MAX float floats[kVectors * hn::MaxLanes(Sums())];
  for (size_t i = 0; i < kVectors * hn::Lanes(Sums()); ++i) floats[i] = static_cast<float>(from[i]);
  LoadWide(floats, to);
#else
  const hn::Rebind<hwy::float16_t, Sums> halves;
  const auto* data = reinterpret_cast<const hwy::float16_t*>(from);
  for (int k = 0; k < kVectors; ++k) {
    const auto x = hn::LoadU(halves, data + k * hn::Lanes(Sums()));
    to[k] = hn::PromoteTo(Sums(), hn::PromoteTo(Floats(), x));
  }
#endif
}

// Exponent and fraction of a bfloat16, moved to where a double has them, are its magnitude times
// 2^(127 - 1023), also below the normal numbers; infinity and NaN become 2^128 and more, whose
// square MayOverflow sees. A word of four gives four vectors by shifts, without the permutations of
// a conversion.
HWY_INLINE void LoadWide(const precision::BFloat16* from, hn::Vec<Sums> (&to)[kVectors]) {
  const hn::ScalableTag<uint64_t> words;
  const auto four = hn::LoadU(words, reinterpret_cast<const uint64_t*>(from));
  const auto widen = [&](auto moved) HWY_ATTR {
    const auto magnitude = hn::And(moved, hn::Set(words, uint64_t{0x7fff} << 45));
    return hn::Mul(hn::BitCast(Sums(), magnitude), hn::Set(Sums(), 0x1p896));
  };
  to[0] = widen(hn::ShiftLeft<45>(four));
  to[1] = widen(hn::ShiftLeft<29>(four));
  to[2] = widen(hn::ShiftLeft<13>(four));
  to[3] = widen(hn::ShiftRight<3>(four));
}

// Copies `count` gradients and then zeros up to `length`, a multiple of a vector. The variable
// length of a memcpy costs a list of small tensors 4 % of its speed.
template <typename Grad>
HWY_INLINE void CopyPadded(const Grad* from, int64_t count, int64_t length, Grad* HWY_RESTRICT to) {
#if HWY_TARGET == HWY_AVX3
  using Bits = std::conditional_t<sizeof(Grad) == 2, uint16_t, uint32_t>;
  const hn::ScalableTag<Bits> bits;
  const auto* const source = reinterpret_cast<const Bits*>(from);
  for (int64_t i = 0; i < length; i += hn::Lanes(bits)) {
    const auto some = hn::FirstN(bits, std::max<int64_t>(count - i, 0));
    hn::Store(hn::MaskedLoad(some, bits, source + i), bits, reinterpret_cast<Bits*>(to) + i);
  }
#else
  std::memset(to, 0, length * sizeof(Grad));
  std::memcpy(to, from, count * sizeof(Grad));
#endif
}

// Adds the squares of the first `columns` gradients of kRows rows, one row after the other, to
// their lanes' sums. `columns` is rounded up to a multiple of kVectors vectors.
template <int kRows, typename Grad>
HWY_INLINE void AddRows(const Grad* HWY_RESTRICT grad, int64_t columns,
                        double* HWY_RESTRICT lanes) {
  const Sums d;
  const int64_t length = hn::Lanes(d);
  constexpr int kPart = kGradLanes / kParts<Grad>;
  constexpr int kPerPart = kVectors / kParts<Grad>;
  for (int64_t first = 0; first < columns; first += kVectors * length) {
    double* places[kVectors];
    hn::Vec<Sums> sums[kVectors];
    for (int k = 0; k < kVectors; ++k) {
      places[k] = lanes + k / kPerPart * kPart + first / kParts<Grad> + k % kPerPart * length;
      sums[k] = hn::Load(d, places[k]);
    }
    for (int row = 0; row < kRows; ++row) {
      hn::Vec<Sums> x[kVectors];
      LoadWide(grad + row * kGradLanes + first, x);
      // The square is exact: fused or not, this rounds once.
      for (int k = 0; k < kVectors; ++k) sums[k] = hn::MulAdd(x[k], x[k], sums[k]);
    }
    for (int k = 0; k < kVectors; ++k) hn::Store(sums[k], d, places[k]);
  }
}

// Reads in order, so that hardware prefetchers follow; the lanes' sums stay in the first-level
// cache. Two rows at a time halve the loads and stores of the sums.
template <typename Grad>
HWY_INLINE double SumTile(const Grad* HWY_RESTRICT grad, int64_t size) {
  const Sums d;
  const int64_t length = hn::Lanes(d);
  constexpr int kPart = kGradLanes / kParts<Grad>;
  const int64_t rows = size / kGradLanes;
  const int64_t rest = size % kGradLanes;
  // A list has many tensors of a few elements: what lies past them is left out of all that follows.
  int64_t columns = rows > 0 ? kGradLanes : kVectors * length;
  while (columns < rest) columns *= 2;
  HWY_ALIGN_MAX double lanes[kGradLanes];
  for (int64_t part = 0; part < kGradLanes; part += kPart) {
    for (int64_t j = 0; j < columns / kParts<Grad>; j += length) {
      hn::Store(hn::Zero(d), d, lanes + part + j);
    }
  }
  int64_t row = 0;
  for (; row + 2 <= rows; row += 2) AddRows<2>(grad + row * kGradLanes, kGradLanes, lanes);
  if (row < rows) AddRows<1>(grad + row * kGradLanes, kGradLanes, lanes);
  if (rest > 0) {
    // Past the end are zeros, whose squares change nothing.
    HWY_ALIGN_MAX Grad padded[kGradLanes];
    CopyPadded(grad + rows * kGradLanes, rest, columns, padded);
    AddRows<1>(padded, rest, lanes);
  }
  // The canonical tree has kGradLanes leaves; those past `columns` are zeros, which change nothing.
  for (int64_t part = 0; part < kGradLanes; part += kPart) {
    double* const sums = lanes + part;
    int64_t half = columns / kParts<Grad> / 2;
    for (; half >= length; half /= 2) {
      for (int64_t j = 0; j < half; j += length) {
        hn::Store(hn::Add(hn::Load(d, sums + j), hn::Load(d, sums + j + half)), d, sums + j);
      }
    }
    for (; half > 0; half /= 2) {
      for (int64_t j = 0; j < half; ++j) sums[j] += sums[j + half];
    }
  }
  double sum = lanes[0];
  if constexpr (kParts<Grad> == 4) {
    sum = (lanes[0] + lanes[2 * kPart]) + (lanes[kPart] + lanes[3 * kPart]);
  }

  if (MayOverflow(sum)) {
    for (int64_t j = 0; j < size; ++j) {
      if (Overflows(static_cast<float>(grad[j]))) return kTileOverflow;
    }
  }
  return sum;
}

// sums[t] is the sum of tile t.
template <typename Grad>
HWY_INLINE void SumTiles(const Grad* grad, int64_t size, double* sums) {
  for (int64_t i = 0; i < size; i += kGradTile) {
    *sums++ = SumTile(grad + i, std::min(kGradTile, size - i));
  }
}

void SumFloatTiles(const float* grad, int64_t size, double* sums) { SumTiles(grad, size, sums); }
void SumHalfTiles(const precision::Half* grad, int64_t size, double* sums) {
  SumTiles(grad, size, sums);
}
void SumBFloat16Tiles(const precision::BFloat16* grad, int64_t size, double* sums) {
  SumTiles(grad, size, sums);
}

}  // namespace HWY_NAMESPACE
}  // namespace brigade::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace brigade::kernels {

HWY_EXPORT(SumFloatTiles);
HWY_EXPORT(SumHalfTiles);
HWY_EXPORT(SumBFloat16Tiles);

namespace {

#ifdef __x86_64__
// The same choice as that of RunSimd (simd.h), rather than Highway's own of the best target, as an
// index into its tables.
size_t TargetIndex() {
  int64_t targets = HWY_SCALAR;
  switch (CurrentSimdTarget()) {
    case SimdTarget::kAvx512:
      targets |= HWY_AVX3;
      [[fallthrough]];
    case SimdTarget::kAvx2:
      targets |= HWY_AVX2;
      break;
    case SimdTarget::kSve:
    case SimdTarget::kBaseline:
      break;
  }
  hwy::ChosenTarget chosen;
  chosen.Update(targets);
  return chosen.GetIndex();
}
#define BRIGADE_DISPATCH(function) (*HWY_DISPATCH_TABLE(function)[TargetIndex()])
#else
#define BRIGADE_DISPATCH(function) HWY_DYNAMIC_DISPATCH(function)
#endif

void SumTiles(const float* grad, int64_t size, double* sums) {
  BRIGADE_DISPATCH(SumFloatTiles)(grad, size, sums);
}
void SumTiles(const precision::Half* grad, int64_t size, double* sums) {
  BRIGADE_DISPATCH(SumHalfTiles)(grad, size, sums);
}
void SumTiles(const precision::BFloat16* grad, int64_t size, double* sums) {
  BRIGADE_DISPATCH(SumBFloat16Tiles)(grad, size, sums);
}

#undef BRIGADE_DISPATCH

}  // namespace

GradStats GradCheckFinishCpu(const double* tile_sums, int64_t tiles) {
  double lanes[kGradLanes] = {};
  for (int64_t i = 0; i < tiles; ++i) lanes[i % kGradLanes] += tile_sums[i];
  for (int half = kGradLanes / 2; half > 0; half /= 2) {
    for (int j = 0; j < half; ++j) lanes[j] += lanes[j + half];
  }
  return StatsOf(lanes[0]);
}

template <typename Grad>
void GradTileSumsRange(const GradSegment& segment, int64_t begin, int64_t end, double* tile_sums) {
  SumTiles(static_cast<const Grad*>(segment.grad) + begin, end - begin,
           tile_sums + begin / kGradTile);
}

template void GradTileSumsRange<float>(const GradSegment&, int64_t, int64_t, double*);
template void GradTileSumsRange<precision::Half>(const GradSegment&, int64_t, int64_t, double*);
template void GradTileSumsRange<precision::BFloat16>(const GradSegment&, int64_t, int64_t, double*);

}  // namespace brigade::kernels
#endif  // HWY_ONCE
