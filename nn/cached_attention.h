#ifndef BRIGADE_NN_CACHED_ATTENTION_H_
#define BRIGADE_NN_CACHED_ATTENTION_H_

#include <cstdint>

#include "absl/status/status.h"
#include "brigade/device/stream.h"
#include "brigade/precision/dtype.h"

namespace brigade::nn {

// New positions of texts, of whose earlier ones keys and values are kept.
struct CachedAttentionShape {
  precision::DType dtype;
  int64_t samples;
  // How many positions the cache has room for, and how many of each text are in it.
  int64_t capacity;
  int64_t first;
  // New ones.
  int64_t count;
  int64_t heads;
  // Which divide heads (grouped_heads.h).
  int64_t key_value_heads;
  int64_t head_width;

  int64_t cache_elements() const { return samples * capacity * key_value_heads * head_width; }
};

// Puts the new keys and values at positions [first, first + count) of the cache, and attends from
// each new position to itself and those before it: what Attention gives for the last `count` of
// first + count positions, but for the order of sums.
//
// Shapes       projected [samples * count, (heads + 2 * key_value_heads) * head_width]: queries,
//              keys, values side by side, rotated if they are; keys, values [samples, capacity,
//              key_value_heads * head_width]; out [samples * count, heads * head_width]. Device
//              memory.
// Precision    Sums are in float (double for double); each element is rounded once.
// Traffic      2 * (first + count) * key_value_heads * head_width elements for a position, in each
//              of the heads of a group.
// Stream       Enqueued; allocates nothing, never waits.
// Determinism  Same bits for any number of threads and any cut of the positions into calls; others
//              on GPUs.
// Errors       InvalidArgument naming the type or the numbers: a cache without room for the
//              positions, heads that are not 1 to 256 wide or not divided.
absl::Status CachedAttention(const CachedAttentionShape& shape, const void* projected, void* keys,
                             void* values, void* out, device::Stream& stream);

}  // namespace brigade::nn

#endif  // BRIGADE_NN_CACHED_ATTENTION_H_
