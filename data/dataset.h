#ifndef BRIGADE_DATA_DATASET_H_
#define BRIGADE_DATA_DATASET_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"

namespace brigade::data {

// The label of a position whose loss does not count; PyTorch's ignore_index.
inline constexpr int32_t kIgnored = -100;
// Positions of a sample at most.
inline constexpr int64_t kMostContext = int64_t{1} << 26;
// The segment of a position that is padding.
inline constexpr int32_t kPadding = -1;

// Where a sample goes, in memory of the caller's: one text of a batch.
//
//   ids        [context + 1]  the tokens, and behind them padding. nn::TokenIds takes such texts.
//   labels     [context]      ids[t + 1] where the loss of position t counts, else kIgnored.
//   positions  [context]      of t in its segment, from 0: for embeddings of positions.
//   segments   [context]      which of the pieces that were packed together, from 0 in ascending
//                             order: attention sees its own segment alone. Padding is kPadding.
struct Row {
  absl::Span<int32_t> ids;
  absl::Span<int32_t> labels;
  absl::Span<int32_t> positions;
  absl::Span<int32_t> segments;
};

// Samples of tokens, any of which can be read at any time.
//
// Threads      Any number may read at once.
// Determinism  A sample is the same whenever it is read.
class Dataset {
 public:
  virtual ~Dataset() = default;

  // The number of samples.
  virtual int64_t size() const = 0;
  // Positions of a sample.
  virtual int64_t context() const = 0;
  // Ids are below it.
  virtual int64_t vocabulary() const = 0;
  // How many positions of the sample count, without reading it: what the sample weighs in a mean
  // over tokens.
  virtual int64_t CountedLabels(int64_t sample) const = 0;

  // Writes all of the row. OutOfRange naming a sample that is not there; InvalidArgument for a row
  // of other sizes; what else a source may report, naming it.
  virtual absl::Status Read(int64_t sample, const Row& row) const = 0;
};

}  // namespace brigade::data

#endif  // BRIGADE_DATA_DATASET_H_
