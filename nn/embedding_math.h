#ifndef BRIGADE_NN_EMBEDDING_MATH_H_
#define BRIGADE_NN_EMBEDDING_MATH_H_

#include <cstdint>
#include <limits>

#include "brigade/nn/functions.h"
#include "brigade/nn/rows.h"
#include "brigade/nn/segments.h"
#include "brigade/nn/token_ids.h"
#include "brigade/nn/token_order.h"

namespace brigade::nn {

// x[b, t] = tokens[ids[b, t]] (+ positions[t]), NaN for an id that is none, -0 for one elsewhere:
// added to anything it leaves the bits
template <typename T>
struct EmbeddingRows {
  TokenIds ids;
  const T* tokens;
  // May be null.
  const T* positions;
  T* x;
  int64_t columns;
  Segments segments = {};

  template <typename Row>
  BRIGADE_INLINE void operator()(Row row, int64_t r) const {
    const int64_t id = ids.token(r);
    T* const out = x + r * columns;
    if (id < 0) {
      const T value =
          T(id == TokenIds::kNone ? std::numeric_limits<Wide<T>>::quiet_NaN() : -Wide<T>(0));
      row.ForEach(columns, [&](int64_t c) BRIGADE_NN_BODY { out[c] = value; });
      return;
    }
    const T* const token = tokens + id * columns;
    if (positions == nullptr) {
      row.ForEach(columns, [&](int64_t c) BRIGADE_NN_BODY { out[c] = token[c]; });
    } else {
      const int64_t t = r % ids.context();
      const T* const position = positions + (t - segments.Begin(r / ids.context(), t)) * columns;
      row.ForEach(columns, [&](int64_t c) BRIGADE_NN_BODY {
        out[c] = T(Widen(token[c]) + Widen(position[c]));
      });
    }
  }
};

// dtokens[v] (+)= sum of dx[r] over the rows r with token v, in ascending order; `outer` is v.
template <typename T>
struct TokenGradient {
  TokenOrder order;
  const T* dx;
  T* dtokens;
  bool accumulate;
  int64_t columns;

  using Sum = Wide<T>;
  static constexpr int kSums = 1;

  BRIGADE_INLINE int64_t Rows(int64_t v) const {
    return order.first_row[v + 1] - order.first_row[v];
  }
  BRIGADE_INLINE int64_t FirstPart(int64_t v) const { return order.FirstPart(v); }
  // The vocabulary behind the last part.
  BRIGADE_INLINE int64_t OuterOf(int64_t part) const {
    int64_t begin = 0, end = order.vocabulary + 1;
    while (begin < end) {
      const int64_t middle = (begin + end) / 2;
      if (order.FirstPart(middle) <= part) {
        begin = middle + 1;
      } else {
        end = middle;
      }
    }
    return begin - 1;
  }

  template <int kWidth>
  BRIGADE_INLINE void Add(int64_t v, int64_t first, int64_t begin, int64_t end,
                          Sum (&sums)[kSums][kWidth]) const {
    const uint32_t* const rows = order.rows + order.first_row[v];
    for (int64_t i = begin; i < end; ++i) {
      const T* const in = dx + rows[i] * columns + first;
      for (int j = 0; j < kWidth; ++j) sums[0][j] += Widen(in[j]);
    }
  }

  template <int kWidth>
  BRIGADE_INLINE void Store(int64_t v, int64_t first, const Sum (&sums)[kSums][kWidth]) const {
    for (int j = 0; j < kWidth; ++j) {
      StoreGradient(dtokens + v * columns + first + j, accumulate, sums[0][j]);
    }
  }
};

// dpositions[t] (+)= sum over b of dx[b, t]; `outer` is t.
template <typename T>
struct PositionGradient {
  const T* dx;
  T* dpositions;
  bool accumulate;
  int64_t batch;
  int64_t context;
  int64_t columns;

  using Sum = Wide<T>;
  static constexpr int kSums = 1;

  BRIGADE_INLINE int64_t Rows(int64_t) const { return batch; }

  template <int kWidth>
  BRIGADE_INLINE void Add(int64_t t, int64_t first, int64_t begin, int64_t end,
                          Sum (&sums)[kSums][kWidth]) const {
    for (int64_t b = begin; b < end; ++b) {
      const T* const in = dx + (b * context + t) * columns + first;
      for (int j = 0; j < kWidth; ++j) sums[0][j] += Widen(in[j]);
    }
  }

  template <int kWidth>
  BRIGADE_INLINE void Store(int64_t t, int64_t first, const Sum (&sums)[kSums][kWidth]) const {
    for (int j = 0; j < kWidth; ++j) {
      StoreGradient(dpositions + t * columns + first + j, accumulate, sums[0][j]);
    }
  }
};

}  // namespace brigade::nn

#endif  // BRIGADE_NN_EMBEDDING_MATH_H_
