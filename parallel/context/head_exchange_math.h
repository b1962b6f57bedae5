#ifndef BRIGADE_PARALLEL_CONTEXT_HEAD_EXCHANGE_MATH_H_
#define BRIGADE_PARALLEL_CONTEXT_HEAD_EXCHANGE_MATH_H_

#include <cstdint>

#include "brigade/nn/rows.h"

namespace brigade::parallel {

// How pieces lie in an array. A piece is what one rank has of one position: the neighbouring
// columns of some heads.
//
// kByRank       [rank, batch, position of the rank, part, columns]: as an all-to-all has them.
// kByHead       [batch, position of the rank, part, rank, columns]: all heads of some positions,
//               where `rank` is the one that has the heads.
// kByPosition   [batch, rank, position of the rank, part, columns]: some heads of all positions,
//               where `rank` is the one that has the positions.
enum class PieceOrder : uint8_t { kByRank, kByHead, kByPosition };

// Copies pieces from one order to another. Rows are pieces by rank.
template <typename T>
struct MovePieces {
  const T* from;
  T* to;
  PieceOrder from_order, to_order;
  int ranks;
  int64_t batch;
  // Of a rank.
  int64_t positions;
  // Matrices side by side: 3 for queries, keys and values.
  int64_t parts;
  int64_t columns;

  BRIGADE_INLINE int64_t At(PieceOrder order, int64_t r) const {
    const int64_t part = r % parts, position = r / parts % positions;
    const int64_t text = r / (parts * positions) % batch, rank = r / (parts * positions * batch);
    switch (order) {
      case PieceOrder::kByHead:
        return (((text * positions + position) * parts + part) * ranks + rank) * columns;
      case PieceOrder::kByPosition:
        return (((text * ranks + rank) * positions + position) * parts + part) * columns;
      case PieceOrder::kByRank:
        break;
    }
    return r * columns;
  }

  template <typename Row>
  BRIGADE_INLINE void operator()(Row row, int64_t r) const {
    const T* const in = from + At(from_order, r);
    T* const out = to + At(to_order, r);
    row.ForEach(columns, [&](int64_t c) BRIGADE_NN_BODY { out[c] = in[c]; });
  }
};

}  // namespace brigade::parallel

#endif  // BRIGADE_PARALLEL_CONTEXT_HEAD_EXCHANGE_MATH_H_
