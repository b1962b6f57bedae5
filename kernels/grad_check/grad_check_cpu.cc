// Sum of squares and finiteness of a list on the CPU: reads each gradient once, 4 or 2 bytes an
// element.
//
// To keep up with memory at 2 bytes an element a core has to add five squares in double per cycle.
// Loops for the compiler's vectoriser reached 0.3 to 0.7 of that for 16-bit types, so this kernel
// is written with Highway, and for AVX-512 in assembly (sum_squares_avx512.h). foreach_target.h
// includes this file again for each of the other instruction sets.

#include "brigade/kernels/grad_check/grad_check_cpu.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "brigade/kernels/grad_check/grad_check_math.h"
#include "brigade/kernels/grad_check/sum_squares_avx512.h"
#include "brigade/kernels/simd.h"
#include "brigade/precision/float16.h"

// TargetIndex chooses none of these x86 targets: SSSE3, SSE4, AVX-512 and what is above it. The
// vectors of SVE have no size that the compiler knows, so there are no arrays of them: Arm has NEON
// here.
#define HWY_DISABLED_TARGETS                                                             \
  (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3 | (HWY_AVX3 - 1) | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | \
   HWY_SVE2_128)

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

// Vectors that are loaded at a time, and vectors of sums that a pass over rows has in registers.
constexpr int kVectors = 4;

// In how many parts of equal length the lanes lie: part p has the elements with index mod kParts ==
// p.
template <typename Grad>
constexpr int kParts = std::is_same_v<Grad, precision::BFloat16>&& HWY_TARGET != HWY_SCALAR ? 2 : 1;

// LoadWide loads kVectors vectors of gradients, widened to double, in the order of their lanes'
// places.
#if HWY_TARGET == HWY_SCALAR

template <typename Grad>
HWY_INLINE void LoadWide(const Grad* from, hn::Vec<Sums> (&to)[kVectors]) {
  for (int k = 0; k < kVectors; ++k) to[k] = hn::Set(Sums(), static_cast<float>(from[k]));
}

#else

HWY_INLINE void LoadWide(const float* from, hn::Vec<Sums> (&to)[kVectors]) {
  for (int k = 0; k < kVectors; ++k) {
    to[k] = hn::PromoteTo(Sums(), hn::LoadU(Floats(), from + k * hn::Lanes(Sums())));
  }
}

