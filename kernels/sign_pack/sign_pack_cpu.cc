// Signs and their scale on the CPU: array and error are read twice, first for the norm, and the
// error is written, 20.1 bytes an element for fp32.

#include "brigade/kernels/sign_pack/sign_pack_cpu.h"

#include <algorithm>
#include <cstring>

#include "brigade/kernels/grad_check/grad_check_math.h"
#include "brigade/kernels/internal/cache_line.h"
#include "brigade/kernels/sign_pack/sign_lanes.h"
#include "brigade/kernels/simd.h"
#include "brigade/precision/float16.h"
#include "brigade/precision/rounding.h"

namespace brigade::kernels {
namespace {

// Elements that loops with lanes take at a time: two registers of the widest, and whole bytes of
// bits.
constexpr int64_t kStep = 32;

// AddErrors(lanes, array, error, sums, size), PackSteps(lanes, array, error, scale, bits, size) and
// UnpackSteps(lanes, messages, parameters, array, size), for multiples of kStep.
template <typename T>
BRIGADE_INLINE void AddErrors(NoLanes, const T* array, const float* error, float* sums,
                              int64_t size) {
  BRIGADE_SIMD_LOOP
  for (int64_t i = 0; i < size; ++i) sums[i] = WithError(array[i], error[i]);
}

template <bool kKeep, typename T>
BRIGADE_INLINE void PackSteps(NoLanes, const T* array, float* error, float scale, uint8_t* bits,
                              int64_t size) {
  for (int64_t step = 0; step < size; step += kStep) {
    float x[kStep];
    AddErrors(NoLanes(), array + step, error + step, x, kStep);
    uint32_t word = 0;
    for (int64_t i = 0; i < kStep; ++i) word |= static_cast<uint32_t>(IsNegative(x[i])) << i;
    std::memcpy(bits + step / 8, &word, sizeof(word));
    if constexpr (kKeep) continue;
    BRIGADE_SIMD_LOOP
    for (int64_t i = 0; i < kStep; ++i) error[step + i] = LeftOut(x[i], scale);
  }
}

// Message `rank` of several.
inline const char* MessageOf(const void* messages, const SignUnpackParameters& parameters,
                             int64_t rank) {
  return static_cast<const char*>(messages) + rank * parameters.stride;
}

inline float ScaleOf(const char* message) {
  float scale;
  std::memcpy(&scale, message, sizeof(scale));
  return scale;
}

// `first` is where the elements begin in the messages, a multiple of 8.
template <bool kPastCaches, typename T>
BRIGADE_INLINE void UnpackSteps(NoLanes, const void* messages, int64_t first,
                                const SignUnpackParameters& parameters, T* array, int64_t size) {
  for (int64_t step = 0; step < size; step += kStep) {
    float sums[kStep];
    for (int64_t rank = 0; rank < parameters.ranks; ++rank) {
      const char* const message = MessageOf(messages, parameters, rank);
      const float scale = ScaleOf(message);
      uint32_t word;
      std::memcpy(&word, message + kSignBitsBegin + (first + step) / 8, sizeof(word));
      BRIGADE_SIMD_LOOP
      for (int64_t i = 0; i < kStep; ++i) {
        const float value = SignValue(scale, (word >> i & 1) != 0);
        sums[i] = rank == 0 ? value : precision::Add(sums[i], value);
      }
    }
    BRIGADE_SIMD_LOOP
    for (int64_t i = 0; i < kStep; ++i) {
      array[step + i] = static_cast<T>(precision::Mul(sums[i], parameters.factor));
    }
  }
}

#ifdef __x86_64__
// The same with lanes. Macros, since a template cannot say for which instructions it is compiled.
#define BRIGADE_SIGN_STEPS(Signs, TARGET)                                                         \
  template <typename T>                                                                           \
  TARGET void AddErrors(Signs, const T* array, const float* error, float* sums, int64_t size) {   \
    using Lanes = typename Signs::Lanes;                                                          \
    constexpr int64_t kSize = Lanes::kSize;                                                       \
    for (int64_t i = 0; i < size; i += 2 * kSize) {                                               \
      const auto low = Lanes::Load(array + i) + Lanes::Load(error + i);                           \
      const auto high = Lanes::Load(array + i + kSize) + Lanes::Load(error + i + kSize);          \
      Lanes::template Store<false>(sums + i, low, high);                                          \
    }                                                                                             \
  }                                                                                               \
                                                                                                  \
  template <bool kKeep, typename T>                                                               \
  TARGET void PackSteps(Signs, const T* array, float* error, float scale, uint8_t* bits,          \
                        int64_t size) {                                                           \
    using Lanes = typename Signs::Lanes;                                                          \
    constexpr int64_t kSize = Lanes::kSize;                                                       \
    const auto plus = Lanes::Fill(scale), minus = Lanes::Fill(-scale);                            \
    for (int64_t i = 0; i < size; i += 2 * kSize) {                                               \
      typename Signs::Bits negative[2];                                                           \
      typename Lanes::Floats left[2];                                                             \
      for (int k = 0; k < 2; ++k) {                                                               \
        const auto x = Lanes::Load(array + i + k * kSize) + Lanes::Load(error + i + k * kSize);   \
        negative[k] = Signs::Negative(x);                                                         \
        left[k] = x - Signs::Choose(negative[k], plus, minus);                                    \
      }                                                                                           \
      std::memcpy(bits + i / 8, negative, sizeof(negative));                                      \
      if (!kKeep) Lanes::template Store<false>(error + i, left[0], left[1]);                      \
    }                                                                                             \
  }                                                                                               \
                                                                                                  \
  /* A rank's signs of two registers of elements, to or beside their sums. */                     \
  template <bool kFirst>                                                                          \
  TARGET __attribute__((always_inline)) inline void AddSigns(                                     \
      Signs, const char* message, int64_t byte, typename Signs::Lanes::Floats& low,               \
      typename Signs::Lanes::Floats& high) {                                                      \
    const float scale = ScaleOf(message);                                                         \
    const auto plus = Signs::Lanes::Fill(scale), minus = Signs::Lanes::Fill(-scale);              \
    /* One by one: g++ 12 loads an array of masks by way of memory. */                            \
    typename Signs::Bits negative;                                                                \
    std::memcpy(&negative, message + kSignBitsBegin + byte, sizeof(negative));                    \
    const auto first = Signs::Choose(negative, plus, minus);                                      \
    std::memcpy(&negative, message + kSignBitsBegin + byte + sizeof(negative), sizeof(negative)); \
    const auto second = Signs::Choose(negative, plus, minus);                                     \
    low = kFirst ? first : low + first;                                                           \
    high = kFirst ? second : high + second;                                                       \
  }                                                                                               \
                                                                                                  \
  template <bool kPastCaches, typename T>                                                         \
  TARGET void UnpackSteps(Signs signs, const void* messages, int64_t first,                       \
                          const SignUnpackParameters& parameters, T* array, int64_t size) {       \
    using Lanes = typename Signs::Lanes;                                                          \
    constexpr int64_t kSize = Lanes::kSize;                                                       \
    const auto factor = Lanes::Fill(parameters.factor);                                           \
    for (int64_t i = 0; i < size; i += 2 * kSize) {                                               \
      typename Lanes::Floats low, high;                                                           \
      const int64_t byte = (first + i) / 8;                                                       \
      AddSigns<true>(signs, MessageOf(messages, parameters, 0), byte, low, high);                 \
      for (int64_t rank = 1; rank < parameters.ranks; ++rank) {                                   \
        AddSigns<false>(signs, MessageOf(messages, parameters, rank), byte, low, high);           \
      }                                                                                           \
      Lanes::template Store<kPastCaches>(array + i, low * factor, high * factor);                 \
    }                                                                                             \
  }
BRIGADE_SIGN_STEPS(Avx512Signs, BRIGADE_TARGET_AVX512_LANES)
BRIGADE_SIGN_STEPS(Avx2Signs, BRIGADE_TARGET_AVX2_LANES)
#undef BRIGADE_SIGN_STEPS
#endif  // __x86_64__

// Calls run(lanes) with the lanes of the SIMD target.
template <typename Run>
void WithSigns(const Run& run) {
  RunSimdWithTag([&](auto simd) BRIGADE_SIMD_BODY { run(SignsOf<decltype(simd)::kValue>()); });
}

// The canonical sum of squares of a tile of grad_check's, of elements with their errors.
template <typename T>
double SumTile(const T* array, const float* error, int64_t size) {
  // Rows that stay in the first-level cache between the two loops.
  constexpr int64_t kRows = 4 * kGradLanes;
  alignas(64) double sums[kGradLanes] = {};
  alignas(64) float x[kRows];
  WithSigns([&](auto lanes) BRIGADE_SIMD_BODY {
    for (int64_t first = 0; first < size; first += kRows) {
      const int64_t length = std::min(kRows, size - first);
      const int64_t whole = length / kStep * kStep;
      AddErrors(lanes, array + first, error + first, x, whole);
      int64_t i = whole;
      for (; i < length; ++i) x[i] = WithError(array[first + i], error[first + i]);
      // The squares of zeros change nothing.
      for (; i % kGradLanes != 0; ++i) x[i] = 0.0f;
      for (int64_t row = 0; row < i; row += kGradLanes) {
        BRIGADE_SIMD_LOOP
        for (int64_t j = 0; j < kGradLanes; ++j) {
          // AddSquare without its fused instruction, which not every target has: a square is exact.
          const double wide = x[row + j];
          sums[j] = precision::Add(sums[j], precision::Mul(wide, wide));
        }
      }
    }
    for (int64_t half = kGradLanes / 2; half > 0; half /= 2) {
      for (int64_t j = 0; j < half; ++j) sums[j] = precision::Add(sums[j], sums[j + half]);
    }
  });
  if (MayOverflow(sums[0])) {
    for (int64_t i = 0; i < size; ++i) {
      if (Overflows(WithError(array[i], error[i]))) return kTileOverflow;
    }
  }
  return sums[0];
}

}  // namespace

template <typename T>
void SignTileSumsRange(const SignPackSegment& segment, int64_t begin, int64_t end,
                       double* tile_sums) {
  for (int64_t tile = begin; tile < end; tile += kGradTile) {
    tile_sums[tile / kGradTile] = SumTile(static_cast<const T*>(segment.array) + tile,
                                          segment.error + tile, std::min(kGradTile, end - tile));
  }
}

template <typename T>
void SignPackRange(const SignPackSegment& segment, float scale, int64_t begin, int64_t end) {
  char* const message = static_cast<char*>(segment.message);
  uint8_t* const bits = reinterpret_cast<uint8_t*>(message + kSignBitsBegin);
  if (begin == 0 && end > 0) {
    std::memset(message, 0, kSignBitsBegin);
    std::memcpy(message, &scale, sizeof(scale));
  }
  const T* const array = static_cast<const T*>(segment.array);
  const auto pack = [&](const T* from, float* error, uint8_t* to, int64_t size) {
    WithSigns([&](auto lanes) BRIGADE_SIMD_BODY {
      IsNumber(scale) ? PackSteps<false>(lanes, from, error, scale, to, size)
                      : PackSteps<true>(lanes, from, error, scale, to, size);
    });
  };
  const int64_t whole = begin + (end - begin) / kStep * kStep;
  pack(array + begin, segment.error + begin, bits + begin / 8, whole - begin);
  if (end != segment.size) return;
  std::memset(bits + whole / 8, 0, SignBytes(segment.size) - kSignBitsBegin - whole / 8);
  if (whole == end) return;
  T rest[kStep] = {};
  float rest_error[kStep] = {};
  std::copy(array + whole, array + end, rest);
  std::copy(segment.error + whole, segment.error + end, rest_error);
  pack(rest, rest_error, bits + whole / 8, kStep);
  std::copy(rest_error, rest_error + (end - whole), segment.error + whole);
}

template <typename T>
void SignUnpackRange(const SignUnpackSegment& segment, const SignUnpackParameters& parameters,
                     bool past_caches, int64_t begin, int64_t end) {
  T* const array = static_cast<T*>(segment.array);
  const int64_t whole = begin + (end - begin) / kStep * kStep;
  // Stores past the caches are of whole lines, so to such arrays alone.
  const bool streams = past_caches && ElementsToLine(array + begin) == 0;
  T rest[kStep];
  WithSigns([&](auto lanes) BRIGADE_SIMD_BODY {
    const void* const messages = segment.messages;
    streams ? UnpackSteps<true>(lanes, messages, begin, parameters, array + begin, whole - begin)
            : UnpackSteps<false>(lanes, messages, begin, parameters, array + begin, whole - begin);
    if (whole != end) UnpackSteps<false>(lanes, messages, whole, parameters, rest, kStep);
  });
  std::copy(rest, rest + (end - whole), array + whole);
}

#define BRIGADE_INSTANTIATE(T)                                                                  \
  template void SignTileSumsRange<T>(const SignPackSegment&, int64_t, int64_t, double*);        \
  template void SignPackRange<T>(const SignPackSegment&, float, int64_t, int64_t);              \
  template void SignUnpackRange<T>(const SignUnpackSegment&, const SignUnpackParameters&, bool, \
                                   int64_t, int64_t);
BRIGADE_INSTANTIATE(float)
BRIGADE_INSTANTIATE(precision::Half)
BRIGADE_INSTANTIATE(precision::BFloat16)
#undef BRIGADE_INSTANTIATE

}  // namespace brigade::kernels
