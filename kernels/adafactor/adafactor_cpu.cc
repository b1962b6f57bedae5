// Adafactor on the CPU. Sums of a matrix: the gradient and the parameter once, 8 bytes an element,
// eight rows of a tile at a time, whose columns' sums stay in the first-level cache; updates' sums
// the gradient once more; parameters another 12 bytes and the copy.

#include "brigade/kernels/adafactor/adafactor_cpu.h"

#include <algorithm>
#include <type_traits>

#include "brigade/kernels/adafactor/adafactor_lanes.h"
#include "brigade/kernels/cast/cast_elements.h"
#include "brigade/kernels/internal/halve_lanes.h"
#include "brigade/kernels/internal/lanes.h"
#include "brigade/kernels/simd.h"
#include "brigade/precision/float16.h"

namespace brigade::kernels {
namespace {

constexpr int kColumns = kAdafactorColumns;
// Tiles side by side that a thread takes row by row: as far as their lanes fit into the first-level
// cache, so that it reads whole kilobytes one after another.
constexpr int kPanel = 8;

// `size` elements of a gradient as floats: themselves, or in `buffer`.
template <typename Grad, typename Lanes>
BRIGADE_INLINE const float* Floats(Lanes lanes, const Grad* grad, int64_t size, float* buffer) {
  if constexpr (std::is_same_v<Grad, float>) {
    return grad;
  } else {
    CastElements<Write::kReplace>(lanes, grad, buffer, size, 1.0f);
    return buffer;
  }
}

// The rows of a strip of tiles, of a panel of its tiles: visit(row, which tile of the strip, offset
// of its first element in the tensor, how many it has).
template <typename Visit>
BRIGADE_INLINE void ForRows(const AdafactorGrid& g, int64_t strip, int64_t panel,
                            const Visit& visit) {
  const int64_t last_row = std::min((strip + 1) * kAdafactorRows, g.height);
  const int64_t last_tile = std::min(panel + kPanel, g.across);
  for (int64_t row = strip * kAdafactorRows; row < last_row; ++row) {
    for (int64_t tile = panel; tile < last_tile; ++tile) {
      const int64_t column = tile * kColumns, at = row * g.width + column;
      visit(row, tile, at, std::min({int64_t{kColumns}, g.width - column, g.size - at}));
    }
  }
}

BRIGADE_INLINE void AddSquares(const float* values, int64_t size, double* lanes) {
  BRIGADE_SIMD_LOOP_TO_DOUBLES
  for (int64_t l = 0; l < size; ++l) lanes[l] = AddAdafactorSquare(lanes[l], values[l]);
}

// Each tile's halved lanes.
BRIGADE_INLINE void SumLanes(const AdafactorGrid& g, int64_t strip, int64_t panel,
                             double (*lanes)[kColumns], double* sums) {
  for (int64_t tile = panel; tile < std::min(panel + kPanel, g.across); ++tile) {
    sums[strip * g.across + tile] = Halve(lanes[tile - panel]);
  }
}

// Of a panel of a matrix.
template <bool kHasParam, typename Grad, typename Lanes>
BRIGADE_INLINE void SumPanel(Lanes simd, const AdafactorTensor& t, const AdafactorGrid& g,
                             float multiplier, int64_t strip, int64_t panel) {
  const Grad* const grad = static_cast<const Grad*>(t.grad);
  // On the stack until the strip's end: what threads add to side by side in memory each fetches
  // ahead from the other's cache, and two took as long as one. A tile lies between both, so that
  // they are no multiple of 4096 bytes apart (LoadsFollowStores, cast_elements.h).
  alignas(64) double lanes[2 * kPanel + 1][kColumns];
  double(*const of_columns)[kColumns] = lanes;
  double(*const of_params)[kColumns] = lanes + kPanel + 1;
  const int64_t first = panel * kColumns;
  const int64_t tiles = std::min<int64_t>(kPanel, g.across - panel);
  std::fill_n(of_columns[0], tiles * kColumns, 0.0);
  std::fill_n(of_params[0], tiles * kColumns, 0.0);
  ForRows(g, strip, panel,
          [&](int64_t row, int64_t tile, int64_t at, int64_t size) BRIGADE_SIMD_BODY {
            double* const columns = of_columns[tile - panel];
            double& of_row = t.workspace[g.of_rows + row * g.across + tile];
#ifdef __x86_64__
            if constexpr (std::is_same_v<Lanes, Avx512Lanes>) {
              if (size == kColumns) {
                of_row = adafactor_internal::SumRow<kHasParam, Grad>(
                    {grad + at, kHasParam ? t.param + at : nullptr, multiplier, columns,
                     of_params[tile - panel]});
                return;
              }
            }
#endif
            alignas(64) float buffer[kColumns];
            alignas(64) double squares[kColumns];
            const float* const wide = Floats(simd, grad + at, size, buffer);
            // Of the loop's own, not of what the caller has.
            const float by = multiplier;
            // What a short tile does not have.
            if (size < kColumns) std::fill_n(squares, kColumns, 0.0);
            BRIGADE_SIMD_LOOP_TO_DOUBLES
            for (int64_t l = 0; l < size; ++l) {
              // A square of a float is exact: added, it is what an fma gives.
              const double square = AddAdafactorSquare(0.0, precision::Mul(wide[l], by));
              squares[l] = square;
              columns[l] = precision::Add(columns[l], square);
            }
            of_row = Halve(squares);
            if constexpr (kHasParam) AddSquares(t.param + at, size, of_params[tile - panel]);
          });
  std::copy_n(of_columns[0], std::min(tiles * kColumns, t.columns - first),
              t.workspace + g.of_columns + strip * t.columns + first);
  SumLanes(g, strip, panel, of_params, t.workspace);
}

// Of a tile of any other tensor: its factors and scales, too.
template <typename Grad, typename Lanes>
BRIGADE_INLINE void UpdateTile(Lanes simd, const AdafactorTensor& t, const AdafactorGrid& g,
                               const AdafactorCoefficients& c, int64_t strip) {
  const Grad* const grad = static_cast<const Grad*>(t.grad);
  float* const scales = t.scales + kAdafactorNumbers;
  alignas(64) double of_params[kColumns] = {}, of_updates[kColumns] = {};
  ForRows(g, strip, 0, [&](int64_t, int64_t, int64_t at, int64_t size) BRIGADE_SIMD_BODY {
    alignas(64) float buffer[kColumns], update[kColumns];
    const float* const wide = Floats(simd, grad + at, size, buffer);
    float* const v = t.factors + at;
    float* const scale = scales + at;
    const AdafactorCoefficients own = c;
    BRIGADE_SIMD_LOOP
    for (int64_t j = 0; j < size; ++j) {
      const float scaled = precision::Mul(wide[j], own.multiplier);
      v[j] = AdafactorSecondMoment(own, v[j], scaled);
      scale[j] = AdafactorElementScale(v[j]);
      update[j] = precision::Mul(scaled, scale[j]);
    }
    AddSquares(update, size, of_updates);
    if (t.param != nullptr) AddSquares(t.param + at, size, of_params);
  });
  t.workspace[strip] = Halve(of_params);
  t.workspace[g.of_updates + strip] = Halve(of_updates);
}

// In lanes, by additions.
template <typename At>
double SumOf(int64_t count, const At& at) {
  double lanes[kAdafactorTensorLanes] = {};
  for (int64_t i = 0; i < count; ++i) {
    double& lane = lanes[i % kAdafactorTensorLanes];
    lane = precision::Add(lane, at(i));
  }
  return Halve(lanes);
}

}  // namespace

template <typename Grad>
void AdafactorSumTiles(const AdafactorTensor& t, const AdafactorParameters& parameters,
                       int64_t begin, int64_t end) {
  const AdafactorCoefficients coefficients = MakeAdafactorCoefficients(parameters, t.group);
  const AdafactorGrid grid = AdafactorGridOf(t.rows, t.columns);
  RunSimdWithTag([&](auto simd) BRIGADE_SIMD_BODY {
    using Lanes = LanesOf<decltype(simd)::kValue>;
    const AdafactorCoefficients c = coefficients;
    const AdafactorGrid g = grid;
    for (int64_t strip = begin; strip < end; ++strip) {
      if (!g.is_matrix) {
        UpdateTile<Grad>(Lanes(), t, g, c, strip);
        continue;
      }
      for (int64_t panel = 0; panel < g.across; panel += kPanel) {
        if (t.param != nullptr) {
          SumPanel<true, Grad>(Lanes(), t, g, c.multiplier, strip, panel);
        } else {
          SumPanel<false, Grad>(Lanes(), t, g, c.multiplier, strip, panel);
        }
      }
    }
  });
}

void AdafactorRows(const AdafactorTensor& t, const AdafactorParameters& parameters, int64_t begin,
                   int64_t end) {
  const AdafactorCoefficients c = MakeAdafactorCoefficients(parameters, t.group);
  const AdafactorGrid g = AdafactorGridOf(t.rows, t.columns);
  for (int64_t row = begin; row < end; ++row) {
    const double* const of_row = t.workspace + g.of_rows + row * g.across;
    double sum = of_row[0];
    for (int64_t tile = 1; tile < g.across; ++tile) sum = precision::Add(sum, of_row[tile]);
    t.factors[row] = AdafactorMean(c, parameters.eps1, t.factors[row], sum, t.columns);
  }
}

void AdafactorColumns(const AdafactorTensor& t, const AdafactorParameters& parameters,
                      int64_t begin, int64_t end) {
  const AdafactorCoefficients c = MakeAdafactorCoefficients(parameters, t.group);
  const AdafactorGrid g = AdafactorGridOf(t.rows, t.columns);
  float* const factors = t.factors + t.rows;
  float* const scales = t.scales + kAdafactorNumbers + t.rows;
  for (int64_t first = begin; first < end; first += kColumns) {
    const int64_t count = std::min<int64_t>(kColumns, end - first);
    const double* const of_columns = t.workspace + g.of_columns + first;
    double sums[kColumns];
    std::copy_n(of_columns, count, sums);
    for (int64_t strip = 1; strip < g.down; ++strip) {
      const double* const more = of_columns + strip * t.columns;
      for (int64_t j = 0; j < count; ++j) sums[j] = precision::Add(sums[j], more[j]);
    }
    for (int64_t j = 0; j < count; ++j) {
      float& factor = factors[first + j];
      factor = AdafactorMean(c, parameters.eps1, factor, sums[j], t.rows);
      scales[first + j] = AdafactorScale(factor);
    }
  }
}

void AdafactorMeans(const AdafactorTensor& t) {
  const double sum = SumOf(t.rows, [&](int64_t i) { return static_cast<double>(t.factors[i]); });
  const double mean = precision::Div(sum, static_cast<double>(t.rows));
  float* const scales = t.scales + kAdafactorNumbers;
  for (int64_t i = 0; i < t.rows; ++i) scales[i] = AdafactorRowScale(t.factors[i], mean);
}

template <typename Grad>
void AdafactorUpdateTiles(const AdafactorTensor& t, const AdafactorParameters& parameters,
                          int64_t begin, int64_t end) {
  const float multiplier = MultiplierOf(parameters);
  const AdafactorGrid grid = AdafactorGridOf(t.rows, t.columns);
  RunSimdWithTag([&](auto simd) BRIGADE_SIMD_BODY {
    using Lanes = LanesOf<decltype(simd)::kValue>;
    const AdafactorGrid g = grid;
    const float by = multiplier;
    const Grad* const grad = static_cast<const Grad*>(t.grad);
    const float* const rows = t.scales + kAdafactorNumbers;
    for (int64_t strip = begin; strip < end; ++strip) {
      for (int64_t panel = 0; panel < g.across; panel += kPanel) {
        alignas(64) double of_updates[kPanel][kColumns] = {};
        ForRows(g, strip, panel,
                [&](int64_t row, int64_t tile, int64_t at, int64_t size) BRIGADE_SIMD_BODY {
                  const float* const columns = rows + t.rows + tile * kColumns;
#ifdef __x86_64__
                  if constexpr (std::is_same_v<Lanes, Avx512Lanes>) {
                    if (size == kColumns) {
                      return adafactor_internal::AddUpdates(grad + at, by, rows[row], columns,
                                                            of_updates[tile - panel]);
                    }
                  }
#endif
                  alignas(64) float buffer[kColumns], update[kColumns];
                  const float* const wide = Floats(Lanes(), grad + at, size, buffer);
                  // Of the loop's own, not of what the caller has.
                  const float of_row = rows[row], own_by = by;
                  BRIGADE_SIMD_LOOP
                  for (int64_t l = 0; l < size; ++l) {
                    update[l] =
                        AdafactorUpdate(precision::Mul(wide[l], own_by), of_row, columns[l]);
                  }
                  AddSquares(update, size, of_updates[tile - panel]);
                });
        SumLanes(g, strip, panel, of_updates, t.workspace + g.of_updates);
      }
    }
  });
}

void AdafactorNumbers(const AdafactorTensor& t, const AdafactorParameters& parameters) {
  const AdafactorCoefficients c = MakeAdafactorCoefficients(parameters, t.group);
  const AdafactorGrid g = AdafactorGridOf(t.rows, t.columns);
  const double params = SumOf(g.tiles(), [&](int64_t i) { return t.workspace[i]; });
  const double updates = SumOf(g.tiles(), [&](int64_t i) { return t.workspace[g.of_updates + i]; });
  const float rate = AdafactorRate(c, parameters, params, g.size);
  t.scales[0] = rate;
  t.scales[1] = AdafactorUpdateScale(parameters, rate, updates, g.size);
  t.scales[2] = 0.0f;
  t.scales[3] = 0.0f;
}

template <typename Grad>
StepError AdafactorFactorsOf(const AdafactorTensor& t, const AdafactorParameters& parameters) {
  const StepError error = FindErrorOfAnyStep<AdafactorPolicy>(parameters, t.group);
  if (error != StepError::kNone || SkipsStep(parameters)) return error;
  const AdafactorGrid g = AdafactorGridOf(t.rows, t.columns);
  if (g.size == 0) return error;
  AdafactorSumTiles<Grad>(t, parameters, 0, g.down);
  if (g.is_matrix) {
    AdafactorRows(t, parameters, 0, t.rows);
    AdafactorColumns(t, parameters, 0, t.columns);
    AdafactorMeans(t);
    AdafactorUpdateTiles<Grad>(t, parameters, 0, g.down);
  }
  AdafactorNumbers(t, parameters);
  return error;
}

template <typename Grad, typename Copy>
StepError AdafactorParamRange(const AdafactorSegment& s, const AdafactorParameters& parameters,
                              int64_t begin, int64_t end) {
  const StepError error = FindErrorOfAnyStep<AdafactorPolicy>(parameters, s.group);
  if (error != StepError::kNone || SkipsStep(parameters) || begin >= end) return error;
  const AdafactorParamCoefficients coefficients =
      MakeAdafactorParamCoefficients(parameters, s.scales, s.group);
  const bool has_rows = IsAdafactorMatrix(s.rows, s.columns);
  RunSimdWithTag([&](auto simd) BRIGADE_SIMD_BODY {
    using Lanes = LanesOf<decltype(simd)::kValue>;
    const AdafactorParamCoefficients c = coefficients;
    const Grad* const grad = static_cast<const Grad*>(s.grad);
    const float* const scales = s.scales + kAdafactorNumbers;
    constexpr bool kHalfGrad = std::is_same_v<Grad, precision::Half>;
    constexpr bool kHalfCopy = std::is_same_v<Copy, precision::Half>;
    // Elements of fp16 are converted by themselves (cast_elements.h), others with the update.
    constexpr int64_t kBlock = 1024;
    [[maybe_unused]] float buffer[kHalfGrad ? kBlock : 1];
    [[maybe_unused]] Copy* const copies = static_cast<Copy*>(s.param_copy);
    const int64_t first = s.first + begin;
    int64_t row = has_rows ? first / s.columns : 0;
    int64_t column = has_rows ? first % s.columns : 0;
    for (int64_t from = begin; from < end;) {
      // A block, or what is left of a row.
      int64_t size = kHalfGrad || kHalfCopy ? std::min(kBlock, end - from) : end - from;
      if (has_rows) size = std::min(size, s.columns - column);
      if constexpr (kHalfGrad) {
        CastElements<Write::kReplace>(Lanes(), grad + from, buffer, size, 1.0f);
      }
      const Grad* const own = grad + from;
      const auto gradient = [&](int64_t i) BRIGADE_SIMD_BODY {
        if constexpr (kHalfGrad) {
          return precision::Mul(buffer[i], c.multiplier);
        } else {
          return precision::Mul(static_cast<float>(own[i]), c.multiplier);
        }
      };
      const auto copy = [&](int64_t i, float p) BRIGADE_SIMD_BODY {
        if constexpr (!kHalfCopy && !std::is_same_v<Copy, NoCopy>) copies[from + i] = Copy(p);
      };
      float* const param = s.param + from;
      const float* const columns = has_rows ? scales + s.rows + column : scales + s.first + from;
      const float of_row = has_rows ? scales[row] : 1.0f;
      if (s.m == nullptr) {
        BRIGADE_SIMD_LOOP
        for (int64_t i = 0; i < size; ++i) {
          float p = param[i];
          // A product by 1 changes nothing.
          AdafactorParam(c, AdafactorUpdate(gradient(i), of_row, columns[i]), p, nullptr);
          param[i] = p;
          copy(i, p);
        }
      } else {
        float* const moment = s.m + from;
        BRIGADE_SIMD_LOOP
        for (int64_t i = 0; i < size; ++i) {
          float p = param[i], m = moment[i];
          AdafactorParam(c, AdafactorUpdate(gradient(i), of_row, columns[i]), p, &m);
          param[i] = p;
          moment[i] = m;
          copy(i, p);
        }
      }
      if constexpr (kHalfCopy) {
        CastElements<Write::kReplace>(Lanes(), param, copies + from, size, 1.0f);
      }
      from += size;
      column += size;
      if (has_rows && column == s.columns) {
        column = 0;
        ++row;
      }
    }
  });
  return StepError::kNone;
}

#define BRIGADE_INSTANTIATE(T)                                                                    \
  template void AdafactorSumTiles<T>(const AdafactorTensor&, const AdafactorParameters&, int64_t, \
                                     int64_t);                                                    \
  template void AdafactorUpdateTiles<T>(const AdafactorTensor&, const AdafactorParameters&,       \
                                        int64_t, int64_t);                                        \
  template StepError AdafactorFactorsOf<T>(const AdafactorTensor&, const AdafactorParameters&);
BRIGADE_INSTANTIATE(float)
BRIGADE_INSTANTIATE(precision::Half)
BRIGADE_INSTANTIATE(precision::BFloat16)
#undef BRIGADE_INSTANTIATE
#define BRIGADE_INSTANTIATE(Grad, Copy)               \
  template StepError AdafactorParamRange<Grad, Copy>( \
      const AdafactorSegment&, const AdafactorParameters&, int64_t, int64_t);
BRIGADE_FOR_EACH_UPDATE_TYPE(BRIGADE_INSTANTIATE)
#undef BRIGADE_INSTANTIATE

}  // namespace brigade::kernels
