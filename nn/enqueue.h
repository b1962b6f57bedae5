#ifndef BRIGADE_NN_ENQUEUE_H_
#define BRIGADE_NN_ENQUEUE_H_

// Hands a formula (rows.h) to a stream of either device.

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "brigade/device/status_macros.h"
#include "brigade/device/stream.h"
#include "brigade/kernels/simd.h"
#include "brigade/nn/rows.h"
#include "brigade/nn/workspace.h"

#if BRIGADE_CUDA
#include "brigade/device/cuda/cuda_status.h"
#endif

namespace brigade::nn {

// Of a formula that no GPU has.
template <typename Formula>
absl::Status EnqueueRowsOnCpu(const device::Operation& operation, int64_t rows,
                              const Formula& formula, device::Stream& stream) {
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
  return EnqueueRowsOnCpu(operation, rows, formula, stream);
}

namespace internal {

template <typename Formula>
absl::Status EnqueueColumnsOnCpu(const device::Operation& operation, int64_t outer, int64_t columns,
                                 const Formula& formula, device::Stream& stream) {
  return stream.Enqueue(operation, [formula, outer, columns](device::ThreadPool& pool) {
    pool.ParallelFor(outer, [&](int64_t o) {
      kernels::RunSimd([&]() BRIGADE_NN_BODY {
        int64_t first = 0;
        for (; first + kColumnsAtOnce <= columns; first += kColumnsAtOnce) {
          SumColumns<kColumnsAtOnce>(formula, o, first);
        }
        for (; first < columns; ++first) SumColumns<1>(formula, o, first);
      });
    });
    return absl::OkStatus();
  });
}

}  // namespace internal

// A thread of the GPU has all rows of a column: for many columns of few rows.
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
  return internal::EnqueueColumnsOnCpu(operation, outer, columns, formula, stream);
}

// InvalidArgument unless the workspace is of the stream's device, with room for as many parts.
template <typename Formula>
absl::Status CheckParts(absl::string_view layer, int64_t columns, int64_t parts,
                        const Workspace& workspace, const device::Stream& stream) {
  if (workspace.memory().device() != stream.device()) {
    return absl::InvalidArgumentError(absl::StrCat(layer, ": the workspace is of ",
                                                   workspace.memory().device().ToString(),
                                                   ", the stream of ", stream.device().ToString()));
  }
  const int64_t needed =
      parts * Formula::kSums * columns * static_cast<int64_t>(sizeof(typename Formula::Sum));
  if (workspace.parts_bytes() >= needed) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(layer, ": the workspace has room for ",
                                                 workspace.parts_bytes(),
                                                 " bytes of sums; it must be for ", needed));
}

// The GPU takes at most `parts` parts first, and adds them up after: for many rows. The operation
// says that it writes workspace.parts(). Errors of CheckParts.
template <typename Formula>
absl::Status EnqueueParts(const device::Operation& operation, int64_t outer, int64_t columns,
                          const Formula& formula, int64_t parts, const Workspace& workspace,
                          device::Stream& stream) {
  BRIGADE_RETURN_IF_ERROR(CheckParts<Formula>(operation.name, columns, parts, workspace, stream));
#if BRIGADE_CUDA
  if (stream.device().kind == device::DeviceKind::kCuda) {
    using Sum = typename Formula::Sum;
    return stream.Launch(operation, [&](void* cuda_stream) {
      return device::CudaStatus(
          LaunchParts(formula, outer, columns, parts, static_cast<Sum*>(workspace.parts()),
                      static_cast<cudaStream_t>(cuda_stream)),
          operation.name);
    });
  }
#endif
  return internal::EnqueueColumnsOnCpu(operation, outer, columns, formula, stream);
}

}  // namespace brigade::nn

#endif  // BRIGADE_NN_ENQUEUE_H_
