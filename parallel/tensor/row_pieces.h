#ifndef BRIGADE_PARALLEL_TENSOR_ROW_PIECES_H_
#define BRIGADE_PARALLEL_TENSOR_ROW_PIECES_H_

#include <algorithm>
#include <cstdint>

#include "brigade/parallel/shard.h"

namespace brigade::parallel {

// Which rows of a sum a rank gets: all, or, of each piece of the rows, of as many equal parts as
// there are ranks, the one that has its number (sequence parallelism).
enum class SumPart : uint8_t { kAll, kOwn };

inline constexpr int kMostPieces = 256;

struct RowRange {
  int64_t first = 0;
  int64_t count = 0;
};

// How rows are cut into pieces, so that ranks exchange one piece while another is multiplied, and
// which rows a rank has of them. Pieces are neighbours, as equal as whole rows (with kOwn as many
// rows as there are shards) allow; of few rows there are fewer. With kOwn a rank's own rows lie
// piece by piece, so that each piece is gathered, and given out, where it lies:
//
//   rows         0 1 2 3 4 5 6 7     two pieces, two ranks
//   pieces       0 0 0 0 1 1 1 1
//   rank 0 has   0 1     4 5
//   rank 1 has       2 3     6 7
//
// No row's piece depends on the number of ranks.
struct RowPieces {
  int64_t rows = 0;
  // At most so many.
  int pieces = 1;
  SumPart part = SumPart::kAll;
  TensorShards shards = {};

  bool shares_rows() const { return part == SumPart::kOwn; }
  // Rows must be a multiple of it: of the shards, where there are pieces, so that the cut is the
  // same for any ranks.
  int64_t unit() const { return !shares_rows() ? 1 : pieces > 1 ? shards.count : shards.ranks; }
  // At least one.
  int count() const {
    return static_cast<int>(std::clamp<int64_t>(rows / unit(), 1, std::max(pieces, 1)));
  }

  RowRange Piece(int piece) const {
    const int64_t first = Begin(piece);
    return {first, Begin(piece + 1) - first};
  }
  // This rank's rows of a piece: among its own, and among all.
  RowRange Own(int piece) const {
    const RowRange all = Piece(piece);
    const int64_t ranks = OwnRanks();
    return {all.first / ranks, all.count / ranks};
  }
  RowRange OwnAmongAll(int piece) const {
    const RowRange all = Piece(piece);
    const int64_t each = all.count / OwnRanks();
    return {all.first + (shares_rows() ? shards.rank * each : 0), each};
  }
  // Of this rank's rows of a piece, those of one of its shards' blocks, among its own. `block`
  // counts from 0. Rows must be a multiple of the shards.
  RowRange Block(int piece, int block) const {
    const RowRange own = Own(piece);
    const int64_t each = own.count / shards.local();
    return {own.first + block * each, each};
  }
  int64_t own_rows() const { return rows / OwnRanks(); }
  int64_t largest() const {
    int64_t rows_of_largest = 0;
    for (int p = 0; p < count(); ++p) rows_of_largest = std::max(rows_of_largest, Piece(p).count);
    return rows_of_largest;
  }

 private:
  int64_t OwnRanks() const { return shares_rows() ? shards.ranks : 1; }
  int64_t Begin(int piece) const { return unit() * (rows / unit() * piece / count()); }
};

}  // namespace brigade::parallel

#endif  // BRIGADE_PARALLEL_TENSOR_ROW_PIECES_H_
