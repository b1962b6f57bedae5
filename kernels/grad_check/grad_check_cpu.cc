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

// Vectors that are loaded at a time, and how many such groups of sums a pass over rows carries in
// registers: a row has 8 groups on AVX-512, which float, whose loads need no others, keeps whole.
constexpr int kVectors = 4;
constexpr int kPassGroups = HWY_TARGET == HWY_AVX3 ? 4 : 1;
constexpr int kRowGroups = 8;
template <typename Grad>
constexpr int kMostGroups = HWY_TARGET == HWY_AVX3 && sizeof(Grad) == 4 ? kRowGroups : kPassGroups;

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

// Rows of a tile that each pass over some columns goes down before the next one. From float, whose
// rows are longest, a row at a time reads memory in order; for 16 bits the sums would be stored and
// loaded too often.
template <int kGroups, typename Grad>
constexpr int64_t kPassRows = kGroups < kRowGroups && sizeof(Grad) == 4 ? 1
                                                                        : kGradTile / kGradLanes;

// How far ahead of what is summed memory is asked for, in bytes, in order, whatever order the
// passes take. Into the second-level cache: a core has few requests of the first level in flight,
// and asking for those reached half of the speed. Where passes read whole rows the processor
// follows by itself, and a line of four is enough to lead it from page to page.
template <int kGroups>
constexpr int64_t kAhead = kGroups == kRowGroups ? 4096 : 16384;
template <int kGroups>
constexpr int64_t kPrefetchStep = kGroups == kRowGroups ? 256 : 64;

// Adds the squares of one pass's columns to `sums`: of `rows` rows, and of `rest` elements of one
// more.
template <int kGroups, typename Grad>
HWY_INLINE void SumColumns(const Grad* grad, int64_t rows, int64_t rest, const char*& ahead,
                           double* const (&sums)[kGroups][kVectors], bool first) {
  const Sums d;
  const int64_t group = kVectors * hn::Lanes(d);
  hn::Vec<Sums> totals[kGroups][kVectors];
  for (int g = 0; g < kGroups; ++g) {
    for (int k = 0; k < kVectors; ++k) totals[g][k] = first ? hn::Zero(d) : hn::Load(d, sums[g][k]);
  }
  const auto add = [&](const Grad* from) HWY_ATTR {
    for (int g = 0; g < kGroups; ++g) {
      hn::Vec<Sums> x[kVectors];
      LoadWide(from + g * group, x);
      // The square is exact: fused or not, this rounds once.
      for (int k = 0; k < kVectors; ++k) totals[g][k] = hn::MulAdd(x[k], x[k], totals[g][k]);
    }
  };
  const int64_t bytes = kGroups * group * static_cast<int64_t>(sizeof(Grad));
  for (int64_t row = 0; row < rows; ++row, grad += kGradLanes, ahead += bytes) {
    for (int64_t line = 0; line < bytes; line += kPrefetchStep<kGroups>) {
      __builtin_prefetch(ahead + line, /*rw=*/0, /*locality=*/2);
    }
    add(grad);
  }
  if (rest > 0) {
    // Past the end are zeros, whose squares change nothing.
    HWY_ALIGN_MAX Grad padded[kGradLanes];
    CopyPadded(grad, rest, kGroups * group, padded);
    add(padded);
  }
  for (int g = 0; g < kGroups; ++g) {
    for (int k = 0; k < kVectors; ++k) hn::Store(totals[g][k], d, sums[g][k]);
  }
}

// Adds the squares of a tile, pass by pass, to `lanes`, of which `columns` are in use.
template <int kGroups, typename Grad>
HWY_INLINE void SumPasses(const Grad* HWY_RESTRICT grad, int64_t size, int64_t columns,
                          double* HWY_RESTRICT lanes) {
  constexpr int kPart = kGradLanes / kParts<Grad>;
  const int64_t length = hn::Lanes(Sums());
  const int64_t rows = size / kGradLanes;
  const int64_t rest = size % kGradLanes;
  const int64_t pass = kGroups * kVectors * length;
  const char* ahead = reinterpret_cast<const char*>(grad) + kAhead<kGroups>;
  for (int64_t row = 0; row == 0 || row < rows; row += kPassRows<kGroups, Grad>) {
    const int64_t pass_rows = std::min(kPassRows<kGroups, Grad>, rows - row);
    const int64_t pass_rest = row + pass_rows == rows ? rest : 0;
    for (int64_t first = 0; first < columns; first += pass) {
      double* sums[kGroups][kVectors];
      for (int g = 0; g < kGroups; ++g) {
        constexpr int kPerPart = kVectors / kParts<Grad>;
        double* const group = lanes + (first + g * kVectors * length) / kParts<Grad>;
        for (int k = 0; k < kVectors; ++k) {
          sums[g][k] = group + k / kPerPart * kPart + (k % kPerPart) * length;
        }
      }
      const int64_t left = pass_rest - first;
      SumColumns<kGroups>(grad + row * kGradLanes + first, pass_rows + (left >= pass),
                          left < pass ? left : 0, ahead, sums, row == 0);
    }
  }
}

template <typename Grad>
HWY_INLINE double SumTile(const Grad* HWY_RESTRICT grad, int64_t size) {
  const Sums d;
  const int64_t length = hn::Lanes(d);
  constexpr int kPart = kGradLanes / kParts<Grad>;
  const bool has_rows = size >= kGradLanes;
  // A list has many tensors of a few elements: what lies past them is left out of all that follows.
  int64_t columns = has_rows ? kGradLanes : kPassGroups * kVectors * length;
  while (columns < size % kGradLanes) columns *= 2;
  HWY_ALIGN_MAX double lanes[kGradLanes];
  if (has_rows) {
    SumPasses<kMostGroups<Grad>>(grad, size, columns, lanes);
  } else {
    SumPasses<kPassGroups>(grad, size, columns, lanes);
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
  const double sum = kParts<Grad> == 1 ? lanes[0] : lanes[0] + lanes[kPart];

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
