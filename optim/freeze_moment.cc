#include "brigade/optim/freeze_moment.h"

#include <algorithm>
#include <limits>

#include "brigade/device/status_macros.h"
#include "brigade/kernels/list_arguments.h"
#include "brigade/precision/rounding.h"

#if BRIGADE_CUDA
#include "brigade/device/cuda/cuda_status.h"
#include "brigade/optim/freeze_moment_cuda.h"
#endif

namespace brigade::optim {

absl::Status FreezeMoment(float* second_moment, int64_t size, device::Stream& stream) {
  constexpr char kName[] = "freeze_moment";
  kernels::ListArguments arguments(kName, {}, stream);
  BRIGADE_RETURN_IF_ERROR(arguments.AddOperand("second_moment", second_moment, size));
  if (size == 0) return absl::OkStatus();
  const device::Operation operation = {kName, arguments.accesses()};
#if BRIGADE_CUDA
  if (stream.device().kind == device::DeviceKind::kCuda) {
    return stream.Launch(operation, [&](void* cuda_stream) {
      return device::CudaStatus(
          LaunchFreezeMoment(second_moment, size, static_cast<cudaStream_t>(cuda_stream)), kName);
    });
  }
#endif
  return stream.Enqueue(operation, [second_moment, size](device::ThreadPool&) {
    std::replace(second_moment, second_moment + size, 0.0f, std::numeric_limits<float>::infinity());
    return absl::OkStatus();
  });
}

}  // namespace brigade::optim
