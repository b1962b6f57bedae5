#ifndef BRIGADE_TESTS_SPEC_LOW_RANK_H_
#define BRIGADE_TESTS_SPEC_LOW_RANK_H_

// The executable specification of low-rank factors, M = P Q^T: the steps of PowerSGD (Vogels et al.
// 2019, arXiv 1905.13727) on one rank.
//
// Each line is one rounding, std::fma included. Sums by lanes: term i enters lane i modulo their
// number, by an fma from +0, in ascending order; then lane l takes lane l + n/2 of n lanes, until
// there is one. Dot products of columns of a factor have 512 lanes of double, rows of M times
// columns of Q have 16 of float. Columns of M times those of P are added without lanes over 256
// rows each, and these sums in ascending order.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

namespace brigade::spec {

// [column][row].
using Columns = std::vector<std::vector<float>>;

struct Matrix {
  size_t rows = 0;
  size_t columns = 0;
  std::vector<float> values;  // row by row

  float& at(size_t i, size_t j) { return values[i * columns + j]; }
  float at(size_t i, size_t j) const { return values[i * columns + j]; }
};

template <typename T>
T Halved(std::vector<T> lanes) {
  for (size_t half = lanes.size() / 2; half > 0; half /= 2) {
    for (size_t l = 0; l < half; ++l) lanes[l] = lanes[l] + lanes[l + half];
  }
  return lanes[0];
}

// Of T, with `count` lanes; term(i) gives both factors of a term.
template <typename T, typename Term>
T LaneSum(size_t size, size_t count, const Term& term) {
  std::vector<T> lanes(count, T(0));
  for (size_t i = 0; i < size; ++i) {
    const auto [x, y] = term(i);
    lanes[i % count] = std::fma(static_cast<T>(x), static_cast<T>(y), lanes[i % count]);
  }
  return Halved(lanes);
}

inline double Dot(const std::vector<float>& a, const std::vector<float>& b) {
  return LaneSum<double>(a.size(), 512, [&](size_t i) { return std::pair(a[i], b[i]); });
}

// Gram-Schmidt, in place.
inline void Orthogonalize(Columns& columns, double epsilon) {
  for (size_t k = 0; k < columns.size(); ++k) {
    const double root = std::sqrt(Dot(columns[k], columns[k]));
    const double denominator = root + epsilon;
    for (float& x : columns[k]) {
      const double quotient = static_cast<double>(x) / denominator;
      x = static_cast<float>(quotient);
    }
    for (size_t later = k + 1; later < columns.size(); ++later) {
      const auto along = static_cast<float>(Dot(columns[k], columns[later]));
      for (size_t i = 0; i < columns[k].size(); ++i) {
        columns[later][i] = std::fma(-along, columns[k][i], columns[later][i]);
      }
    }
  }
}

// P = M Q.
inline Columns TimesColumns(const Matrix& m, const Columns& q) {
  Columns p(q.size(), std::vector<float>(m.rows));
  for (size_t k = 0; k < q.size(); ++k) {
    for (size_t i = 0; i < m.rows; ++i) {
      p[k][i] =
          LaneSum<float>(m.columns, 16, [&](size_t j) { return std::pair(m.at(i, j), q[k][j]); });
    }
  }
  return p;
}

// Q = M^T P.
inline Columns TransposedTimesColumns(const Matrix& m, const Columns& p) {
  Columns q(p.size(), std::vector<float>(m.columns));
  for (size_t k = 0; k < p.size(); ++k) {
    for (size_t j = 0; j < m.columns; ++j) {
      for (size_t begin = 0; begin < m.rows; begin += 256) {
        float tile = 0;
        for (size_t i = begin; i < std::min(m.rows, begin + 256); ++i) {
          tile = std::fma(m.at(i, j), p[k][i], tile);
        }
        q[k][j] = begin == 0 ? tile : q[k][j] + tile;
      }
    }
  }
  return q;
}

// Returns P Q^T, and takes it from M.
inline Matrix Restore(Matrix& m, const Columns& p, const Columns& q) {
  Matrix product = m;
  for (size_t i = 0; i < m.rows; ++i) {
    for (size_t j = 0; j < m.columns; ++j) {
      float sum = p[0][i] * q[0][j];
      for (size_t k = 1; k < p.size(); ++k) sum = std::fma(p[k][i], q[k][j], sum);
      product.at(i, j) = sum;
      m.at(i, j) = m.at(i, j) - sum;
    }
  }
  return product;
}

}  // namespace brigade::spec

#endif  // BRIGADE_TESTS_SPEC_LOW_RANK_H_
