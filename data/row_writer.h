#ifndef BRIGADE_DATA_ROW_WRITER_H_
#define BRIGADE_DATA_ROW_WRITER_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "brigade/data/dataset.h"
#include "brigade/data/token_store.h"

namespace brigade::data {

// InvalidArgument for a row that is not of a context; OutOfRange for a sample that is none.
absl::Status CheckRead(int64_t sample, const Row& row, const Dataset& dataset);

// Tokens of a sample, from the first to before the last.
struct TokenRange {
  int64_t begin = 0;
  int64_t end = 0;
};

// Writes a row from its begin, piece by piece. Pieces have context + 1 tokens together at most: the
// last one is a label alone.
class RowWriter {
 public:
  explicit RowWriter(const Row& row) : row_(row) {}

  // A piece of its own segment: the tokens of `tokens` from the store. Of a label counts what is in
  // `counted`, ranges in the store that ascend; the first token of a piece is nobody's label.
  void Add(const TokenStore& store, TokenRange tokens, absl::Span<const TokenRange> counted);
  // Padding behind the last piece.
  void Finish();

 private:
  Row row_;
  size_t size_ = 0;
  int32_t segment_ = 0;
};

}  // namespace brigade::data

#endif  // BRIGADE_DATA_ROW_WRITER_H_
