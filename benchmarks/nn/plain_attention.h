#ifndef BRIGADE_BENCHMARKS_NN_PLAIN_ATTENTION_H_
#define BRIGADE_BENCHMARKS_NN_PLAIN_ATTENTION_H_

// The rival of nn/attention.h, on the CPU: products by BLAS on one thread, and a matrix of all
// scores between them.

#include "absl/status/status.h"
#include "brigade/device/stream.h"
#include "brigade/nn/attention.h"
#include "brigade/nn/blas.h"

namespace brigade::benchmarks {

// probabilities: [batch, heads, context, context]; otherwise like nn::Attention.
absl::Status PlainAttention(const nn::AttentionShape& shape, const void* qkv, void* probabilities,
                            void* out, nn::Blas& blas, device::Stream& stream);

// dscores is scratch of the probabilities' shape.
absl::Status PlainAttentionBackward(const nn::AttentionShape& shape, const void* qkv,
                                    const void* probabilities, const void* dout, void* dscores,
                                    void* dqkv, nn::Blas& blas, device::Stream& stream);

}  // namespace brigade::benchmarks

#endif  // BRIGADE_BENCHMARKS_NN_PLAIN_ATTENTION_H_
