#include "brigade/collectives/compressed/seed_columns.h"

#include <algorithm>

#include "brigade/device/status_macros.h"
#include "brigade/kernels/list_arguments.h"

#if BRIGADE_CUDA
#include "brigade/collectives/compressed/seed_columns_cuda.h"
#include "brigade/device/cuda/cuda_status.h"
#endif

namespace brigade::collectives {

absl::Status SeedColumns(const ColumnList& columns, int64_t elements, device::Stream& stream) {
  kernels::ListArguments arguments("seed_columns", {}, stream);
  BRIGADE_RETURN_IF_ERROR(
      arguments.AddOperand("begins", columns.begins, columns.count == 0 ? 0 : columns.count + 1));
  BRIGADE_RETURN_IF_ERROR(arguments.AddOperand("columns", columns.data, elements));
  BRIGADE_RETURN_IF_ERROR(arguments.CheckOverlap());
  if (columns.count == 0 || elements == 0) return absl::OkStatus();

  const device::Operation operation = {"seed_columns", arguments.accesses()};
#if BRIGADE_CUDA
  if (stream.device().kind == device::DeviceKind::kCuda) {
    return stream.Launch(operation, [&](void* cuda_stream) {
      return device::CudaStatus(LaunchSeedColumns(columns, static_cast<cudaStream_t>(cuda_stream)),
                                "seed_columns");
    });
  }
#endif
  return stream.Enqueue(operation, [columns](device::ThreadPool& pool) {
    pool.ParallelFor(columns.count, [&](int64_t column) {
      float* const begin = columns.data + columns.begins[column];
      float* const end = columns.data + columns.begins[column + 1];
      if (std::any_of(begin, end, [](float x) { return x != 0; })) return;
      for (float* at = begin; at != end; ++at) *at = ColumnSeed(column, at - begin);
    });
    return absl::OkStatus();
  });
}

}  // namespace brigade::collectives
