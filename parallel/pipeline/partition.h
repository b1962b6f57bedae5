#ifndef BRIGADE_PARALLEL_PIPELINE_PARTITION_H_
#define BRIGADE_PARALLEL_PIPELINE_PARTITION_H_

// Where a chain of layers is cut into the parts of a pipeline.

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "brigade/parallel/pipeline/schedule_kind.h"

namespace brigade::parallel {

// How a user wants the parts.
struct PartitionChoice {
  enum class By : uint8_t {
    // Equal by what the layers hold, by what they compute, or by the time that one rank has
    // measured: if each measured for itself, ranks would cut differently.
    kParameters,
    kFlops,
    kTime,
    // As given.
    kBoundaries,
  };

  By by = By::kParameters;
  // Of kBoundaries: the first layer of each part, and the number of layers.
  std::vector<int> boundaries = {};

  friend bool operator==(const PartitionChoice&, const PartitionChoice&) = default;
};

// "parameters", "flops", "time", or boundaries as "0,3,6". InvalidArgument naming the text and what
// it may be.
absl::StatusOr<PartitionChoice> ParsePartition(absl::string_view text);
std::string ToString(const PartitionChoice& choice);

// What parts may hold.
struct MemoryLimit {
  // Bytes of a layer if it is in this part of the model; what a schedule keeps differs from part to
  // part (PeakActivations).
  std::function<int64_t(int layer, int part)> bytes = {};
  // Of each stage, for all of its chunks.
  std::vector<int64_t> limit_bytes = {};
};

// InvalidArgument naming the numbers unless there are parts() + 1 boundaries from 0 to `layers`, no
// part is empty, and every stage keeps to its limit. `limit` may be null.
absl::Status CheckPartition(absl::Span<const int> boundaries, int layers,
                            const PipelineShape& shape, const MemoryLimit* limit);

// The boundaries of parts() contiguous parts, none empty, whose largest weight is the least that
// there is; then with the least sum of squares; then with the smallest boundaries, the first one
// first. The shape's micro-batches play no part.
//
// With several chunks on each stage the largest sum over the parts of one stage counts after the
// largest part. From the least largest part on one or two boundaries at a time then move by a layer
// while that makes, in this order, fewer bytes over the limits, a smaller largest part, a smaller
// largest sum or less squares. So the largest sum is not always the least, and what costs the same
// is not told apart by its boundaries.
//
// `limit` may be null.
//
// Errors       InvalidArgument naming the numbers if there are fewer layers than parts, or a weight
//              is negative. ResourceExhausted naming the part that does not fit, its stage, the
//              bytes and the limit; with several chunks perhaps although there is a way.
absl::StatusOr<std::vector<int>> LeastMaximum(absl::Span<const double> weights,
                                              const PipelineShape& shape, const MemoryLimit* limit);

}  // namespace brigade::parallel

#endif  // BRIGADE_PARALLEL_PIPELINE_PARTITION_H_
