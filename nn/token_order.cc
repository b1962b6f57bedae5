#include "brigade/nn/token_order.h"

#include <algorithm>

namespace brigade::nn {

int64_t MostTokenParts(int64_t rows, int64_t vocabulary) {
  return rows / kRowsOfPart + std::min(rows, vocabulary);
}

void OrderTokens(const TokenIds& ids, const TokenOrder& order) {
  int64_t* const first = order.first_row;
  std::fill_n(first, order.vocabulary + 1, 0);
  for (int64_t r = 0; r < ids.rows(); ++r) {
    const int64_t v = ids.token(r);
    if (v >= 0) ++first[v + 1];
  }
  for (int64_t v = 0; v < order.vocabulary; ++v) first[v + 1] += first[v];
  int64_t none = first[order.vocabulary];
  // first[v] moves over the rows of v, to where those of v + 1 begin.
  for (int64_t r = 0; r < ids.rows(); ++r) {
    const int64_t v = ids.token(r);
    order.rows[v < 0 ? none++ : first[v]++] = static_cast<uint32_t>(r);
  }
  std::copy_backward(first, first + order.vocabulary, first + order.vocabulary + 1);
  first[0] = 0;
}

}  // namespace brigade::nn
