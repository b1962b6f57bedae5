#include "brigade/optim/limit_stats.h"

#include <cstdint>

#include "brigade/device/status_macros.h"
#include "brigade/kernels/list_arguments.h"
#include "brigade/kernels/value_range.h"
#include "brigade/optim/limit_stats_math.h"

#if BRIGADE_CUDA
#include "brigade/device/cuda/cuda_status.h"
#include "brigade/optim/limit_stats_cuda.h"
#endif

namespace brigade::optim {

absl::Status LimitStats(absl::Span<kernels::GradStats> gradients, const kernels::GradStats* others,
                        const kernels::StepState* state, double divisor, double limit,
                        device::Stream& stream) {
  constexpr char kName[] = "limit_stats";
  constexpr kernels::ValueRange kPositive = {0x1p-1022, 0x1p100, "in (0, 2^100]"};
  const auto lists = static_cast<int64_t>(gradients.size());
  BRIGADE_RETURN_IF_ERROR(kernels::CheckInRange(kName, "lists", -1, static_cast<double>(lists),
                                                {1.0, 0x1p31, "1 or more"}));
  BRIGADE_RETURN_IF_ERROR(kernels::CheckInRange(kName, "divisor", -1, divisor, kPositive));
  BRIGADE_RETURN_IF_ERROR(kernels::CheckInRange(kName, "limit", -1, limit, kPositive));
  kernels::ListArguments arguments(kName, {}, stream);
  BRIGADE_RETURN_IF_ERROR(arguments.AddOperand("gradients", gradients.data(), lists));
  BRIGADE_RETURN_IF_ERROR(arguments.AddOperand("others", others, 1));
  BRIGADE_RETURN_IF_ERROR(arguments.AddOperand("state", state, 1));
  BRIGADE_RETURN_IF_ERROR(arguments.CheckOverlap());
  const StatsLimit parameters = {gradients.data(), lists, others, state, divisor, limit};
  const device::Operation operation = {kName, arguments.accesses()};
#if BRIGADE_CUDA
  if (stream.device().kind == device::DeviceKind::kCuda) {
    return stream.Launch(operation, [&](void* cuda_stream) {
      return device::CudaStatus(
          LaunchLimitStats(parameters, static_cast<cudaStream_t>(cuda_stream)), kName);
    });
  }
#endif
  return stream.Enqueue(operation, [parameters](device::ThreadPool&) {
    ApplyStatsLimit(parameters);
    return absl::OkStatus();
  });
}

}  // namespace brigade::optim
