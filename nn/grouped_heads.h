#ifndef BRIGADE_NN_GROUPED_HEADS_H_
#define BRIGADE_NN_GROUPED_HEADS_H_

// Grouped-query attention: several heads of queries have one head of keys and values. A product
// makes the heads that there are, and attention (attention.h) gets each as often as it is used.
//
// Shapes       grouped [rows, (heads + 2 * key_value_heads) * head_width]: queries, keys, values
//              side by side; all [rows, 3 * heads * head_width], as Attention wants it. Heads
//              [g * n, (g + 1) * n), n = heads / key_value_heads, are those of group g. Device
//              memory.
// Traffic      heads + 2 * key_value_heads + 3 * heads heads of each row.
// Aliasing     None.
// Stream       Enqueued; allocates nothing, never waits.
// Determinism  Same bits on every device.
// Errors       InvalidArgument naming the type, or the numbers: key_value_heads must divide heads.
// Source       Ainslie et al. 2023 (arXiv 2305.13245).

#include <cstdint>

#include "absl/status/status.h"
#include "brigade/device/stream.h"
#include "brigade/precision/dtype.h"

namespace brigade::nn {

struct GroupedHeadsShape {
  precision::DType dtype;
  int64_t rows;
  int64_t heads;
  int64_t key_value_heads;
  int64_t head_width;
};

absl::Status RepeatHeads(const GroupedHeadsShape& shape, const void* grouped, void* all,
                         device::Stream& stream);

// The gradient: `grouped` gets queries as they are, and of keys and values the sums over the heads
// of each group, in ascending order in float (double for float64), rounded once.
absl::Status RepeatHeadsBackward(const GroupedHeadsShape& shape, const void* all, void* grouped,
                                 device::Stream& stream);

}  // namespace brigade::nn

#endif  // BRIGADE_NN_GROUPED_HEADS_H_
