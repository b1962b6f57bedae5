#ifndef BRIGADE_KERNELS_REDUCE_REDUCE_POOL_H_
#define BRIGADE_KERNELS_REDUCE_REDUCE_POOL_H_

#include <cstdint>

#include "absl/types/span.h"
#include "brigade/device/threads/thread_pool.h"
#include "brigade/kernels/reduce/reduce_math.h"
#include "brigade/precision/dtype.h"

namespace brigade::kernels {

// Reduces any number of sources at once, in the calling thread and the pool's: what Reduce
// (reduce.h) enqueues. The arguments are valid.
void ReduceCpu(absl::Span<const void* const> sources, absl::Span<void* const> targets, int64_t size,
               precision::DType dtype, ReduceOp op, device::ThreadPool& pool,
               const ReduceCarry& carry = {});

}  // namespace brigade::kernels

#endif  // BRIGADE_KERNELS_REDUCE_REDUCE_POOL_H_
