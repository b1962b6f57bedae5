#ifndef BRIGADE_KERNELS_MUON_MUON_MATH_H_
#define BRIGADE_KERNELS_MUON_MUON_MATH_H_

// Muon's formulas, for CUDA, SIMD and scalar code alike, and the order of each sum, which is the
// same on all processors.
//
// Products     An element of a product is one sum: of fma in ascending order, from +0.
// Norms        Squares in double, of tiles of kMuonTile elements, row by row: term i enters lane i
//              modulo kMuonLanes by one fma; then lane l takes lane l + half, until there is one.
//              Sums of tiles are added in ascending order.
// Shapes       A matrix is brought to as many rows as columns or more, by transposing: `tall` is
//              the larger extent, `wide` the smaller one, whose square matrices are made.
// Source       Jordan et al. 2024, "Muon: an optimizer for hidden layers in neural networks"; with
//              the factors of Liu et al. 2025 (arXiv 2502.16982).

#include <cstdint>

#include "brigade/kernels/step_control/one_step.h"
#include "brigade/kernels/step_control/step_state.h"
#include "brigade/precision/host_device.h"
#include "brigade/precision/rounding.h"

namespace brigade::kernels {

// A piece of a momentum with its gradient, and what becomes a matrix's update. Device memory.
struct MuonMomentumSegment {
  // [size], the momentum: named as what an optimizer's loop updates in place.
  float* param;
  // [size], written.
  float* update;
  // [size] of MuonOptions::grad_dtype.
  const void* grad;
  // Null.
  void* param_copy;
  int64_t size;
  // The index of the parameter group.
  int32_t group;
};

// A piece of the parameters with its update. Device memory.
struct MuonParamSegment {
  // [size], the fp32 master.
  float* param;
  // [size], float: the update, orthogonal as a matrix.
  const void* grad;
  // [size] of MuonOptions::copy_dtype: the rounded new parameter; null without one.
  void* param_copy;
  int64_t size;
  int32_t group;
  // The matrix's learning rate is so many times its group's.
  float rate;
  // Of the update beside the rate, by the matrix's shape.
  float scale;
};

// A matrix of which MuonOrthogonalize makes one that is nearly orthogonal. Device memory.
struct MuonMatrix {
  // [rows][columns], in place.
  float* update;
  // [MuonWorkspaceSize(rows, columns)], aligned to 8 bytes.
  float* workspace;
  int64_t rows;
  int64_t columns;
};

inline constexpr int kMaxMuonGroups = 128;
inline constexpr int64_t kMuonTile = 65536;
inline constexpr int kMuonLanes = 256;
inline constexpr int kMaxMuonSteps = 99;

// A group's constants that do not change from step to step.
struct MuonGroupConstants {
  float momentum, one_minus_momentum;
  float weight_decay;
  int32_t nesterov;
};

// All that a call passes beside its segments; muon_parameters.h fills it.
struct MuonParameters {
  // Device memory, both; or both are null, and the step is that of the numbers below.
  const StepState* state;
  const GroupStep* group_steps;
  // Counted from 1; 0 means that nobody filled this.
  int64_t step;
  float grad_multiplier;
  // The learning rates of so many groups.
  int32_t one_step_groups;
  float lr[kMaxOneStepGroups];
  MuonGroupConstants groups[kMaxMuonGroups];
};

// What both policies say of a step: as Lion, the updates read the learning rate alone.
struct MuonSteps {
  using Parameters = MuonParameters;
  static BRIGADE_INLINE GroupStep OwnStep(const MuonParameters& parameters, int32_t group) {
    if (group >= parameters.one_step_groups) return {};
    return {parameters.lr[group], parameters.lr[group], 1.0f};
  }
  static BRIGADE_INLINE bool IsFilled(const GroupStep& step) {
    return step.lr != 0.0f || step.inv_sqrt_correction != 0.0f;
  }
};

struct MuonMomentumCoefficients {
  float multiplier;
  MuonGroupConstants group;
};

struct MuonMomentumElement {
  // The array `update`.
  static constexpr int kStates = 1;

  static BRIGADE_INLINE void Update(const MuonMomentumCoefficients& c, float gradient,
                                    float& momentum, float* state) {
    using precision::Fma;
    using precision::Mul;
    const float g = Mul(gradient, c.multiplier);
    const float added = Mul(c.group.one_minus_momentum, g);
    momentum = Fma(c.group.momentum, momentum, added);
    const float ahead = Fma(c.group.momentum, momentum, added);
    state[0] = c.group.nesterov != 0 ? ahead : momentum;
  }
};

// For the loops that optimizers share (kernels/internal/update_tile.h).
struct MuonMomentumPolicy : MuonSteps {
  using Segment = MuonMomentumSegment;
  // Segments of 48 bytes, with their first tiles and the groups' constants, fill a launch's
  // arguments.
  static constexpr int kMaxSegments = 510;
  static constexpr int kStates = 1;

  static BRIGADE_INLINE float* State(const MuonMomentumSegment& s, int) { return s.update; }
  static BRIGADE_INLINE MuonMomentumCoefficients MakeCoefficients(const MuonParameters& parameters,
                                                                  const MuonMomentumSegment& s) {
    return {MultiplierOf(parameters), parameters.groups[s.group]};
  }
  template <typename Run>
  static BRIGADE_INLINE void VisitElement(const MuonParameters&, const MuonMomentumSegment&,
                                          const Run& run) {
    run(MuonMomentumElement());
  }
};

struct MuonParamCoefficients {
  // The factor on the parameter: 1 - lr * weight decay.
  float decay_factor;
  float lr;
};

struct MuonParamElement {
  static constexpr int kStates = 0;

