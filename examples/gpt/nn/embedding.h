#ifndef BRIGADE_EXAMPLES_GPT_NN_EMBEDDING_H_
#define BRIGADE_EXAMPLES_GPT_NN_EMBEDDING_H_

#include <cstdint>

#include "absl/status/status.h"
#include "brigade/device/stream.h"
#include "brigade/examples/gpt/nn/gradient.h"
#include "brigade/examples/gpt/nn/texts.h"
#include "brigade/precision/dtype.h"

namespace brigade::nn {

// The number of different bytes.
inline constexpr int64_t kVocabulary = 256;

// x[b, t] = tokens[texts[b, t]] + positions[t].
//
// Shapes       tokens [256, width], positions [context, width], x [batch * context, width]; device
//              memory.
// Stream       Enqueued; allocates nothing, never waits.
absl::Status Embedding(const Texts& texts, precision::DType dtype, int64_t width,
                       const void* tokens, const void* positions, void* x, device::Stream& stream);

// The gradients of both tables from dx, in ascending order of rows: no atomics, the same bits every
// time.
absl::Status EmbeddingBackward(const Texts& texts, precision::DType dtype, int64_t width,
                               const void* dx, Gradient dtokens, Gradient dpositions,
                               device::Stream& stream);

}  // namespace brigade::nn

#endif  // BRIGADE_EXAMPLES_GPT_NN_EMBEDDING_H_
