#ifndef BRIGADE_NN_ATTENTION_MATH_H_
#define BRIGADE_NN_ATTENTION_MATH_H_

// Attention row by row, without a matrix of scores: for GPUs, where a warp has a row. The CPU has
// tiles (attention_cpu.h). Work: 2 (forward), 3 (queries) and 4 (keys) dot products or sums of a
// head's width for each pair of positions, each with loads of what other rows load as well.
//
// Source: Dao 2023 (arXiv 2307.08691), with tiles of one row.

#include <cmath>
#include <cstdint>
#include <limits>

#include "brigade/nn/functions.h"
#include "brigade/nn/rows.h"

namespace brigade::nn {

inline constexpr int64_t kMaxHeadWidth = 256;

// What all formulas read. Rows are numbered (batch, head, position).
template <typename T>
struct AttentionArrays {
  const T* qkv;
  const Wide<T>* log_sum_exp;
  int64_t context, heads, head_width;
  Wide<T> scale;

  // Where a position's head begins in an array of `parts` matrices side by side.
  BRIGADE_INLINE int64_t At(int64_t r, int64_t position, int64_t part, int64_t parts) const {
    const int64_t head = r / context, width = heads * head_width;
    return ((head / heads * context + position) * parts + part) * width + head % heads * head_width;
  }
  BRIGADE_INLINE const T* Query(int64_t r, int64_t position) const {
    return qkv + At(r, position, 0, 3);
  }
  BRIGADE_INLINE const T* Key(int64_t r, int64_t position) const {
    return qkv + At(r, position, 1, 3);
  }
  BRIGADE_INLINE const T* Value(int64_t r, int64_t position) const {
    return qkv + At(r, position, 2, 3);
  }
  template <typename Row>
  BRIGADE_INLINE Wide<T> Dot(Row row, const T* a, const T* b) const {
    return row.template Sum<Wide<T>>(
        head_width, [&](int64_t c) BRIGADE_NN_BODY { return Widen(a[c]) * Widen(b[c]); });
  }
};

// Sums of a row as wide as a head, of which each of the row's threads has its columns.
template <typename Row, typename W>
struct HeadSums {
  W sums[(kMaxHeadWidth + Row::kThreads - 1) / Row::kThreads];

  BRIGADE_INLINE W& operator[](int64_t column) { return sums[column / Row::kThreads]; }
};

template <typename T>
struct AttentionRows {
  AttentionArrays<T> in;
  T* out;
  Wide<T>* log_sum_exp;

  template <typename Row>
  BRIGADE_INLINE void operator()(Row row, int64_t r) const {
    using W = Wide<T>;
    const int64_t position = r % in.context;
    const T* const q = in.Query(r, position);
    HeadSums<Row, W> sums;
    row.ForEach(in.head_width, [&](int64_t c) BRIGADE_NN_BODY { sums[c] = 0; });
    constexpr W kInfinity = std::numeric_limits<W>::infinity();
    W max = -kInfinity, total = 0;
    for (int64_t key = 0; key <= position; ++key) {
      const W score = in.Dot(row, q, in.Key(r, key)) * in.scale;
      const W before = max;
      max = score > max ? score : max;
      // 0 where the difference would be that of two infinities; a NaN stays.
      const W decay = before == -kInfinity ? W(0) : Exp(before - max);
      const W p = score == -kInfinity ? W(0) : Exp(score - max);
      const T* const v = in.Value(r, key);
      row.ForEach(in.head_width,
                  [&](int64_t c) BRIGADE_NN_BODY { sums[c] = sums[c] * decay + p * Widen(v[c]); });
      total = total * decay + p;
    }
    T* const to = out + in.At(r, position, 0, 1);
    const W inverse = W(1) / total;
    row.ForEach(in.head_width, [&](int64_t c) BRIGADE_NN_BODY { to[c] = T(sums[c] * inverse); });
    if (row.first()) log_sum_exp[r] = max + std::log(total);
  }
};

// delta = the sum of P dP over the keys that a query sees, which is the sum of dout * out over a
// head. 16-bit types take the former: their `out` was rounded (attention_delta_cpu.cc).
template <typename T>
struct AttentionDeltaRows {
  AttentionArrays<T> in;
  const T* out;
  const T* dout;
  Wide<T>* delta;