  static BRIGADE_INLINE void Update(const MuonParamCoefficients& c, float update, float& param,
                                    float*) {
    param = precision::Fma(-c.lr, update, precision::Mul(param, c.decay_factor));
  }
};

struct MuonParamPolicy : MuonSteps {
  using Segment = MuonParamSegment;
  static constexpr int kMaxSegments = 510;
  static constexpr int kStates = 0;

  static BRIGADE_INLINE float* State(const MuonParamSegment&, int) { return nullptr; }
  static BRIGADE_INLINE MuonParamCoefficients MakeCoefficients(const MuonParameters& parameters,
                                                               const MuonParamSegment& s) {
    const float lr = precision::Mul(StepOf<MuonParamPolicy>(parameters, s.group).lr, s.rate);
    return {precision::Fma(-lr, parameters.groups[s.group].weight_decay, 1.0f),
            precision::Mul(lr, s.scale)};
  }
  template <typename Run>
  static BRIGADE_INLINE void VisitElement(const MuonParameters&, const MuonParamSegment&,
                                          const Run& run) {
    run(MuonParamElement());
  }
};

// The coefficients of a step of Newton and Schulz: X becomes a X + (b G + c G G) X, G = X X^T.
struct MuonCoefficients {
  float a = 3.4445f, b = -4.7750f, c = 2.0315f;
};

BRIGADE_HOST_DEVICE constexpr int64_t MuonTiles(int64_t elements) {
  return (elements + kMuonTile - 1) / kMuonTile;
}

// Where the parts of a workspace begin, in floats: sums of tiles, which are double; the matrix and
// the next one; its square and the polynomial of it.
struct MuonWorkspace {
  int64_t tall, wide;
  int64_t matrix, next, square, polynomial, size;
};
BRIGADE_HOST_DEVICE constexpr MuonWorkspace MuonWorkspaceOf(int64_t rows, int64_t columns) {
  const int64_t tall = rows < columns ? columns : rows;
  const int64_t wide = rows < columns ? rows : columns;
  const int64_t matrix = 2 * MuonTiles(tall * wide);
  const int64_t next = matrix + tall * wide;
  const int64_t square = next + tall * wide;
  const int64_t polynomial = square + wide * wide;
  return {tall, wide, matrix, next, square, polynomial, polynomial + wide * wide};
}
// The floats in which MuonOrthogonalize works.
BRIGADE_HOST_DEVICE constexpr int64_t MuonWorkspaceSize(int64_t rows, int64_t columns) {
  return rows == 0 || columns == 0 ? 0 : MuonWorkspaceOf(rows, columns).size;
}

// out = alpha A B + beta D, of m x n elements, sums over k; without D the product alone.
struct MuonProduct {
  // Element (i, k) at a[i * a_row + k * a_column].
  const float* a;
  int64_t a_row, a_column;
  // [k][n].
  const float* b;
  // [m][n], or null.
  const float* d;
  // [m][n].
  float* out;
  float alpha, beta;
  int64_t m, n, k;
};

// The three products of a step, in turn, from `matrix` to `next` of a workspace.
inline constexpr int kMuonProducts = 3;
BRIGADE_HOST_DEVICE constexpr MuonProduct MuonProductOf(int product, const MuonWorkspace& w,
                                                        float* workspace, bool swapped,
                                                        const MuonCoefficients& c) {
  float* const matrix = workspace + (swapped ? w.next : w.matrix);
  float* const next = workspace + (swapped ? w.matrix : w.next);
  float* const square = workspace + w.square;
  float* const polynomial = workspace + w.polynomial;
  const int64_t tall = w.tall, wide = w.wide;
  // The square is symmetric in each bit, so that a column may be read for a row.
  if (product == 0) {
    return {matrix, 1, wide, matrix, nullptr, square, 1.0f, 0.0f, wide, wide, tall};
  }
  if (product == 1) {
    return {square, 1, wide, square, square, polynomial, c.c, c.b, wide, wide, wide};
  }
  return {matrix, wide, 1, polynomial, matrix, next, 1.0f, c.a, tall, wide, wide};
}

BRIGADE_INLINE float MuonOutput(const MuonProduct& p, float sum, float d) {
  return precision::Fma(p.alpha, sum, precision::Mul(p.beta, d));
}

BRIGADE_INLINE double AddMuonSquare(double lane, float x) {
  return precision::Fma(static_cast<double>(x), static_cast<double>(x), lane);
}
// The norm that a matrix is divided by, eps at least.
BRIGADE_INLINE float MuonNorm(const double* sums, int64_t tiles, double eps) {
  double sum = sums[0];
  for (int64_t t = 1; t < tiles; ++t) sum = precision::Add(sum, sums[t]);
  const double norm = precision::Sqrt(sum);
  return static_cast<float>(norm < eps ? eps : norm);
}

}  // namespace brigade::kernels

#endif  // BRIGADE_KERNELS_MUON_MUON_MATH_H_
