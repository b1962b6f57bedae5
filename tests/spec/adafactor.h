#ifndef BRIGADE_TESTS_SPEC_ADAFACTOR_H_
#define BRIGADE_TESTS_SPEC_ADAFACTOR_H_

// The executable specification of Adafactor: Shazeer and Stern 2018 (arXiv 1804.04235), with the
// parameters and defaults that transformers documents. A step of a whole tensor. Every line is one
// rounding to its type, std::fma included; sums are in double, in the order of the comments.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace brigade::spec {

struct AdafactorRule {
  double eps1 = 1e-30;
  double eps2 = 1e-3;
  double clip_threshold = 1.0;
  double decay_rate = -0.8;
  bool scale_parameter = true;
  bool relative_step = true;
  bool warmup_init = false;
  // Of the group; 0: no first moment.
  double beta1 = 0;
  double weight_decay = 0;
};

// What a step makes of a tensor beside its state.
struct AdafactorScales {
  float rate = 0, scale = 0;
  // Of a matrix by row, then by column; of any other tensor by element.
  std::vector<float> roots;
};

inline double AdafactorHalved(std::vector<double> lanes) {
  for (size_t half = lanes.size() / 2; half > 0; half /= 2) {
    for (size_t l = 0; l < half; ++l) lanes[l] += lanes[l + half];
  }
  return lanes[0];
}

// In 256 lanes by turns.
inline double AdafactorSumOf(const std::vector<double>& values) {
  std::vector<double> lanes(256);
  for (size_t i = 0; i < values.size(); ++i) lanes[i % 256] += values[i];
  return AdafactorHalved(lanes);
}

// Values as rows of `columns`, of which the last may be short.
struct AdafactorTable {
  const std::vector<float>& values;
  size_t columns;

  size_t rows() const { return (values.size() + columns - 1) / columns; }
  bool Has(size_t row, size_t column) const {
    return column < columns && row * columns + column < values.size();
  }
  double At(size_t row, size_t column) const { return values[row * columns + column]; }
  size_t tiles_across() const { return (columns + 255) / 256; }
  size_t tiles_down() const { return (rows() + 63) / 64; }
};

// Of all values: in tiles of 64 rows and 256 columns, of which each has a lane.
inline double AdafactorSquares(const AdafactorTable& table) {
  std::vector<double> tiles;
  for (size_t down = 0; down < table.tiles_down(); ++down) {
    for (size_t across = 0; across < table.tiles_across(); ++across) {
      std::vector<double> lanes(256);
      for (size_t row = down * 64; row < down * 64 + 64; ++row) {
        for (size_t j = 0; j < 256; ++j) {
          if (!table.Has(row, across * 256 + j)) continue;
          const double x = table.At(row, across * 256 + j);
          lanes[j] = std::fma(x, x, lanes[j]);
        }
      }
      tiles.push_back(AdafactorHalved(lanes));
    }
  }
  return AdafactorSumOf(tiles);
}

// Of a row: 256 columns at a time, each a lane.
inline double AdafactorRowSquares(const AdafactorTable& table, size_t row) {
  double sum = 0;
  for (size_t across = 0; across < table.tiles_across(); ++across) {
    std::vector<double> lanes(256);
    for (size_t j = 0; j < 256 && table.Has(row, across * 256 + j); ++j) {
      const double x = table.At(row, across * 256 + j);
      lanes[j] = x * x;
    }
    sum += AdafactorHalved(lanes);
  }
  return sum;
}

// Of a column: 64 rows at a time.
inline double AdafactorColumnSquares(const AdafactorTable& table, size_t column) {
  double sum = 0;
  for (size_t tile = 0; tile < table.rows(); tile += 64) {
    double of_tile = 0;
    for (size_t row = tile; row < std::min(table.rows(), tile + 64); ++row) {
      of_tile = std::fma(table.At(row, column), table.At(row, column), of_tile);
    }
    sum += of_tile;
  }
  return sum;
}

inline bool IsAdafactorMatrix(size_t rows, size_t columns) { return rows > 1 && columns > 1; }
inline size_t AdafactorFactors(size_t rows, size_t columns) {
  return IsAdafactorMatrix(rows, columns) ? rows + columns : rows * columns;
}

inline double AdafactorStepRate(const AdafactorRule& rule, float lr, int64_t step) {
  if (!rule.relative_step) return lr;
  const auto t = static_cast<double>(step);
  return std::min(rule.warmup_init ? 1e-6 * t : 1e-2, 1.0 / std::sqrt(t));
}

