#ifndef BRIGADE_EXAMPLES_GPT_NN_ENQUEUE_H_
#define BRIGADE_EXAMPLES_GPT_NN_ENQUEUE_H_

// Hands a formula (rows.h) to a stream of either device.

#include <cstdint>

#include "absl/status/status.h"
#include "brigade/device/stream.h"
#include "brigade/examples/gpt/nn/rows.h"
#include "brigade/kernels/simd.h"

#if BRIGADE_CUDA
#include "brigade/device/cuda/cuda_status.h"
#endif

namespace brigade::nn {

template <typename Formula>
absl::Status EnqueueRows(const device::Operation& operation, int64_t rows, const Formula& formula,
                         device::Stream& stream) {
#if BRIGADE_CUDA
  if (stream.device().kind == device::DeviceKind::kCuda) {
    return stream.Launch(operation, [&](void* cuda_stream) {
      return device::CudaStatus(LaunchRows(formula, rows, static_cast<cudaStream_t>(cuda_stream)),
                                operation.name);
    });
  }
#endif
  return stream.Enqueue(operation, [formula, rows](device::ThreadPool& pool) {
    // Some 10 us of work.
    constexpr int64_t kRowsAtOnce = 32;
    pool.ParallelRanges(rows, kRowsAtOnce, [&](int64_t begin, int64_t end) {
      kernels::RunSimd([&]() BRIGADE_NN_BODY {
        for (int64_t row = begin; row < end; ++row) formula(ThreadRow(), row);
      });
    });
    return absl::OkStatus();
  });
}

template <typename Formula>
absl::Status EnqueueColumns(const device::Operation& operation, int64_t outer, int64_t columns,
                            const Formula& formula, device::Stream& stream) {
#if BRIGADE_CUDA
  if (stream.device().kind == device::DeviceKind::kCuda) {
    return stream.Launch(operation, [&](void* cuda_stream) {
      return device::CudaStatus(
          LaunchColumns(formula, outer, columns, static_cast<cudaStream_t>(cuda_stream)),
          operation.name);
    });
  }
#endif
  return stream.Enqueue(operation, [formula, outer, columns](device::ThreadPool& pool) {
    pool.ParallelFor(outer, [&](int64_t o) {
      kernels::RunSimd([&]() BRIGADE_NN_BODY {
        int64_t first = 0;
        for (; first + kColumnsAtOnce <= columns; first += kColumnsAtOnce) {
          formula.template Columns<kColumnsAtOnce>(o, first);
        }
        for (; first < columns; ++first) formula.template Columns<1>(o, first);
      });
    });
    return absl::OkStatus();
  });
}

}  // namespace brigade::nn

#endif  // BRIGADE_EXAMPLES_GPT_NN_ENQUEUE_H_
