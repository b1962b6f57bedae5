#ifndef BRIGADE_BENCHMARKS_PARALLEL_RANK_H_
#define BRIGADE_BENCHMARKS_PARALLEL_RANK_H_

// What each rank of these benchmarks has: a stream, a communicator with the others, arrays of
// random numbers; and collectives alone.

#include <cstdint>
#include <limits>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "brigade/collectives/collective.h"
#include "brigade/collectives/communicator.h"
#include "brigade/collectives/engines/threads/thread_group.h"
#include "brigade/device/buffer.h"
#include "brigade/device/context.h"
#include "brigade/device/stream.h"
#include "brigade/precision/dtype.h"

namespace brigade::benchmarks {

inline constexpr double kFastLink = std::numeric_limits<double>::infinity();

// One rank: what it runs, it runs on one compute thread. A link of so many bytes per second lies
// between the ranks.
class ParallelRank {
 public:
  static absl::StatusOr<std::unique_ptr<ParallelRank>> Create(int rank,
                                                              collectives::ThreadGroup& group,
                                                              double bytes_per_second = kFastLink);

  int rank() const { return communicator_->rank(); }
  int ranks() const { return communicator_->size(); }
  device::Context& context() { return *context_; }
  device::Stream& stream() { return *stream_; }
  collectives::Communicator& communicator() { return *communicator_; }

  // Scratch, filled with numbers in [-scale, scale).
  absl::StatusOr<device::Buffer> Noise(int64_t elements, precision::DType dtype, double scale);

  // Payload that this rank has sent to all others so far.
  int64_t sent_bytes() const;

 private:
  std::unique_ptr<device::Context> context_;
  std::unique_ptr<device::Stream> stream_;
  std::unique_ptr<collectives::Communicator> communicator_;
  uint64_t arrays_ = 0;
};

// Calls that a layer makes, made by themselves, on arrays of their own.
class CollectivesAlone {
 public:
  static absl::StatusOr<std::unique_ptr<CollectivesAlone>> Create(
      std::vector<collectives::CollectiveSignature> calls, ParallelRank& rank);

  absl::Status Enqueue();

 private:
  CollectivesAlone(std::vector<collectives::CollectiveSignature> calls, ParallelRank& rank)
      : calls_(std::move(calls)), rank_(rank) {}

  const std::vector<collectives::CollectiveSignature> calls_;
  ParallelRank& rank_;
  device::Buffer input_, output_;
};

}  // namespace brigade::benchmarks

#endif  // BRIGADE_BENCHMARKS_PARALLEL_RANK_H_
