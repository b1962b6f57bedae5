#ifndef BRIGADE_BENCHMARKS_OFFLOAD_ONE_RANK_H_
#define BRIGADE_BENCHMARKS_OFFLOAD_ONE_RANK_H_

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "brigade/collectives/communicator.h"
#include "brigade/device/context.h"
#include "brigade/zero/zero_optimizer.h"

namespace brigade::benchmarks {

// A model of equal units.
struct UnitModel {
  int units = 8;
  int64_t elements = 0;
};

// One rank of ZeRO-2 in bfloat16 with AdamW, whose gradients are zero, on the CPU. Each unit is a
// bucket.
class OneRank {
 public:
  static absl::StatusOr<std::unique_ptr<OneRank>> Create(const UnitModel& model,
                                                         const zero::OffloadOptions& offload,
                                                         double link_bytes_per_second = 0);

  // Enqueue a step: the update alone; with passes that wait, as a GPU's take no processor of the
  // host, backward twice as long as forward.
  absl::Status Update();
  absl::Status Step(double passes_seconds);
  // Waits for the end of the last step's update.
  absl::Status Finish();

  const zero::ZeroOptimizer& zero() const { return *zero_; }
  collectives::Communicator& communicator() { return *communicator_; }
  device::Context& context() { return *context_; }
  device::Stream& compute() { return *compute_; }

 private:
  std::unique_ptr<device::Context> context_;
  std::unique_ptr<device::Stream> compute_, reader_;
  std::unique_ptr<collectives::Communicator> communicator_;
  std::unique_ptr<zero::ZeroOptimizer> zero_;
  // Of a gradient.
  int64_t unit_bytes_ = 0;
  // With passes, so far.
  int64_t steps_ = 0;
};

// A pass over a unit: the stream waits.
absl::Status EnqueuePass(double seconds, device::Stream& stream);

}  // namespace brigade::benchmarks

#endif  // BRIGADE_BENCHMARKS_OFFLOAD_ONE_RANK_H_
