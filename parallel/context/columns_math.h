#ifndef BRIGADE_PARALLEL_CONTEXT_COLUMNS_MATH_H_
#define BRIGADE_PARALLEL_CONTEXT_COLUMNS_MATH_H_

#include <cstdint>

#include "brigade/nn/functions.h"
#include "brigade/nn/rows.h"

namespace brigade::parallel {

// Copies neighbouring columns from one array to another, or adds them to what is there, of
// positions [first, first + count) of each text. Rows are the positions, text by text.
template <typename From, typename To>
struct MoveColumns {
  const From* from;
  int64_t from_leading;
  To* to;
  int64_t to_leading;
  int64_t columns;
  // Of a text in both arrays.
  int64_t positions;
  int64_t first, count;
  bool adds;

  template <typename Row>
  BRIGADE_INLINE void operator()(Row row, int64_t r) const {
    const int64_t at = r / count * positions + first + r % count;
    const From* const in = from + at * from_leading;
    To* const out = to + at * to_leading;
    row.ForEach(columns, [&](int64_t c) BRIGADE_NN_BODY {
      nn::StoreGradient(out + c, adds, nn::Widen(in[c]));
    });
  }
};

}  // namespace brigade::parallel

#endif  // BRIGADE_PARALLEL_CONTEXT_COLUMNS_MATH_H_
