#include "brigade/nn/token_order.h"

#include <algorithm>

#include "brigade/nn/rows.h"

namespace brigade::nn {

int64_t MostTokenParts(int64_t rows) {
  // Each token's last part may be short.
  return rows / kRowsOfPart + std::min(rows, kVocabulary);
}

void OrderTokens(const Texts& texts, const TokenOrder& order) {
  int64_t next[kVocabulary] = {};
  for (int64_t r = 0; r < texts.rows(); ++r) ++next[texts.token(r)];
  order.first_row[0] = order.first_part[0] = 0;
  for (int64_t v = 0; v < kVocabulary; ++v) {
    order.first_row[v + 1] = order.first_row[v] + next[v];
    order.first_part[v + 1] = order.first_part[v] + PartsOf(next[v]);
    next[v] = order.first_row[v];
  }
  for (int64_t r = 0; r < texts.rows(); ++r) {
    order.rows[next[texts.token(r)]++] = static_cast<uint32_t>(r);
  }
}

}  // namespace brigade::nn