HWY_INLINE void LoadWide(const precision::Half* from, hn::Vec<Sums> (&to)[kVectors]) {
#if HWY_TARGET == HWY_EMU128 || (HWY_ARCH_X86 && HWY_TARGET > HWY_AVX2)
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

// bfloat16 is the upper half of a float: a word of two gives one float by a shift, the other by a
// mask, which costs half of what unpacking does. First come the elements with even index, then the
// odd ones.
HWY_INLINE void LoadWide(const precision::BFloat16* from, hn::Vec<Sums> (&to)[kVectors]) {
  const hn::ScalableTag<uint32_t> words;
  const hn::RebindToFloat<decltype(words)> floats;
  const auto pair = hn::LoadU(words, reinterpret_cast<const uint32_t*>(from));
  const auto even = hn::BitCast(floats, hn::ShiftLeft<16>(pair));
  const auto odd = hn::BitCast(floats, hn::And(pair, hn::Set(words, 0xffff0000u)));
  to[0] = hn::PromoteTo(Sums(), hn::LowerHalf(even));
  to[1] = hn::PromoteTo(Sums(), hn::UpperHalf(Floats(), even));
  to[2] = hn::PromoteTo(Sums(), hn::LowerHalf(odd));
  to[3] = hn::PromoteTo(Sums(), hn::UpperHalf(Floats(), odd));
}

#endif  // HWY_TARGET == HWY_SCALAR

// Rows of a tile that each pass over some columns goes down before the next one. From float, whose
// rows are longest, a row at a time reads memory in order; for 16 bits the sums would be stored and
// loaded too often.
template <typename Grad>
constexpr int64_t kPassRows = sizeof(Grad) == 4 ? 1 : kGradTile / kGradLanes;

// How far ahead of what is summed memory is asked for, in bytes, in order, whatever order the
// passes take. Into the second-level cache: a core has few requests of the first level in flight,
// and asking for those reached half of the speed.
constexpr int64_t kAhead = 16384;

// Adds the squares of one pass's columns to `sums`: of `rows` rows, and of `rest` elements of one
// more.
template <typename Grad>
HWY_INLINE void SumColumns(const Grad* grad, int64_t rows, int64_t rest, const char*& ahead,
                           double* const (&sums)[kVectors], bool first) {
  const Sums d;
  hn::Vec<Sums> totals[kVectors];
  for (int k = 0; k < kVectors; ++k) totals[k] = first ? hn::Zero(d) : hn::Load(d, sums[k]);
  const auto add = [&](const Grad* from) HWY_ATTR {
    hn::Vec<Sums> x[kVectors];
    LoadWide(from, x);
    // The square is exact: fused or not, this rounds once.
    for (int k = 0; k < kVectors; ++k) totals[k] = hn::MulAdd(x[k], x[k], totals[k]);
  };
  const int64_t bytes = kVectors * hn::Lanes(d) * static_cast<int64_t>(sizeof(Grad));
  for (int64_t row = 0; row < rows; ++row, grad += kGradLanes, ahead += bytes) {
    for (int64_t line = 0; line < bytes; line += 64) {
      __builtin_prefetch(ahead + line, /*rw=*/0, /*locality=*/2);
    }
    add(grad);
  }
  if (rest > 0) {
    // Past the end are zeros, whose squares change nothing.
    HWY_ALIGN_MAX Grad padded[kVectors * hn::MaxLanes(d)] = {};
    std::memcpy(padded, grad, rest * sizeof(Grad));
    add(padded);
  }
  for (int k = 0; k < kVectors; ++k) hn::Store(totals[k], d, sums[k]);
}

// Adds the squares of a tile, pass by pass, to `lanes`, of which `columns` are in use.
template <typename Grad>
HWY_INLINE void SumPasses(const Grad* HWY_RESTRICT grad, int64_t size, int64_t columns,
                          double* HWY_RESTRICT lanes) {
  constexpr int kPart = kGradLanes / kParts<Grad>;
  constexpr int kPerPart = kVectors / kParts<Grad>;
  const int64_t length = hn::Lanes(Sums());
  const int64_t rows = size / kGradLanes;
  const int64_t rest = size % kGradLanes;
  const int64_t pass = kVectors * length;
  const char* ahead = reinterpret_cast<const char*>(grad) + kAhead;
  for (int64_t row = 0; row == 0 || row < rows; row += kPassRows<Grad>) {
    const int64_t pass_rows = std::min(kPassRows<Grad>, rows - row);
    const int64_t pass_rest = row + pass_rows == rows ? rest : 0;
    for (int64_t first = 0; first < columns; first += pass) {
      double* sums[kVectors];
      for (int k = 0; k < kVectors; ++k) {
        sums[k] = lanes + first / kParts<Grad> + k / kPerPart * kPart + (k % kPerPart) * length;
      }
      const int64_t left = pass_rest - first;
      SumColumns(grad + row * kGradLanes + first, pass_rows + (left >= pass),
                 left < pass ? left : 0, ahead, sums, row == 0);
    }
  }
}

// The sum of `count` lanes, a power of two, by halving: those of the canonical tree.
HWY_INLINE double SumLanes(double* lanes, int64_t count) {
  const Sums d;
  const int64_t length = hn::Lanes(d);
  int64_t half = count / 2;
  for (; half >= length; half /= 2) {
    for (int64_t j = 0; j < half; j += length) {
      hn::Store(hn::Add(hn::Load(d, lanes + j), hn::Load(d, lanes + j + half)), d, lanes + j);
    }
  }
  for (; half > 0; half /= 2) {
    for (int64_t j = 0; j < half; ++j) lanes[j] += lanes[j + half];
  }
  return lanes[0];
}

// The sum of the squares of a tile, in the canonical order.
template <typename Grad>
HWY_INLINE double SumSquares(const Grad* HWY_RESTRICT grad, int64_t size) {
  constexpr int kPart = kGradLanes / kParts<Grad>;
  HWY_ALIGN_MAX double lanes[kGradLanes];
  // A list has many tensors of a few elements. What lies past their lanes is zero and changes
  // nothing.
  int64_t columns = kVectors * hn::Lanes(Sums());
  while (columns < std::min<int64_t>(size, kGradLanes)) columns *= 2;
  SumPasses(grad, size, columns, lanes);
  double sum = SumLanes(lanes, columns / kParts<Grad>);
  if (kParts<Grad> == 2) sum += SumLanes(lanes + kPart, columns / kParts<Grad>);
  return sum;
}

double SumFloats(const float* grad, int64_t size) { return SumSquares(grad, size); }
double SumHalves(const precision::Half* grad, int64_t size) { return SumSquares(grad, size); }
double SumBFloat16s(const precision::BFloat16* grad, int64_t size) {
  return SumSquares(grad, size);
}

}  // namespace HWY_NAMESPACE
}  // namespace brigade::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace brigade::kernels {

