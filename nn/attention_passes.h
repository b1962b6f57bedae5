#ifndef BRIGADE_NN_ATTENTION_PASSES_H_
#define BRIGADE_NN_ATTENTION_PASSES_H_

// What whole attention (attention.cc) and a block of it (attention_block.cc) have in common: each
// pass by the kernels that the device and the type have.

#include <cmath>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "brigade/device/status_macros.h"
#include "brigade/nn/arrays.h"
#include "brigade/nn/attention.h"
#include "brigade/nn/attention_cpu.h"
#include "brigade/nn/attention_math.h"
#include "brigade/nn/enqueue.h"

#if BRIGADE_CUDA
#include "brigade/device/cuda/cuda_status.h"
#include "brigade/nn/attention_cuda.h"
#endif

namespace brigade::nn::internal {

absl::Status CheckAttention(absl::string_view operation, const AttentionShape& shape);

// Where the parts of queries' gradients are in a workspace: behind a number of each row of scores,
// at the next whole vector.
void* AttentionParts(const AttentionShape& shape, void* workspace);

template <typename T>
Wide<T> ScaleOfScores(int64_t head_width) {
  return static_cast<Wide<T>>(1 / std::sqrt(static_cast<double>(head_width)));
}

#if BRIGADE_CUDA
// Whether there are kernels with tensor cores for arrays of a 16-bit type; otherwise a warp takes a
// row.
template <typename... Arrays>
bool IsTiled(int64_t head_width, const Arrays*... arrays) {
  return HasTiledAttention(head_width) &&
         ((reinterpret_cast<uintptr_t>(arrays) % kTiledAttentionAlignment == 0) && ...);
}

template <typename T>
TiledAttentionBlock Tiled(int64_t batch, const AttentionArrays<T>& in) {
  return {{batch, in.context, in.heads, in.head_width, in.segments},
          in.query_count,
          in.key_count,
          in.causal,
          in.query_leading,
          in.key_leading};
}
#endif

// out and log_sum_exp, which `in` need not have.
template <typename T, typename Out>
absl::Status EnqueueAttention(const device::Operation& operation, int64_t batch,
                              const AttentionArrays<T>& in, Out* out, Wide<T>* log_sum_exp,
                              device::Stream& stream) {
  const int64_t heads = batch * in.heads;
  if (stream.device().kind == device::DeviceKind::kCpu) {
    return stream.Enqueue(operation, [=](device::ThreadPool& pool) {
      AttentionOnCpu(in, heads, out, sizeof(Out) > sizeof(T), log_sum_exp, pool);
      return absl::OkStatus();
    });
  }
#if BRIGADE_CUDA
  if constexpr (sizeof(T) == 2) {
    if (IsTiled(in.head_width, in.queries, in.keys, in.values, out)) {
      return stream.Launch(operation, [&](void* cuda_stream) {
        return device::CudaStatus(
            LaunchTiledAttention(Tiled(batch, in), in.queries, in.keys, in.values, out, log_sum_exp,
                                 static_cast<cudaStream_t>(cuda_stream)),
            operation.name);
      });
    }
  }
#endif
  const AttentionRows<T, Out> formula = {in, out, log_sum_exp};
  return EnqueueRows(operation, heads * in.query_count, formula, stream);
}

// The gradients from delta, numbers of Out, by a thread's tiles or a warp's rows.
template <typename Out, typename T>
absl::Status EnqueueAttentionBackward(const device::Operation& operation, int64_t batch,
                                      const AttentionArrays<T>& in, const Wide<T>* delta,
                                      const T* dout, Wide<T>* parts, const AttentionGradients& to,
                                      device::Stream& stream) {
  const int64_t heads = batch * in.heads;
  if (stream.device().kind == device::DeviceKind::kCpu) {
    return stream.Enqueue(operation, [=](device::ThreadPool& pool) {
      AttentionBackwardOnCpu(in, heads, delta, dout, parts, to, sizeof(Out) > sizeof(T), pool);
      return absl::OkStatus();
    });
  }
  const AttentionBackwardQueryRows<T, Out> queries = {in, dout, delta, to};
  BRIGADE_RETURN_IF_ERROR(EnqueueRows(operation, heads * in.query_count, queries, stream));
  const AttentionBackwardKeyRows<T, Out> keys = {in, dout, delta, to};
  return EnqueueRows(operation, heads * in.key_count, keys, stream);
}

}  // namespace brigade::nn::internal

#endif  // BRIGADE_NN_ATTENTION_PASSES_H_