// `factors` has AdafactorFactors of the shape, which change.
inline AdafactorScales AdafactorScalesOf(const std::vector<float>& param,
                                         std::vector<float>& factors,
                                         const std::vector<float>& gradients, size_t rows,
                                         size_t columns, float multiplier,
                                         const AdafactorRule& rule, float lr, int64_t step) {
  AdafactorScales scales;
  const bool is_matrix = IsAdafactorMatrix(rows, columns);
  const double share = std::pow(static_cast<double>(step), rule.decay_rate);
  const auto fresh_share = static_cast<float>(share);
  const auto old_share = static_cast<float>(1.0 - share);
  std::vector<float> g, update;
  for (const float raw : gradients) g.push_back(raw * multiplier);
  const AdafactorTable table = {g, is_matrix ? columns : 256};
  const auto mean_of = [&](float& factor, double sum, size_t count) {
    const auto fresh = static_cast<float>(sum / static_cast<double>(count) + rule.eps1);
    const float added = fresh_share * fresh;
    factor = std::fma(old_share, factor, added);
  };
  if (is_matrix) {
    std::vector<double> of_rows;
    for (size_t i = 0; i < rows; ++i) {
      mean_of(factors[i], AdafactorRowSquares(table, i), columns);
      of_rows.push_back(factors[i]);
    }
    const double mean = AdafactorSumOf(of_rows) / static_cast<double>(rows);
    for (const double row : of_rows) {
      scales.roots.push_back(static_cast<float>(1.0 / std::sqrt(row / mean)));
    }
    for (size_t j = 0; j < columns; ++j) {
      mean_of(factors[rows + j], AdafactorColumnSquares(table, j), rows);
      scales.roots.push_back(
          static_cast<float>(1.0 / std::sqrt(static_cast<double>(factors[rows + j]))));
    }
  }
  for (size_t i = 0; i < g.size(); ++i) {
    if (!is_matrix) {
      const float square = std::fma(g[i], g[i], static_cast<float>(rule.eps1));
      const float added = fresh_share * square;
      factors[i] = std::fma(old_share, factors[i], added);
      const float root = std::sqrt(factors[i]);
      scales.roots.push_back(1.0f / root);
      update.push_back(g[i] * scales.roots[i]);
      continue;
    }
    const float by_row = g[i] * scales.roots[i / columns];
    update.push_back(by_row * scales.roots[rows + i % columns]);
  }
  // NaN stays.
  const auto at_least = [](double least, double x) { return x < least ? least : x; };
  const auto size = static_cast<double>(g.size());
  const double rate = AdafactorStepRate(rule, lr, step);
  const double root_mean_square = std::sqrt(AdafactorSquares({param, table.columns}) / size);
  scales.rate = static_cast<float>(
      rule.scale_parameter ? at_least(rule.eps2, root_mean_square) * rate : rate);
  const double clip =
      std::sqrt(AdafactorSquares({update, table.columns}) / size) / rule.clip_threshold;
  scales.scale = static_cast<float>(static_cast<double>(scales.rate) / at_least(1.0, clip));
  return scales;
}

// Element `i` of a tensor of so many rows and columns. `m` is not read where beta1 is 0.
inline void AdafactorElement(float& param, float& m, float raw_gradient, size_t i, size_t rows,
                             size_t columns, float multiplier, const AdafactorRule& rule,
                             const AdafactorScales& scales) {
  const float g = raw_gradient * multiplier;
  float update = 0;
  if (IsAdafactorMatrix(rows, columns)) {
    const float by_row = g * scales.roots[i / columns];
    update = by_row * scales.roots[rows + i % columns];
  } else {
    update = g * scales.roots[i];
  }
  float step = scales.scale * update;
  if (rule.beta1 > 0) {
    const float added = static_cast<float>(1.0 - rule.beta1) * step;
    m = std::fma(static_cast<float>(rule.beta1), m, added);
    step = m;
  }
  const float decay_factor = std::fma(-scales.rate, static_cast<float>(rule.weight_decay), 1.0f);
  param = std::fma(param, decay_factor, -step);
}

// A step of a tensor.
inline void AdafactorStep(std::vector<float>& param, std::vector<float>& factors,
                          std::vector<float>& m, const std::vector<float>& gradients, size_t rows,
                          size_t columns, float multiplier, const AdafactorRule& rule, float lr,
                          int64_t step) {
  if (param.empty()) return;
  const AdafactorScales scales =
      AdafactorScalesOf(param, factors, gradients, rows, columns, multiplier, rule, lr, step);
  m.resize(param.size());
  for (size_t i = 0; i < param.size(); ++i) {
    AdafactorElement(param[i], m[i], gradients[i], i, rows, columns, multiplier, rule, scales);
  }
}

}  // namespace brigade::spec

#endif  // BRIGADE_TESTS_SPEC_ADAFACTOR_H_