HWY_EXPORT(SumFloats);
HWY_EXPORT(SumHalves);
HWY_EXPORT(SumBFloat16s);

namespace {

// Sums the squares of a tile.
template <typename Grad>
using SumFunction = double (*)(const Grad*, int64_t);

// The same choice as that of RunSimd (simd.h), rather than Highway's own of the best target, as an
// index into its tables.
#ifdef __x86_64__
size_t TargetIndex() {
  hwy::ChosenTarget chosen;
  chosen.Update(HWY_SCALAR | (CurrentSimdTarget() == SimdTarget::kAvx2 ? HWY_AVX2 : 0));
  return chosen.GetIndex();
}
#define BRIGADE_CHOOSE(Grad, function)                                                      \
  (CurrentSimdTarget() == SimdTarget::kAvx512 ? SumFunction<Grad>(avx512::SumSquares<Grad>) \
                                              : HWY_DISPATCH_TABLE(function)[TargetIndex()])
#else
#define BRIGADE_CHOOSE(Grad, function) &HWY_DYNAMIC_DISPATCH(function)
#endif

template <typename Grad>
SumFunction<Grad> ChooseSum() {
  if constexpr (std::is_same_v<Grad, float>) return BRIGADE_CHOOSE(Grad, SumFloats);
  if constexpr (std::is_same_v<Grad, precision::Half>) return BRIGADE_CHOOSE(Grad, SumHalves);
  if constexpr (std::is_same_v<Grad, precision::BFloat16>) {
    return BRIGADE_CHOOSE(Grad, SumBFloat16s);
  }
}

#undef BRIGADE_CHOOSE

template <typename Grad>
bool HasOverflow(const Grad* grad, int64_t size) {
  return std::any_of(grad, grad + size, [](Grad x) { return Overflows(static_cast<float>(x)); });
}

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
  const SumFunction<Grad> sum_squares = ChooseSum<Grad>();
  for (int64_t i = begin; i < end; i += kGradTile) {
    const Grad* const grad = static_cast<const Grad*>(segment.grad) + i;
    const int64_t size = std::min<int64_t>(kGradTile, end - i);
    const double sum = sum_squares(grad, size);
    tile_sums[i / kGradTile] = MayOverflow(sum) && HasOverflow(grad, size) ? kTileOverflow : sum;
  }
}

template void GradTileSumsRange<float>(const GradSegment&, int64_t, int64_t, double*);
template void GradTileSumsRange<precision::Half>(const GradSegment&, int64_t, int64_t, double*);
template void GradTileSumsRange<precision::BFloat16>(const GradSegment&, int64_t, int64_t, double*);

}  // namespace brigade::kernels
#endif  // HWY_ONCE
