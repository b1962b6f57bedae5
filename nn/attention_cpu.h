#ifndef BRIGADE_NN_ATTENTION_CPU_H_
#define BRIGADE_NN_ATTENTION_CPU_H_

// Attention by the threads of a pool, for float, Half, BFloat16 and double.

#include <cstdint>

#include "brigade/device/threads/thread_pool.h"
#include "brigade/nn/attention.h"
#include "brigade/nn/attention_math.h"
#include "brigade/nn/functions.h"

namespace brigade::nn {

// In bytes: a vector of any instruction set.
inline constexpr int64_t kAttentionPartsAlignment = 64;

// `heads`: of all texts. What is written is T or, if `is_wide`, Wide<T>: one body writes both, since
// each is compiled for all instruction sets.
template <typename T>
void AttentionOnCpu(const AttentionArrays<T>& in, int64_t heads, void* out, bool is_wide,
                    Wide<T>* log_sum_exp, device::ThreadPool& pool);

// delta [batch, heads, context], of 16-bit types: the sum over a query's keys of the probability
// and its gradient.
template <typename T>
void AttentionDeltaOnCpu(const AttentionArrays<T>& in, int64_t heads, const T* dout, Wide<T>* delta,
                         device::ThreadPool& pool);

// `parts`: AttentionPartsBytes, aligned to kAttentionPartsAlignment.
template <typename T>
void AttentionBackwardOnCpu(const AttentionArrays<T>& in, int64_t heads, const Wide<T>* delta,
                            const T* dout, Wide<T>* parts, const AttentionGradients& to,
                            bool is_wide, device::ThreadPool& pool);

// Of a shape with positions.
int64_t AttentionPartsBytes(const AttentionShape& shape);

}  // namespace brigade::nn

#endif  // BRIGADE_NN_ATTENTION_CPU_H_
