#ifndef BRIGADE_KERNELS_ADAFACTOR_ADAFACTOR_MATH_H_
#define BRIGADE_KERNELS_ADAFACTOR_ADAFACTOR_MATH_H_

// Adafactor's formulas, for CUDA, SIMD and scalar code alike, and the order of each sum, which is
// the same on all processors.
//
// Grid         A matrix is a grid of its rows and columns; any other tensor one of 256 columns,
//              whose last row may be short. Tiles are 64 rows by 256 columns of it, those of a
//              strip of rows side by side, then the next rows.
// Sums         In double. A tile has 256 lanes, its columns. Each takes the squares of 64 rows by
//              fma from +0: the sum of a column in a tile. The sum of a tile is that of its lanes,
//              and that of a row in a tile that of a lane's squares each: lane l takes lane l +
//              n/2, of n lanes, until there is one. Rows add up their tiles in ascending order, and
//              so do columns. Tiles of a tensor, and rows for their mean, enter 256 lanes, by
//              additions, which are halved so.
// Source       Shazeer and Stern 2018 (arXiv 1804.04235), algorithms 4 to 6, with the parameters of
//              transformers' Adafactor.
// Determinism  Every operation rounds once, where it is written.

#include <cstdint>

#include "brigade/kernels/step_control/one_step.h"
#include "brigade/kernels/step_control/step_state.h"
#include "brigade/precision/host_device.h"
#include "brigade/precision/rounding.h"

namespace brigade::kernels {

// A whole tensor, of whose gradient AdafactorFactors makes factors and scales. Device memory.
struct AdafactorTensor {
  // [rows][columns], the fp32 master; null without scale_parameter.
  const float* param;
  // [rows][columns] of AdafactorOptions::grad_dtype.
  const void* grad;
  // [AdafactorFactorCount(rows, columns)], the state: of a matrix the means of squares of its rows,
  // then of its columns; of any other tensor those of its elements.
  float* factors;
  // [kAdafactorNumbers + the same], written: what AdafactorParams reads.
  float* scales;
  // [AdafactorWorkspaceSize(rows, columns)].
  double* workspace;
  // With a single row or column it is no matrix, which makes no difference but of rounding.
  int64_t rows;
  int64_t columns;
  // The index of the parameter group.
  int32_t group;
};

// A piece of a tensor. Device memory.
struct AdafactorSegment {
  // [size], the fp32 master.
  float* param;
  // [size], the first moment; null in a group whose beta1 is 0.
  float* m;
  // [size] of AdafactorOptions::grad_dtype.
  const void* grad;
  // [size] of AdafactorOptions::copy_dtype: the rounded new parameter; null without one.
  void* param_copy;
  int64_t size;
  // Of the whole tensor, which AdafactorFactors has written.
  const float* scales;
  // The tensor's shape, and its element with which the piece begins.
  int64_t rows;
  int64_t columns;
  int64_t first;
  // The index of the parameter group.
  int32_t group;
};

inline constexpr int kMaxAdafactorGroups = 128;
inline constexpr int kAdafactorRows = 64;
inline constexpr int kAdafactorColumns = 256;
inline constexpr int kAdafactorTensorLanes = 256;
// What scales begin with: the tensor's rate, and the factor on its update, which has the rate.
inline constexpr int kAdafactorNumbers = 4;

BRIGADE_HOST_DEVICE constexpr bool IsAdafactorMatrix(int64_t rows, int64_t columns) {
  return rows > 1 && columns > 1;
}
BRIGADE_HOST_DEVICE constexpr int64_t AdafactorFactorCount(int64_t rows, int64_t columns) {
  if (rows == 0 || columns == 0) return 0;
  return IsAdafactorMatrix(rows, columns) ? rows + columns : rows * columns;
}

// How a tensor is cut, and where the parts of its workspace begin, in doubles: sums of tiles of
// parameters and of updates, of rows by tile, and of columns by tile.
struct AdafactorGrid {
  bool is_matrix;
  int64_t size, height, width;
  int64_t down, across;
  int64_t of_updates, of_rows, of_columns, workspace;

