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
#include "brigade/nn/segments.h"

namespace brigade::nn {

inline constexpr int64_t kMaxHeadWidth = 256;

// What all formulas read: some queries and some keys of each text. Arrays begin at the first of
// them, and have `context` positions from one text to the next; so have statistics from one head to
// the next. Rows are numbered (batch, head, query), or (batch, head, key).
template <typename T>
struct AttentionArrays {
  const T *queries, *keys, *values;
  const Wide<T>* log_sum_exp;
  int64_t context, query_count, key_count;
  // Whether a query sees the keys up to its own number; else it sees all.
  bool causal;
  // From one position to the next.
  int64_t query_leading, key_leading;
  int64_t heads, head_width;
  Wide<T> scale;
  // Of causal attention of all positions.
  Segments segments = {};

  BRIGADE_INLINE int64_t width() const { return heads * head_width; }
  // Where a position of a head, numbered through all texts, begins in an array whose positions are
  // `leading` apart.
  BRIGADE_INLINE int64_t At(int64_t head, int64_t position, int64_t leading) const {
    return (head / heads * context + position) * leading + head % heads * head_width;
  }
  BRIGADE_INLINE const T* Query(int64_t head, int64_t position) const {
    return queries + At(head, position, query_leading);
  }
  BRIGADE_INLINE const T* Key(int64_t head, int64_t position) const {
    return keys + At(head, position, key_leading);
  }
  BRIGADE_INLINE const T* Value(int64_t head, int64_t position) const {
    return values + At(head, position, key_leading);
  }
  // The keys that a query sees, and the queries that see a key, of a head: from the first on, to
  // behind the last.
  BRIGADE_INLINE int64_t FirstKeyOf(int64_t head, int64_t query) const {
    return segments.Begin(head / heads, query);
  }
  BRIGADE_INLINE int64_t KeysOf(int64_t query) const { return causal ? query + 1 : key_count; }
  BRIGADE_INLINE int64_t FirstQueryOf(int64_t key) const { return causal ? key : 0; }
  BRIGADE_INLINE int64_t QueriesOf(int64_t head, int64_t key) const {
    return segments.End(head / heads, key, query_count);
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

// Out: T, or Wide<T>.
template <typename T, typename Out = T>
struct AttentionRows {
  AttentionArrays<T> in;
  Out* out;
  Wide<T>* log_sum_exp;

  template <typename Row>
  BRIGADE_INLINE void operator()(Row row, int64_t r) const {
    using W = Wide<T>;
    const int64_t head = r / in.query_count, position = r % in.query_count;
    const T* const q = in.Query(head, position);
    HeadSums<Row, W> sums;
    row.ForEach(in.head_width, [&](int64_t c) BRIGADE_NN_BODY { sums[c] = 0; });
    constexpr W kInfinity = std::numeric_limits<W>::infinity();
    W max = -kInfinity, total = 0;
    for (int64_t key = in.FirstKeyOf(head, position); key < in.KeysOf(position); ++key) {
      const W score = in.Dot(row, q, in.Key(head, key)) * in.scale;
      const W before = max;
      max = score > max ? score : max;
      // 0 where the difference would be that of two infinities; a NaN stays.
      const W decay = before == -kInfinity ? W(0) : Exp(before - max);
      const W p = score == -kInfinity ? W(0) : Exp(score - max);
      const T* const v = in.Value(head, key);
      row.ForEach(in.head_width,
                  [&](int64_t c) BRIGADE_NN_BODY { sums[c] = sums[c] * decay + p * Widen(v[c]); });
      total = total * decay + p;
    }
    Out* const to = out + in.At(head, position, in.width());
    const W inverse = W(1) / total;
    row.ForEach(in.head_width, [&](int64_t c) BRIGADE_NN_BODY { to[c] = Out(sums[c] * inverse); });
    if (row.first()) log_sum_exp[head * in.context + position] = max + std::log(total);
  }
};

// delta = the sum of P dP over the keys that a query sees, which is the sum of dout * out over a
// head. 16-bit types take the former where one call has all keys: their `out` was rounded
// (attention_delta_cpu.cc).
template <typename T, bool kOfOut = sizeof(T) == sizeof(Wide<T>)>
struct AttentionDeltaRows {
  AttentionArrays<T> in;
  const T* out;
  const T* dout;
  Wide<T>* delta;

  template <typename Row>
  BRIGADE_INLINE void operator()(Row row, int64_t r) const {
    using W = Wide<T>;
    const int64_t head = r / in.query_count, position = r % in.query_count;
    const int64_t statistic = head * in.context + position;
    const T* const up = dout + in.At(head, position, in.width());
    W sum = 0;
    if constexpr (kOfOut) {
      sum = in.Dot(row, out + in.At(head, position, in.width()), up);
    } else {
      const T* const q = in.Query(head, position);
      for (int64_t key = in.FirstKeyOf(head, position); key < in.KeysOf(position); ++key) {
        const W p = Exp(in.Dot(row, q, in.Key(head, key)) * in.scale - in.log_sum_exp[statistic]);
        sum += p * in.Dot(row, up, in.Value(head, key));
      }
    }
    if (row.first()) delta[statistic] = sum;
  }
};

// Where gradients go, numbers of T or of Wide<T>: positions of queries, and of keys and values, are
// so far apart.
struct AttentionGradients {
  void *queries, *keys, *values;
  int64_t query_leading, key_leading;
  // Whether those of queries are added to what is there.
  bool adds_queries = false;
};

// The gradients of queries.
template <typename T, typename Out = T>
struct AttentionBackwardQueryRows {
  AttentionArrays<T> in;
  const T* dout;
  const Wide<T>* delta;
  AttentionGradients to;

  template <typename Row>
  BRIGADE_INLINE void operator()(Row row, int64_t r) const {
    using W = Wide<T>;
    const int64_t head = r / in.query_count, position = r % in.query_count;
    const int64_t statistic = head * in.context + position;
    const T* const q = in.Query(head, position);
    const T* const up = dout + in.At(head, position, in.width());
    HeadSums<Row, W> sums;
    row.ForEach(in.head_width, [&](int64_t c) BRIGADE_NN_BODY { sums[c] = 0; });
    for (int64_t key = in.FirstKeyOf(head, position); key < in.KeysOf(position); ++key) {
      const T* const k = in.Key(head, key);
      const W p = Exp(in.Dot(row, q, k) * in.scale - in.log_sum_exp[statistic]);
      const W d = p * (in.Dot(row, up, in.Value(head, key)) - delta[statistic]);
      row.ForEach(in.head_width, [&](int64_t c) BRIGADE_NN_BODY { sums[c] += d * Widen(k[c]); });
    }
    Out* const out = static_cast<Out*>(to.queries) + in.At(head, position, to.query_leading);
    row.ForEach(in.head_width, [&](int64_t c) BRIGADE_NN_BODY {
      StoreGradient(out + c, to.adds_queries, sums[c] * in.scale);
    });
  }
};

// The gradients of keys and values.
template <typename T, typename Out = T>
struct AttentionBackwardKeyRows {
  AttentionArrays<T> in;
  const T* dout;
  const Wide<T>* delta;
  AttentionGradients to;

  template <typename Row>
  BRIGADE_INLINE void operator()(Row row, int64_t r) const {
    using W = Wide<T>;
    const int64_t head = r / in.key_count, position = r % in.key_count;
    const int64_t first = head * in.context;
    const T* const k = in.Key(head, position);
    const T* const v = in.Value(head, position);
    HeadSums<Row, W> dkey, dvalue;
    row.ForEach(in.head_width, [&](int64_t c) BRIGADE_NN_BODY { dkey[c] = dvalue[c] = 0; });
    const int64_t queries = in.QueriesOf(head, position);
    for (int64_t query = in.FirstQueryOf(position); query < queries; ++query) {
      const T* const q = in.Query(head, query);
      const T* const up = dout + in.At(head, query, in.width());
      const W p = Exp(in.Dot(row, q, k) * in.scale - in.log_sum_exp[first + query]);
      const W d = p * (in.Dot(row, up, v) - delta[first + query]);
      row.ForEach(in.head_width, [&](int64_t c) BRIGADE_NN_BODY {
        dkey[c] += d * Widen(q[c]);
        dvalue[c] += p * Widen(up[c]);
      });
    }
    const int64_t at = in.At(head, position, to.key_leading);
    Out* const keys = static_cast<Out*>(to.keys) + at;
    Out* const values = static_cast<Out*>(to.values) + at;
    row.ForEach(in.head_width, [&](int64_t c) BRIGADE_NN_BODY {
      keys[c] = Out(dkey[c] * in.scale);
      values[c] = Out(dvalue[c]);
    });
  }
};

// Joins what queries have made of some keys with what they have made of others. Rows are numbered
// (batch, head, query). With l and l' the two log-sum-exps, the joint one is
// m = l + ln(1 + e^(l' - l)), l the larger one, and what was made has weights e^(l - m) and
// e^(l' - m). A row that has seen nothing has l = -infinity, and weight 0 whatever it holds.
template <typename W>
struct MergeAttentionRows {
  int64_t context, query_count, heads, head_width;
  const W *from, *from_log_sum_exp;
  W *to, *to_log_sum_exp;

  template <typename Row>
  BRIGADE_INLINE void operator()(Row row, int64_t r) const {
    const int64_t head = r / query_count, position = r % query_count;
    const int64_t statistic = head * context + position;
    const int64_t at =
        (head / heads * context + position) * heads * head_width + head % heads * head_width;
    // Read by the thread alone that will write it.
    const W mine =
        row.template Sum<W>(1, [&](int64_t) BRIGADE_NN_BODY { return to_log_sum_exp[statistic]; });
    const W other = from_log_sum_exp[statistic];
    constexpr W kNone = -std::numeric_limits<W>::infinity();
    if (other == kNone) return;
    if (mine == kNone) {
      row.ForEach(head_width, [&](int64_t c) BRIGADE_NN_BODY { to[at + c] = from[at + c]; });
      if (row.first()) to_log_sum_exp[statistic] = other;
      return;
    }
    const W larger = mine > other ? mine : other;
    const W difference = mine > other ? other - mine : mine - other;
    const W both = larger + std::log1p(Exp(difference));
    const W weight = Exp(mine - both), other_weight = Exp(other - both);
    row.ForEach(head_width, [&](int64_t c) BRIGADE_NN_BODY {
      to[at + c] = to[at + c] * weight + from[at + c] * other_weight;
    });
    if (row.first()) to_log_sum_exp[statistic] = both;
  }
};

}  // namespace brigade::nn

#endif  // BRIGADE_NN_ATTENTION_MATH_H_
