#include "brigade/kernels/amax/amax.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "brigade/device/threads/thread_pool.h"
#include "brigade/kernels/amax/amax_cpu.h"
#include "brigade/kernels/internal/cpu_list.h"
#include "brigade/kernels/internal/segments.h"
#include "brigade/kernels/list_arguments.h"

#if BRIGADE_CUDA
#include "brigade/device/cuda/cuda_status.h"
#include "brigade/kernels/amax/amax_cuda.h"
#endif

namespace brigade::kernels {
namespace {

template <typename T>
AmaxResult AmaxOnPool(const T* array, int64_t size, const float* scale_pointer,
                      AmaxWorkspace& workspace, device::ThreadPool& pool) {
  const float scale = scale_pointer == nullptr ? 1.0f : *scale_pointer;
  const int64_t share = std::max(kCpuTile, CeilDiv(size, kMaxAmaxParts));
  pool.ParallelRanges(size, share, [&](int64_t begin, int64_t end) {
    workspace.parts[begin / share] = AmaxRange(array, scale, begin, end);
  });
  int32_t largest = 0;
  for (int64_t i = 0; i < CeilDiv(size, share); ++i) {
    largest = LargerBits(largest, workspace.parts[i]);
  }
  return AmaxOf(largest);
}

}  // namespace

absl::Status Amax(const void* array, int64_t size, const AmaxOptions& options,
                  AmaxWorkspace* workspace, AmaxResult* result, device::Stream& stream) {
  BRIGADE_RETURN_IF_ERROR(CheckFloatType("amax", "array", options.dtype));
  if (size < 0) return absl::InvalidArgumentError(absl::StrCat("amax: size is ", size));
  ListArguments arguments("amax", {}, stream);
  const int64_t bytes = precision::SizeOf(options.dtype);
  BRIGADE_RETURN_IF_ERROR(arguments.AddOperand({"array", bytes, false}, array, size));
  if (options.scale != nullptr) {
    BRIGADE_RETURN_IF_ERROR(arguments.AddOperand("scale", options.scale, 1));
  }
  BRIGADE_RETURN_IF_ERROR(arguments.AddOperand("workspace", workspace, 1));
  BRIGADE_RETURN_IF_ERROR(arguments.AddOperand("result", result, 1));
  BRIGADE_RETURN_IF_ERROR(arguments.CheckOverlap());

  const device::Operation operation = {"amax", arguments.accesses()};
  absl::Status status;
  precision::VisitFloat(options.dtype, [&](auto tag) {
    using T = decltype(tag);
    const T* const elements = static_cast<const T*>(array);
#if BRIGADE_CUDA
    if (stream.device().kind == device::DeviceKind::kCuda) {
      status = stream.Launch(operation, [&](void* cuda_stream) {
        return device::CudaStatus(LaunchAmax<T>(elements, size, options.scale, workspace, result,
                                                static_cast<cudaStream_t>(cuda_stream)),
                                  "amax");
      });
      return;
    }
#endif
    status = stream.Enqueue(operation,
                            [elements, size, scale = options.scale, workspace, result](auto& pool) {
                              *result = AmaxOnPool<T>(elements, size, scale, *workspace, pool);
                              return absl::OkStatus();
                            });
  });
  return status;
}

}  // namespace brigade::kernels
