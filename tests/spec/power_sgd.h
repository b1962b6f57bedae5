#ifndef BRIGADE_TESTS_SPEC_POWER_SGD_H_
#define BRIGADE_TESTS_SPEC_POWER_SGD_H_

// The executable specification of a mean by factors of a low rank (PowerSGD, Vogels et al. 2019,
// arXiv 1905.13727), of a bucket of matrices and vectors.
//
// A tensor of `rows` times `columns` has factors if 2 rank (rows + columns) < rows * columns. What
// earlier calls left out of it is added to it; then, for each such matrix M of each rank:
//
//   Q     kept from the call before, where a column of zeros becomes ColumnSeed; Gram-Schmidt
//   P     the sum of M Q over ranks, in ascending order; Gram-Schmidt twice, since what is left of
//         columns that depend on earlier ones may have a part along these
//   Q     the sum of M^T P over ranks, in ascending order, times 1 / ranks; kept. Of several
//         iterations all but the last go on from P's line with the sum, after Gram-Schmidt
//   mean  P Q^T, and M without it is left out
//
// Other tensors are added in ascending order of ranks, times 1 / ranks. All is float; results are
// rounded to the bucket's format. Where one of these sums but that of M Q has something that is not
// finite, or the step is skipped, what was left out and Q stay as they were.

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "brigade/tests/spec/formats.h"
#include "brigade/tests/spec/low_rank.h"

namespace brigade::spec {

// Of a bucket.
struct TensorPlace {
  size_t offset = 0;
  size_t rows = 0;
  size_t columns = 0;
};

inline bool HasFactors(const TensorPlace& place, size_t rank) {
  return 2 * rank * (place.rows + place.columns) < place.rows * place.columns;
}

// In [-1, 1): the upper 24 bits of SplitMix64's output for a counter.
inline float ColumnSeed(uint64_t column, uint64_t row) {
  uint64_t z = column * (uint64_t{1} << 40) + row + 0x9e3779b97f4a7c15u;
  z ^= z >> 30;
  z *= 0xbf58476d1ce4e5b9u;
  z ^= z >> 27;
  z *= 0x94d049bb133111ebu;
  z ^= z >> 31;
  return static_cast<float>(std::ldexp(static_cast<double>(z >> 40), -23) - 1.0);
}

struct PowerSgdState {
  // Of each rank, and of each of its tensors: empty without factors.
  std::vector<std::vector<Matrix>> left_out;
  // Of each tensor, the same on all ranks.
  std::vector<Columns> q;
};

inline PowerSgdState InitialPowerSgdState(const std::vector<TensorPlace>& places, size_t rank,
                                          size_t ranks) {
  PowerSgdState state;
  state.left_out.resize(ranks);
  for (const TensorPlace& place : places) {
    const bool has = HasFactors(place, rank);
    const Matrix zeros = {place.rows, place.columns,
                          std::vector<float>(has ? place.rows * place.columns : 0)};
    for (auto& of_rank : state.left_out) of_rank.push_back(zeros);
    state.q.push_back(has ? Columns(rank, std::vector<float>(place.columns)) : Columns());
  }
  return state;
}

inline void AddTo(std::vector<float>& sum, const std::vector<float>& more) {
  for (size_t i = 0; i < sum.size(); ++i) sum[i] = sum[i] + more[i];
}

// The mean of the ranks' buckets; elements between tensors are 0.
inline std::vector<float> PowerSgdMean(const std::vector<std::vector<float>>& of_rank,
                                       const std::vector<TensorPlace>& places, size_t rank,
                                       double epsilon, bool skip, Format format,
                                       PowerSgdState& state, int iterations = 1) {
  const PowerSgdState before = state;
  const size_t ranks = of_rank.size();
  const auto factor = static_cast<float>(1.0 / static_cast<double>(ranks));
  std::vector<float> output(of_rank[0].size());
  bool counts = !skip;
  const auto expect_finite = [&](const std::vector<float>& values) {
    for (const float x : values) counts = counts && std::isfinite(x);
  };
  uint64_t column = 0;
  for (size_t t = 0; t < places.size(); ++t) {
    const TensorPlace& place = places[t];
    const size_t size = place.rows * place.columns;
    std::vector<float> mean;
    if (!HasFactors(place, rank)) {
      for (size_t r = 0; r < ranks; ++r) {
        const auto begin = of_rank[r].begin() + static_cast<std::ptrdiff_t>(place.offset);
        const std::vector<float> values(begin, begin + static_cast<std::ptrdiff_t>(size));
        if (r == 0) {
          mean = values;
        } else {
          AddTo(mean, values);
        }
      }
      expect_finite(mean);
      for (float& x : mean) x = x * factor;
    } else {
      Columns& q = state.q[t];
      for (std::vector<float>& each : q) {
        bool zeros = true;
        for (const float x : each) zeros = zeros && x == 0;
        if (zeros) {
          for (size_t i = 0; i < each.size(); ++i) each[i] = ColumnSeed(column, i);
        }
        ++column;
      }
      Orthogonalize(q, epsilon);
      for (size_t r = 0; r < ranks; ++r) {
        Matrix& m = state.left_out[r][t];
        for (size_t i = 0; i < size; ++i) {
          m.values[i] = m.values[i] + of_rank[r][place.offset + i];
        }
      }
      Columns p;
      for (int iteration = 0; iteration < iterations; ++iteration) {
        if (iteration > 0) Orthogonalize(q, epsilon);
        for (size_t r = 0; r < ranks; ++r) {
          const Columns own = TimesColumns(state.left_out[r][t], q);
          if (r == 0) p = own;
          for (size_t k = 0; r > 0 && k < rank; ++k) AddTo(p[k], own[k]);
        }
        for (int pass = 0; pass < 2; ++pass) Orthogonalize(p, epsilon);
        for (size_t r = 0; r < ranks; ++r) {
          const Columns own = TransposedTimesColumns(state.left_out[r][t], p);
          if (r == 0) q = own;
          for (size_t k = 0; r > 0 && k < rank; ++k) AddTo(q[k], own[k]);
        }
      }
      for (std::vector<float>& each : q) {
        expect_finite(each);
        for (float& x : each) x = x * factor;
      }
      for (size_t r = 0; r < ranks; ++r) mean = Restore(state.left_out[r][t], p, q).values;
    }
    for (size_t i = 0; i < size; ++i) output[place.offset + i] = Round(format, mean[i]);
  }
  if (!counts) state = before;
  return output;
}

}  // namespace brigade::spec

#endif  // BRIGADE_TESTS_SPEC_POWER_SGD_H_