  BRIGADE_HOST_DEVICE int64_t tiles() const { return down * across; }
};
BRIGADE_HOST_DEVICE constexpr AdafactorGrid AdafactorGridOf(int64_t rows, int64_t columns) {
  AdafactorGrid g = {};
  g.is_matrix = IsAdafactorMatrix(rows, columns);
  g.size = rows * columns;
  g.width = g.is_matrix ? columns : kAdafactorColumns;
  g.height = g.is_matrix ? rows : (g.size + kAdafactorColumns - 1) / kAdafactorColumns;
  g.down = (g.height + kAdafactorRows - 1) / kAdafactorRows;
  g.across = (g.width + kAdafactorColumns - 1) / kAdafactorColumns;
  g.of_updates = g.down * g.across;
  g.of_rows = 2 * g.of_updates;
  g.of_columns = g.of_rows + (g.is_matrix ? rows * g.across : 0);
  g.workspace = g.of_columns + (g.is_matrix ? columns * g.down : 0);
  return g;
}
BRIGADE_HOST_DEVICE constexpr int64_t AdafactorWorkspaceSize(int64_t rows, int64_t columns) {
  return rows == 0 || columns == 0 ? 0 : AdafactorGridOf(rows, columns).workspace;
}

// A group's constants that do not change from step to step.
struct AdafactorGroupConstants {
  float beta1, one_minus_beta1;
  float weight_decay;
};

// All that a call passes beside its tensors; adafactor_parameters.h fills it.
struct AdafactorParameters {
  // Device memory, both; or both are null, and the step is that of the numbers below.
  const StepState* state;
  const GroupStep* group_steps;
  // Counted from 1; 0 means that nobody filled this.
  int64_t step;
  float grad_multiplier;
  // The learning rates of so many groups.
  int32_t one_step_groups;
  float lr[kMaxOneStepGroups];
  // Of all groups.
  double eps1, eps2, clip_threshold, decay_rate;
  int32_t scale_parameter, relative_step, warmup_init;
  AdafactorGroupConstants groups[kMaxAdafactorGroups];
};

struct AdafactorPolicy {
  using Parameters = AdafactorParameters;
  static BRIGADE_INLINE GroupStep OwnStep(const AdafactorParameters& parameters, int32_t group) {
    if (group >= parameters.one_step_groups) return {};
    return {parameters.lr[group], parameters.lr[group], 1.0f};
  }
  // As Lion, the update reads the learning rate alone.
  static BRIGADE_INLINE bool IsFilled(const GroupStep& step) {
    return step.lr != 0.0f || step.inv_sqrt_correction != 0.0f;
  }
};

struct AdafactorParamPolicy : AdafactorPolicy {
  using Segment = AdafactorSegment;
};

// The natural logarithm of a number of steps, 1 or more, to some 2^-51 of itself.
BRIGADE_INLINE double AdafactorLog(int64_t number) {
  using precision::Add;
  using precision::Div;
  using precision::Fma;
  using precision::Mul;
  using precision::Sub;
  constexpr double kLog2 = 0x1.62e42fefa39efp-1;
  auto mantissa = static_cast<double>(number);
  int exponent = 0;
  for (; mantissa > 0x1.6a09e667f3bcdp+0; ++exponent) mantissa = Mul(mantissa, 0.5);
  // log(m) = 2 atanh(s), |s| <= 0.172: its series.
  const double s = Div(Sub(mantissa, 1.0), Add(mantissa, 1.0));
  const double square = Mul(s, s);
  double sum = 0.0;
  for (int k = 25; k >= 1; k -= 2) sum = Fma(sum, square, Div(2.0, static_cast<double>(k)));
  return Fma(static_cast<double>(exponent), kLog2, Mul(s, sum));
}

// exp(x), x from -700 to 0.
BRIGADE_INLINE double AdafactorExp(double x) {
  using precision::Div;
  using precision::Fma;
  using precision::Mul;
  constexpr double kLog2 = 0x1.62e42fefa39efp-1;
  const auto halvings = static_cast<int>(Div(-x, kLog2));
  double rest = Fma(static_cast<double>(halvings), kLog2, x);
  // -0.7 to 0: its series.
  double sum = 1.0;
  for (int k = 18; k >= 1; --k) sum = Fma(Div(rest, static_cast<double>(k)), sum, 1.0);
  for (int i = 0; i < halvings; ++i) sum = Mul(sum, 0.5);
  return sum;
}

// step^rate, rate from -10 to 0: what a step's squares count in the means of squares.
BRIGADE_INLINE double AdafactorNewShare(int64_t step, double rate) {
  return step == 1 ? 1.0 : AdafactorExp(precision::Mul(rate, AdafactorLog(step)));
}

// The rate of a step by its number alone, with relative_step: before the tensor's own scale.
BRIGADE_INLINE double AdafactorRelativeRate(int64_t step, bool warmup_init) {
  const auto steps = static_cast<double>(step);
  const double most = warmup_init ? precision::Mul(1e-6, steps) : 1e-2;
  const double falling = precision::Div(1.0, precision::Sqrt(steps));
  return most < falling ? most : falling;
}

// The constants of one parameter group in one step. Reads device memory.
struct AdafactorCoefficients {
  AdafactorGroupConstants group;
  // The factor on the gradient, which unscales and clips it.
  float multiplier;
  // Of means of squares, and of new squares.
  float old_share, new_share;
  float eps1;
  // The rate without the tensor's own scale.
  double rate;
};

BRIGADE_INLINE AdafactorCoefficients
MakeAdafactorCoefficients(const AdafactorParameters& parameters, int32_t group) {
  AdafactorCoefficients c;
  c.group = parameters.groups[group];
  c.multiplier = MultiplierOf(parameters);
  const int64_t step = parameters.state == nullptr ? parameters.step : parameters.state->step;
  const double share = AdafactorNewShare(step, parameters.decay_rate);
  c.new_share = static_cast<float>(share);
  c.old_share = static_cast<float>(precision::Sub(1.0, share));
  c.eps1 = static_cast<float>(parameters.eps1);
  c.rate = StepOf<AdafactorPolicy>(parameters, group).lr;
  if (parameters.relative_step != 0) {
    c.rate = AdafactorRelativeRate(step, parameters.warmup_init != 0);
  }
  return c;
}

BRIGADE_INLINE double AddAdafactorSquare(double lane, float x) {
  return precision::Fma(static_cast<double>(x), static_cast<double>(x), lane);
}

// The mean of squares of a row or column, of `count` elements whose squares have this sum.
BRIGADE_INLINE float AdafactorMean(const AdafactorCoefficients& c, double eps1, float mean,
                                   double sum, int64_t count) {
  const double fresh = precision::Add(precision::Div(sum, static_cast<double>(count)), eps1);
  return precision::Fma(c.old_share, mean, precision::Mul(c.new_share, static_cast<float>(fresh)));
}
// Of an element of a tensor that is no matrix.
BRIGADE_INLINE float AdafactorSecondMoment(const AdafactorCoefficients& c, float v, float g) {
  return precision::Fma(c.old_share, v, precision::Mul(c.new_share, precision::Fma(g, g, c.eps1)));
}

// What an element's gradient is multiplied by: 1 / sqrt(row / mean of rows) and 1 / sqrt(column);
// of no matrix 1 / sqrt(v).
BRIGADE_INLINE float AdafactorRowScale(float row, double mean) {
  const double quotient = precision::Div(static_cast<double>(row), mean);
  return static_cast<float>(precision::Div(1.0, precision::Sqrt(quotient)));
}
BRIGADE_INLINE float AdafactorScale(float mean_of_squares) {
  return static_cast<float>(
      precision::Div(1.0, precision::Sqrt(static_cast<double>(mean_of_squares))));
}
// The same for the elements of a tensor, of which there are many.
BRIGADE_INLINE float AdafactorElementScale(float v) {
  return precision::Div(1.0f, precision::Sqrt(v));
}

// The tensor's rate, by the sum of its parameters' squares.
BRIGADE_INLINE float AdafactorRate(const AdafactorCoefficients& c,
                                   const AdafactorParameters& parameters, double sum_of_squares,
                                   int64_t size) {
  if (parameters.scale_parameter == 0) return static_cast<float>(c.rate);
  const double mean = precision::Div(sum_of_squares, static_cast<double>(size));
  const double root = precision::Sqrt(mean);
  return static_cast<float>(
      precision::Mul(root < parameters.eps2 ? parameters.eps2 : root, c.rate));
}
// The factor on its update, by the sum of the update's squares; NaN stays.
BRIGADE_INLINE float AdafactorUpdateScale(const AdafactorParameters& parameters, float rate,
                                          double sum_of_squares, int64_t size) {
  const double mean = precision::Div(sum_of_squares, static_cast<double>(size));
  const double clip = precision::Div(precision::Sqrt(mean), parameters.clip_threshold);
  return static_cast<float>(precision::Div(static_cast<double>(rate), clip < 1.0 ? 1.0 : clip));
}

// What a piece's elements need of the numbers of their tensor.
struct AdafactorParamCoefficients {
  float multiplier;
  float scale;
  // The factor on the parameter: 1 - rate * weight decay.
  float decay_factor;
  float beta1, one_minus_beta1;
};
BRIGADE_INLINE AdafactorParamCoefficients MakeAdafactorParamCoefficients(
    const AdafactorParameters& parameters, const float* scales, int32_t group) {
  const AdafactorGroupConstants& of = parameters.groups[group];
  return {MultiplierOf(parameters), scales[1], precision::Fma(-scales[0], of.weight_decay, 1.0f),
          of.beta1, of.one_minus_beta1};
}

// An update before its factor.
BRIGADE_INLINE float AdafactorUpdate(float g, float row, float column) {
  return precision::Mul(precision::Mul(g, row), column);
}
BRIGADE_INLINE void AdafactorParam(const AdafactorParamCoefficients& c, float update, float& param,
                                   float* m) {
  float scaled = precision::Mul(c.scale, update);
  if (m != nullptr) {
    *m = precision::Fma(c.beta1, *m, precision::Mul(c.one_minus_beta1, scaled));
    scaled = *m;
  }
  param = precision::Fma(param, c.decay_factor, -scaled);
}

}  // namespace brigade::kernels

#endif  // BRIGADE_KERNELS_ADAFACTOR_ADAFACTOR_MATH_H_
