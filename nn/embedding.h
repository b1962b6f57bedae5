#ifndef BRIGADE_NN_EMBEDDING_H_
#define BRIGADE_NN_EMBEDDING_H_

#include <cstdint>

#include "absl/status/status.h"
#include "brigade/device/stream.h"
#include "brigade/nn/gradient.h"
#include "brigade/nn/texts.h"
#include "brigade/nn/workspace.h"
#include "brigade/precision/dtype.h"

namespace brigade::nn {

// x[b, t] = tokens[texts[b, t]] + positions[t].
//
// Shapes       tokens [256, width], positions [context, width], x [batch * context, width]; device
//              memory.
// Stream       Enqueued; allocates nothing, never waits.
absl::Status Embedding(const Texts& texts, precision::DType dtype, int64_t width,
                       const void* tokens, const void* positions, void* x, device::Stream& stream);

// The gradients of both tables from dx: the rows of a token in ascending order, in parts (rows.h);
// no atomics, the same bits every time.
//
// Errors       InvalidArgument, before anything is enqueued, if the workspace is for fewer rows or
//              a smaller width, or of another device than the stream.
absl::Status EmbeddingBackward(const Texts& texts, precision::DType dtype, int64_t width,
                               const void* dx, Gradient dtokens, Gradient dpositions,
                               const Workspace& workspace, device::Stream& stream);

}  // namespace brigade::nn

#endif  // BRIGADE_NN_EMBEDDING_H_
