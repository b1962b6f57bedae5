#ifndef BRIGADE_NN_EMBEDDING_H_
#define BRIGADE_NN_EMBEDDING_H_

#include <cstdint>

#include "absl/status/status.h"
#include "brigade/device/stream.h"
#include "brigade/nn/gradient.h"
#include "brigade/nn/segments.h"
#include "brigade/nn/token_ids.h"
#include "brigade/nn/workspace.h"
#include "brigade/precision/dtype.h"

namespace brigade::nn {

// x[b, t] = tokens[ids[b, t]], and + positions[t] unless it is null; with segments + the row of t's
// position in its own. NaN where the id is none of the vocabulary, -0 where it is outside of the
// window.
//
// Shapes       tokens [vocabulary, width], positions [context, width], x [batch * context, width];
//              device memory.
// Stream       Enqueued; allocates nothing, never waits.
// Errors       InvalidArgument naming the type, a vocabulary of none, or what segments lack.
absl::Status Embedding(const TokenIds& ids, precision::DType dtype, int64_t width,
                       const void* tokens, const void* positions, void* x, device::Stream& stream,
                       const Segments& segments = {});

// The gradients of both tables from dx: the rows of a token in ascending order, in parts (rows.h);
// no atomics, the same bits every time. Ids that are none of the vocabulary, or outside
// of the window, have no part in dtokens. Either is left out without data. Positions of segments
// are ids of a table of their own.
//
// Errors       InvalidArgument, before anything is enqueued, if the workspace is for fewer rows, a
//              smaller vocabulary or a smaller width, or of another device than the stream.
absl::Status EmbeddingBackward(const TokenIds& ids, precision::DType dtype, int64_t width,
                               const void* dx, Gradient dtokens, Gradient dpositions,
                               const Workspace& workspace, device::Stream& stream);

}  // namespace brigade::nn

#endif  // BRIGADE_NN_EMBEDDING_H_
