#ifndef BRIGADE_NN_CACHED_ATTENTION_MATH_H_
#define BRIGADE_NN_CACHED_ATTENTION_MATH_H_

// Row by row, as attention_math.h.

#include <cmath>
#include <cstdint>
#include <limits>

#include "brigade/nn/attention_math.h"
#include "brigade/nn/functions.h"
#include "brigade/nn/rows.h"

namespace brigade::nn {

template <typename T>
struct CachedAttentionArrays {
  // [samples * count, (heads + 2 * key_value_heads) * head_width].
  const T* projected;
  // [samples, capacity, key_value_heads * head_width].
  T *keys, *values;
  int64_t capacity, first, count;
  int64_t heads, key_value_heads, head_width;
  Wide<T> scale;

  BRIGADE_INLINE int64_t projected_columns() const {
    return (heads + 2 * key_value_heads) * head_width;
  }
  BRIGADE_INLINE int64_t cached_columns() const { return key_value_heads * head_width; }
  // Where a position of a sample is in the cache.
  BRIGADE_INLINE int64_t At(int64_t sample, int64_t position) const {
    return (sample * capacity + position) * cached_columns();
  }
};

// Puts the keys and values of the new positions into the cache.
template <typename T>
struct AppendToCacheRows {
  CachedAttentionArrays<T> in;

  template <typename Row>
  BRIGADE_INLINE void operator()(Row row, int64_t r) const {
    const int64_t columns = in.cached_columns();
    const T* const from = in.projected + r * in.projected_columns() + in.heads * in.head_width;
    const int64_t at = in.At(r / in.count, in.first + r % in.count);
    T* const keys = in.keys + at;
    T* const values = in.values + at;
    row.ForEach(columns, [&](int64_t c) BRIGADE_NN_BODY {
      keys[c] = from[c];
      values[c] = from[columns + c];
    });
  }
};

// A row is a head of a new position.
template <typename T>
struct CachedAttentionRows {
  CachedAttentionArrays<T> in;
  // [samples * count, heads * head_width].
  T* out;

  template <typename Row>
  BRIGADE_INLINE void operator()(Row row, int64_t r) const {
    using W = Wide<T>;
    const int64_t position = r / in.heads, head = r % in.heads;
    const int64_t seen = in.first + position % in.count + 1;
    const int64_t at =
        in.At(position / in.count, 0) + head / (in.heads / in.key_value_heads) * in.head_width;
    const T* const q = in.projected + position * in.projected_columns() + head * in.head_width;
    HeadSums<Row, W> sums;
    row.ForEach(in.head_width, [&](int64_t c) BRIGADE_NN_BODY { sums[c] = 0; });
    constexpr W kInfinity = std::numeric_limits<W>::infinity();
    W max = -kInfinity, total = 0;
    for (int64_t key = 0; key < seen; ++key) {
      const T* const k = in.keys + at + key * in.cached_columns();
      const T* const v = in.values + at + key * in.cached_columns();
      const W score = row.template Sum<W>(in.head_width, [&](int64_t c) BRIGADE_NN_BODY {
        return Widen(q[c]) * Widen(k[c]);
      }) * in.scale;
      const W before = max;
      max = score > max ? score : max;
      const W decay = before == -kInfinity ? W(0) : Exp(before - max);
      const W p = score == -kInfinity ? W(0) : Exp(score - max);
      row.ForEach(in.head_width,
                  [&](int64_t c) BRIGADE_NN_BODY { sums[c] = sums[c] * decay + p * Widen(v[c]); });
      total = total * decay + p;
    }
    T* const to = out + r * in.head_width;
    const W inverse = W(1) / total;
    row.ForEach(in.head_width, [&](int64_t c) BRIGADE_NN_BODY { to[c] = T(sums[c] * inverse); });
  }
};

}  // namespace brigade::nn

#endif  // BRIGADE_NN_CACHED_ATTENTION_MATH_H_
