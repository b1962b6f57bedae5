#ifndef BRIGADE_NN_ATTENTION_BLOCK_H_
#define BRIGADE_NN_ATTENTION_BLOCK_H_

#include <cstdint>

#include "absl/status/status.h"
#include "brigade/device/stream.h"
#include "brigade/nn/attention.h"

namespace brigade::nn {

// Some queries of each text against some of its keys: a part of attention whose keys are not all in
// one place.
struct AttentionBlock {
  // Of the arrays, which have `context` positions of each text.
  AttentionShape shape;
  // The block's positions of each text: queries of one array, keys and values of the other.
  int64_t first_query = 0, queries = 0;
  int64_t first_key = 0, keys = 0;
  // Whether a query sees the keys up to its own number in the block; else it sees all. Where the
  // two are the same positions that is causal attention.
  bool causal = false;
};

// out = softmax(q k^T / sqrt(head width)) v over the keys of the block alone.
//
// Shapes       queries [rows, 3 * width], of which the first `width` columns are read: an array of
//              queries, keys and values; keys [rows, 2 * width]: keys and values side by side; out
//              [rows, width] and log_sum_exp [batch, heads, context] of float (double for double),
//              in which the block's queries are written. Device memory.
// Precision    Of Attention, but that `out` is not rounded to the type.
// Stream, Aliasing, Determinism   Of Attention. A block that has all positions of both, causal, has
//              the bits of Attention; so has a block of 16-bit types, rounded.
// Errors       Those of Attention; InvalidArgument naming the numbers for positions that the arrays
//              do not have, for no key or no query, for a causal block with other numbers of
//              queries and keys, and for segments.
absl::Status AttentionOfBlock(const AttentionBlock& block, const void* queries, const void* keys,
                              void* out, void* log_sum_exp, device::Stream& stream);

// Joins what positions [first, first + count) of each text have made of some keys with what they
// have made of others: log_sum_exp' = log_sum_exp + ln(1 + e^(l - log_sum_exp)), out' = out
// e^(log_sum_exp - log_sum_exp') + from e^(l - log_sum_exp'), in float (double for double).
//
// Shapes       As of AttentionOfBlock: from, l; out, log_sum_exp. A log_sum_exp of -infinity is
//              that of no keys: what stands beside it is not read.
// Determinism  The same bits for any number of threads; the order of several merges matters.
// Errors       InvalidArgument naming the numbers for positions that the arrays do not have.
absl::Status MergeAttention(const AttentionShape& shape, int64_t first, int64_t count,
                            const void* from, const void* from_log_sum_exp, void* out,
                            void* log_sum_exp, device::Stream& stream);

// delta [batch, heads, context] of float (double for double): for each query the sum of out * dout
// over a head, which AttentionBackwardOfBlock needs of all keys. `out` [rows, width], of the type:
// where it was rounded the gradients of a query's scores are all off by its error.
absl::Status AttentionDelta(const AttentionShape& shape, const void* out, const void* dout,
                            void* delta, device::Stream& stream);

// What the block adds to the gradients.
//
// Shapes       log_sum_exp and delta: of all keys; dout [rows, width]; dqueries [rows, width],
//              dkeys [rows, 2 * width], of float (double for double). Of dqueries the block's rows
//              are written, or added to if `adds`; of dkeys the block's are written. `workspace`:
//              AttentionWorkspaceBytes(block.shape) of device memory; `delta` may be at its begin.
// Otherwise like AttentionBackward.
absl::Status AttentionBackwardOfBlock(const AttentionBlock& block, const void* queries,
                                      const void* keys, const void* log_sum_exp, const void* delta,
                                      const void* dout, void* workspace, void* dqueries, bool adds,
                                      void* dkeys, device::Stream& stream);

}  // namespace brigade::nn

#endif  // BRIGADE_NN_ATTENTION_BLOCK_H_
