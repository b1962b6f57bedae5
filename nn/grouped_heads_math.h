#ifndef BRIGADE_NN_GROUPED_HEADS_MATH_H_
#define BRIGADE_NN_GROUPED_HEADS_MATH_H_

// Source: Ainslie et al. 2023 (arXiv 2305.13245).

#include <cstdint>

#include "brigade/nn/functions.h"
#include "brigade/nn/rows.h"

namespace brigade::nn {

// Numbers of heads side by side in a row of `grouped`, and in one of `all`.
struct GroupedHeadsPlaces {
  int64_t heads;
  int64_t key_value_heads;
  int64_t head_width;

  BRIGADE_INLINE int64_t grouped_columns() const {
    return (heads + 2 * key_value_heads) * head_width;
  }
  BRIGADE_INLINE int64_t columns() const { return 3 * heads * head_width; }
  // The head in `grouped` that head h of `all`, of 3 * heads, is.
  BRIGADE_INLINE int64_t Source(int64_t h) const {
    if (h < heads) return h;
    const int64_t group = heads / key_value_heads, which = h / heads - 1;
    return heads + which * key_value_heads + h % heads / group;
  }
};

// Copies each head to where it belongs.
template <typename T>
struct RepeatHeadsRows {
  GroupedHeadsPlaces places;
  const T* grouped;
  T* all;

  template <typename Row>
  BRIGADE_INLINE void operator()(Row row, int64_t r) const {
    for (int64_t h = 0; h < 3 * places.heads; ++h) {
      const T* const from =
          grouped + r * places.grouped_columns() + places.Source(h) * places.head_width;
      T* const to = all + r * places.columns() + h * places.head_width;
      row.ForEach(places.head_width, [&](int64_t c) BRIGADE_NN_BODY { to[c] = from[c]; });
    }
  }
};

// The sum over a group, in ascending order of its heads.
template <typename T>
struct SumHeadsRows {
  GroupedHeadsPlaces places;
  const T* all;
  T* grouped;

  template <typename Row>
  BRIGADE_INLINE void operator()(Row row, int64_t r) const {
    const int64_t width = places.head_width;
    const int64_t group = places.heads / places.key_value_heads;
    const T* const in = all + r * places.columns();
    T* const out = grouped + r * places.grouped_columns();
    row.ForEach(places.heads * width, [&](int64_t c) BRIGADE_NN_BODY { out[c] = in[c]; });
    // Groups of keys and then of values follow each other in both.
    for (int64_t g = 0; g < 2 * places.key_value_heads; ++g) {
      const T* const from = in + (places.heads + g * group) * width;
      T* const to = out + (places.heads + g) * width;
      row.ForEach(width, [&](int64_t c) BRIGADE_NN_BODY {
        Wide<T> sum = Widen(from[c]);
        for (int64_t h = 1; h < group; ++h) sum += Widen(from[h * width + c]);
        to[c] = T(sum);
      });
    }
  }
};

}  // namespace brigade::nn

#endif  // BRIGADE_NN_GROUPED_HEADS_MATH_H_