  template <typename Row>
  BRIGADE_INLINE void operator()(Row row, int64_t r) const {
    using W = Wide<T>;
    const int64_t position = r % in.context;
    const T* const up = dout + in.At(r, position, 0, 1);
    W sum = 0;
    if constexpr (sizeof(T) == sizeof(W)) {
      sum = in.Dot(row, out + in.At(r, position, 0, 1), up);
    } else {
      const T* const q = in.Query(r, position);
      for (int64_t key = 0; key <= position; ++key) {
        const W p = Exp(in.Dot(row, q, in.Key(r, key)) * in.scale - in.log_sum_exp[r]);
        sum += p * in.Dot(row, up, in.Value(r, key));
      }
    }
    if (row.first()) delta[r] = sum;
  }
};

// The gradients of queries.
template <typename T>
struct AttentionBackwardQueryRows {
  AttentionArrays<T> in;
  const T* dout;
  const Wide<T>* delta;
  T* dqkv;

  template <typename Row>
  BRIGADE_INLINE void operator()(Row row, int64_t r) const {
    using W = Wide<T>;
    const int64_t position = r % in.context;
    const T* const q = in.Query(r, position);
    const T* const up = dout + in.At(r, position, 0, 1);
    HeadSums<Row, W> sums;
    row.ForEach(in.head_width, [&](int64_t c) BRIGADE_NN_BODY { sums[c] = 0; });
    for (int64_t key = 0; key <= position; ++key) {
      const T* const k = in.Key(r, key);
      const W p = Exp(in.Dot(row, q, k) * in.scale - in.log_sum_exp[r]);
      const W d = p * (in.Dot(row, up, in.Value(r, key)) - delta[r]);
      row.ForEach(in.head_width, [&](int64_t c) BRIGADE_NN_BODY { sums[c] += d * Widen(k[c]); });
    }
    T* const to = dqkv + in.At(r, position, 0, 3);
    row.ForEach(in.head_width, [&](int64_t c) BRIGADE_NN_BODY { to[c] = T(sums[c] * in.scale); });
  }
};

// The gradients of keys and values.
template <typename T>
struct AttentionBackwardKeyRows {
  AttentionArrays<T> in;
  const T* dout;
  const Wide<T>* delta;
  T* dqkv;

  template <typename Row>
  BRIGADE_INLINE void operator()(Row row, int64_t r) const {
    using W = Wide<T>;
    const int64_t position = r % in.context, first = r - position;
    const T* const k = in.Key(r, position);
    const T* const v = in.Value(r, position);
    HeadSums<Row, W> dkey, dvalue;
    row.ForEach(in.head_width, [&](int64_t c) BRIGADE_NN_BODY { dkey[c] = dvalue[c] = 0; });
    for (int64_t query = position; query < in.context; ++query) {
      const T* const q = in.Query(r, query);
      const T* const up = dout + in.At(r, query, 0, 1);
      const W p = Exp(in.Dot(row, q, k) * in.scale - in.log_sum_exp[first + query]);
      const W d = p * (in.Dot(row, up, v) - delta[first + query]);
      row.ForEach(in.head_width, [&](int64_t c) BRIGADE_NN_BODY {
        dkey[c] += d * Widen(q[c]);
        dvalue[c] += p * Widen(up[c]);
      });
    }
    T* const to = dqkv + in.At(r, position, 1, 3);
    T* const to_value = dqkv + in.At(r, position, 2, 3);
    row.ForEach(in.head_width, [&](int64_t c) BRIGADE_NN_BODY {
      to[c] = T(dkey[c] * in.scale);
      to_value[c] = T(dvalue[c]);
    });
  }
};

}  // namespace brigade::nn

#endif  // BRIGADE_NN_ATTENTION_MATH_H_
