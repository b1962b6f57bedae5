#ifndef BRIGADE_KERNELS_REDUCE_REDUCE_CPU_H_
#define BRIGADE_KERNELS_REDUCE_REDUCE_CPU_H_

#include <cstdint>

#include "brigade/kernels/nontemporal_store.h"  // NontemporalStoreFence
#include "brigade/kernels/reduce/reduce_math.h"

namespace brigade::kernels {

// The arrays of a reduction on the CPU: any number of sources and targets, at least one of each.
struct ReduceLists {
  // [source_count].
  const void* const* sources;
  int64_t source_count;
  // [target_count]. A target may be one of the sources.
  void* const* targets;
  int64_t target_count;
  ReduceCarry carry;
};

// The reduction of the elements [begin, end), in the calling thread and without checks of the
// arguments: what each thread of Reduce (reduce.h) does. Made for the threads that a program has.
//
// Ranges  Threads may take any ranges that do not overlap; no cut changes a bit. Those of 6144
//         elements and more are fastest.
// Stores  With `past_caches`, for targets that will not be read soon (kMinNontemporalBytes of
//         nontemporal_store.h together), nontemporal ones to targets that are no sources: a thread
//         calls NontemporalStoreFence after its last range, before it says that it is done.
// Types   Instantiated for BRIGADE_FOR_EACH_REDUCE_TYPE.
template <typename T>
void ReduceRange(const ReduceLists& lists, ReduceOp op, bool past_caches, int64_t begin,
                 int64_t end);

}  // namespace brigade::kernels

#endif  // BRIGADE_KERNELS_REDUCE_REDUCE_CPU_H_
