#ifndef BRIGADE_TESTS_SPEC_MUON_H_
#define BRIGADE_TESTS_SPEC_MUON_H_

// The executable specification of Muon: Jordan et al. 2024, and the factor of Liu et al. 2025
// (arXiv 2502.16982); with the parameters and defaults that PyTorch documents. A step of a whole
// matrix, row by row. Every line is one rounding to float, std::fma included, but for the norm,
// whose squares are added in double: tile by tile in 256 lanes, which are halved.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

namespace brigade::spec {

struct MuonRule {
  double momentum = 0.95;
  bool nesterov = true;
  double weight_decay = 0.1;
  int steps = 5;
  double a = 3.4445, b = -4.7750, c = 2.0315;
  double eps = 1e-7;
  // 0.2 sqrt(max(rows, columns)) instead of sqrt(max(1, rows / columns)).
  bool matches_adam_w = false;
  // Of the learning rate of the group.
  float rate = 1;
};

// The momentum, and what it gives.
inline float MuonMoment(float& momentum, float raw_gradient, float multiplier,
                        const MuonRule& rule) {
  const float mu = static_cast<float>(rule.momentum);
  const float rest = static_cast<float>(1.0 - rule.momentum);
  const float g = raw_gradient * multiplier;
  const float added = rest * g;
  momentum = std::fma(mu, momentum, added);
  return rule.nesterov ? std::fma(mu, momentum, added) : momentum;
}

using MuonRows = std::vector<std::vector<float>>;

inline MuonRows Transposed(const MuonRows& x) {
  MuonRows y(x[0].size(), std::vector<float>(x.size()));
  for (size_t i = 0; i < x.size(); ++i) {
    for (size_t j = 0; j < x[i].size(); ++j) y[j][i] = x[i][j];
  }
  return y;
}

inline MuonRows Product(const MuonRows& x, const MuonRows& y) {
  MuonRows product(x.size(), std::vector<float>(y[0].size()));
  for (size_t i = 0; i < x.size(); ++i) {
    for (size_t j = 0; j < y[0].size(); ++j) {
      float sum = 0.0f;
      for (size_t k = 0; k < y.size(); ++k) sum = std::fma(x[i][k], y[k][j], sum);
      product[i][j] = sum;
    }
  }
  return product;
}

inline double MuonSumOfSquares(const std::vector<float>& x) {
  double sum = 0;
  for (size_t begin = 0; begin < x.size(); begin += 65536) {
    std::vector<double> lanes(256);
    for (size_t i = begin; i < std::min(x.size(), begin + 65536); ++i) {
      double& lane = lanes[(i - begin) % 256];
      lane = std::fma(static_cast<double>(x[i]), static_cast<double>(x[i]), lane);
    }
    for (size_t half = 128; half > 0; half /= 2) {
      for (size_t l = 0; l < half; ++l) lanes[l] += lanes[l + half];
    }
    sum += lanes[0];
  }
  return sum;
}

// `values` is a matrix of so many rows, which are not empty.
inline std::vector<float> MuonOrthogonal(const std::vector<float>& values, size_t rows,
                                         const MuonRule& rule) {
  const size_t columns = values.size() / rows;
  const auto norm = static_cast<float>(std::max(std::sqrt(MuonSumOfSquares(values)), rule.eps));
  MuonRows x(rows, std::vector<float>(columns));
  for (size_t i = 0; i < rows; ++i) {
    for (size_t j = 0; j < columns; ++j) x[i][j] = values[i * columns + j] / norm;
  }
  if (rows < columns) x = Transposed(x);
  const auto a = static_cast<float>(rule.a), b = static_cast<float>(rule.b);
  const auto c = static_cast<float>(rule.c);
  for (int step = 0; step < rule.steps; ++step) {
    const MuonRows square = Product(Transposed(x), x);
    MuonRows polynomial = Product(square, square);
    for (size_t i = 0; i < square.size(); ++i) {
      for (size_t j = 0; j < square.size(); ++j) {
        const float linear = b * square[i][j];
        polynomial[i][j] = std::fma(c, polynomial[i][j], linear);
      }
    }
    MuonRows next = Product(x, polynomial);
    for (size_t i = 0; i < x.size(); ++i) {
      for (size_t j = 0; j < x[i].size(); ++j) {
        const float linear = a * x[i][j];
        next[i][j] = linear + next[i][j];
      }
    }
    x = next;
  }
  if (rows < columns) x = Transposed(x);
  std::vector<float> result;
  for (const auto& row : x) result.insert(result.end(), row.begin(), row.end());
  return result;
}

inline float MuonParam(float param, float update, size_t rows, size_t columns, const MuonRule& rule,
                       float lr) {
  const auto r = static_cast<double>(rows), c = static_cast<double>(columns);
  const auto scale = static_cast<float>(rule.matches_adam_w ? 0.2 * std::sqrt(std::max(r, c))
                                                            : std::sqrt(std::max(1.0, r / c)));
  const float own_lr = lr * rule.rate;
  const float decay_factor = std::fma(-own_lr, static_cast<float>(rule.weight_decay), 1.0f);
  const float decayed = param * decay_factor;
  const float scaled = own_lr * scale;
  return std::fma(-scaled, update, decayed);
}

// A step of a matrix.
inline void MuonStep(std::vector<float>& param, std::vector<float>& momentum,
                     const std::vector<float>& gradients, size_t rows, float multiplier,
                     const MuonRule& rule, float lr) {
  if (param.empty()) return;
  std::vector<float> update;
  for (size_t i = 0; i < param.size(); ++i) {
    update.push_back(MuonMoment(momentum[i], gradients[i], multiplier, rule));
  }
  update = MuonOrthogonal(update, rows, rule);
  for (size_t i = 0; i < param.size(); ++i) {
    param[i] = MuonParam(param[i], update[i], rows, param.size() / rows, rule, lr);
  }
}

}  // namespace brigade::spec

#endif  // BRIGADE_TESTS_SPEC_MUON_H_
