#ifndef BRIGADE_ZERO_PLAN_BATCH_SIZES_H_
#define BRIGADE_ZERO_PLAN_BATCH_SIZES_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "brigade/device/requirements.h"

namespace brigade::zero {

// How many samples a step has, with DeepSpeed's names:
// train_batch_size = train_micro_batch_size_per_gpu * gradient_accumulation_steps * ranks.
struct BatchSizes {
  int64_t train_batch_size = 0;
  int64_t train_micro_batch_size_per_gpu = 0;
  // The number of micro-batches of a step.
  int64_t gradient_accumulation_steps = 0;

  friend bool operator==(const BatchSizes&, const BatchSizes&) = default;
};

// All three sizes, from those that are not 0. With the batch or the micro-batch alone a step has
// one micro-batch. InvalidArgument naming those that are given if they contradict each other, do
// not divide, are negative, or are too few. Source: DeepSpeed's configuration.
absl::StatusOr<BatchSizes> CompleteBatchSizes(const BatchSizes& given, int ranks);

}  // namespace brigade::zero

#endif  // BRIGADE_ZERO_PLAN_BATCH_SIZES_H_
