// Adafactor on the CPU. Sums of a matrix: the gradient and the parameter once, 8 bytes an element,
// eight rows of a tile at a time, whose columns' sums stay in the first-level cache; updates' sums
// the gradient once more; parameters another 12 bytes and the copy.

#include "brigade/kernels/adafactor/adafactor_cpu.h"

#include <algorithm>
#include <type_traits>

#include "brigade/kernels/cast/cast_elements.h"
#include "brigade/kernels/internal/halve_lanes.h"
#include "brigade/kernels/internal/lanes.h"
#include "brigade/kernels/simd.h"
#include "brigade/precision/float16.h"

namespace brigade::kernels {
namespace {

constexpr int kColumns = kAdafactorColumns;
constexpr int kLanes = kAdafactorLanes;

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

// The rows of a strip of tiles, of one tile of it, eight at a time: visit(row, offset of its first
// element in the tile, how many it has), then end(which eight).
template <typename Visit, typename End>
BRIGADE_INLINE void ForRowsOfTile(const AdafactorGrid& g, int64_t strip, int64_t across,
                                  const Visit& visit, const End& end) {
  const int64_t column = across * kColumns;
  for (int group = 0; group < kAdafactorGroupsOfRows; ++group) {
    const int64_t first = strip * kAdafactorRows + group * kAdafactorGroupRows;
    const int64_t last = std::min(first + kAdafactorGroupRows, g.height);
    if (first >= last) break;
    for (int64_t row = first; row < last; ++row) {
      const int64_t at = row * g.width + column;
      visit(row, at, std::min({int64_t{kColumns}, g.width - column, g.size - at}));
    }
    end(group);
  }
}

BRIGADE_INLINE void AddSquares(const float* values, int64_t size, double* lanes) {
  for (int64_t from = 0; from < size; from += kLanes) {
    const int64_t count = std::min<int64_t>(kLanes, size - from);
    BRIGADE_SIMD_LOOP
    for (int64_t l = 0; l < count; ++l) lanes[l] = AddAdafactorSquare(lanes[l], values[from + l]);
  }
}

// Adds the halved lanes to a sum, and clears them.
BRIGADE_INLINE void AddLanes(double (&lanes)[kLanes], int group, double& sum) {
  const double own = Halve(lanes);
  sum = group == 0 ? own : precision::Add(sum, own);
  std::fill_n(lanes, kLanes, 0.0);
}

// Of one tile of a matrix.
template <typename Grad, typename Lanes>
BRIGADE_INLINE void SumTile(Lanes simd, const AdafactorTensor& t, const AdafactorGrid& g,
                            float multiplier, int64_t strip, int64_t across) {
  const Grad* const grad = static_cast<const Grad*>(t.grad);
  double* const tile_columns = t.workspace + g.of_columns + strip * t.columns + across * kColumns;
  alignas(64) double of_params[kLanes] = {};
  alignas(64) double of_columns[kColumns] = {};
  double of_tile = 0.0;
  const int64_t columns = std::min<int64_t>(kColumns, t.columns - across * kColumns);
  ForRowsOfTile(
      g, strip, across,
      [&](int64_t row, int64_t at, int64_t size) BRIGADE_SIMD_BODY {
        float buffer[kColumns], scaled[kColumns];
        const float* const wide = Floats(simd, grad + at, size, buffer);
        BRIGADE_SIMD_LOOP
        for (int64_t j = 0; j < size; ++j) scaled[j] = precision::Mul(wide[j], multiplier);
        alignas(64) double of_row[kLanes] = {};
        AddSquares(scaled, size, of_row);
        BRIGADE_SIMD_LOOP
        for (int64_t j = 0; j < size; ++j) {
          of_columns[j] = AddAdafactorSquare(of_columns[j], scaled[j]);
        }
        if (t.param != nullptr) AddSquares(t.param + at, size, of_params);
        t.workspace[g.of_rows + row * g.across + across] = Halve(of_row);
      },
      [&](int group) BRIGADE_SIMD_BODY {
        AddLanes(of_params, group, of_tile);
        if (group == 0) {
          std::copy_n(of_columns, columns, tile_columns);
        } else {
          BRIGADE_SIMD_LOOP
          for (int64_t j = 0; j < columns; ++j) {
            tile_columns[j] = precision::Add(tile_columns[j], of_columns[j]);
          }
        }
        std::fill_n(of_columns, kColumns, 0.0);
      });
  t.workspace[strip * g.across + across] = of_tile;
}

// Of a tile of any other tensor: its factors and scales, too.
template <typename Grad, typename Lanes>
BRIGADE_INLINE void UpdateTile(Lanes simd, const AdafactorTensor& t, const AdafactorGrid& g,
                               const AdafactorCoefficients& c, int64_t strip) {
  const Grad* const grad = static_cast<const Grad*>(t.grad);
  float* const scales = t.scales + kAdafactorNumbers;
  alignas(64) double of_params[kLanes] = {}, of_updates[kLanes] = {};
  double params = 0.0, updates = 0.0;
  ForRowsOfTile(
      g, strip, 0,
      [&](int64_t, int64_t at, int64_t size) BRIGADE_SIMD_BODY {
        float buffer[kColumns], update[kColumns];
        const float* const wide = Floats(simd, grad + at, size, buffer);
        float* const v = t.factors + at;
        float* const scale = scales + at;
        BRIGADE_SIMD_LOOP
        for (int64_t j = 0; j < size; ++j) {
          const float scaled = precision::Mul(wide[j], c.multiplier);
          v[j] = AdafactorSecondMoment(c, v[j], scaled);
          scale[j] = AdafactorElementScale(v[j]);
          update[j] = precision::Mul(scaled, scale[j]);
        }
        AddSquares(update, size, of_updates);
        if (t.param != nullptr) AddSquares(t.param + at, size, of_params);
      },
      [&](int group) BRIGADE_SIMD_BODY {
        AddLanes(of_params, group, params);
        AddLanes(of_updates, group, updates);
      });
  t.workspace[strip] = params;
  t.workspace[g.of_updates + strip] = updates;
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
      for (int64_t across = 0; across < g.across; ++across) {
        SumTile<Grad>(Lanes(), t, g, c.multiplier, strip, across);
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
      for (int64_t across = 0; across < g.across; ++across) {
        const float* const columns = rows + t.rows + across * kColumns;
        alignas(64) double of_updates[kLanes] = {};
        double sum = 0.0;
        ForRowsOfTile(
            g, strip, across,
            [&](int64_t row, int64_t at, int64_t size) BRIGADE_SIMD_BODY {
              float buffer[kColumns], update[kColumns];
              const float* const wide = Floats(Lanes(), grad + at, size, buffer);
              const float of_row = rows[row];
              BRIGADE_SIMD_LOOP
              for (int64_t j = 0; j < size; ++j) {
                update[j] = AdafactorUpdate(precision::Mul(wide[j], by), of_row, columns[j]);
              }
              AddSquares(update, size, of_updates);
            },
            [&](int group) BRIGADE_SIMD_BODY { AddLanes(of_updates, group, sum); });
        t.workspace[g.of_updates + strip * g.across + across] = sum;
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
    constexpr int64_t kBlock = 1024;
    float buffer[kBlock];
    const int64_t first = s.first + begin;
    int64_t row = has_rows ? first / s.columns : 0;
    int64_t column = has_rows ? first % s.columns : 0;
    for (int64_t from = begin; from < end;) {
      // A block, or what is left of a row.
      int64_t size = std::min(kBlock, end - from);
      if (has_rows) size = std::min(size, s.columns - column);
      const float* const wide = Floats(Lanes(), grad + from, size, buffer);
      float* const param = s.param + from;
      const float* const columns =
          has_rows ? scales + s.rows + column : scales + s.first + from;
      const float of_row = has_rows ? scales[row] : 1.0f;
      if (s.m == nullptr) {
        BRIGADE_SIMD_LOOP
        for (int64_t i = 0; i < size; ++i) {
          // A product by 1 changes nothing.
          AdafactorParam(
              c, AdafactorUpdate(precision::Mul(wide[i], c.multiplier), of_row, columns[i]),
              param[i], nullptr);
        }
      } else {
        float* const moment = s.m + from;
        BRIGADE_SIMD_LOOP
        for (int64_t i = 0; i < size; ++i) {
          float m = moment[i];
          AdafactorParam(
              c, AdafactorUpdate(precision::Mul(wide[i], c.multiplier), of_row, columns[i]),
              param[i], &m);
          moment[i] = m;
        }
      }
      if constexpr (!std::is_same_v<Copy, NoCopy>) {
        CastElements<Write::kReplace>(Lanes(), param, static_cast<Copy*>(s.param_copy) + from, size,
                                      1.0f);
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

#define BRIGADE_INSTANTIATE(T)                                                                  \
  template void AdafactorSumTiles<T>(const AdafactorTensor&, const AdafactorParameters&,        \
                                     int64_t, int64_t);                                         \
  template void AdafactorUpdateTiles<T>(const AdafactorTensor&, const AdafactorParameters&,     \
                                        int64_t, int64_t);                                      \
  template StepError AdafactorFactorsOf<T>(const AdafactorTensor&, const AdafactorParameters&);
BRIGADE_INSTANTIATE(float)
BRIGADE_INSTANTIATE(precision::Half)
BRIGADE_INSTANTIATE(precision::BFloat16)
#undef BRIGADE_INSTANTIATE
#define BRIGADE_INSTANTIATE(Grad, Copy)                     \
  template StepError AdafactorParamRange<Grad, Copy>(       \
      const AdafactorSegment&, const AdafactorParameters&, int64_t, int64_t);
BRIGADE_FOR_EACH_UPDATE_TYPE(BRIGADE_INSTANTIATE)
#undef BRIGADE_INSTANTIATE

}  // namespace brigade::kernels
