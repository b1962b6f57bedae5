#include "brigade/collectives/compressed/restore_errors.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "brigade/kernels/list_arguments.h"

#if BRIGADE_CUDA
#include "brigade/collectives/compressed/restore_errors_cuda.h"
#include "brigade/device/cuda/cuda_status.h"
#endif

namespace brigade::collectives {

absl::Status RestoreErrors(const ErrorExchange& exchange, const float* saved, float* error,
                           int64_t size, device::Stream& stream) {
  if (exchange.count < 0 || exchange.stride < 0 || exchange.stride % kernels::kSignAlignment != 0) {
    return absl::InvalidArgumentError(absl::StrCat("restore_errors: ", exchange.count,
                                                   " messages at distances of ", exchange.stride,
                                                   " bytes, which must be multiples of 64"));
  }
  kernels::ListArguments arguments("restore_errors", {}, stream);
  const int64_t last = std::max<int64_t>(exchange.count - 1, 0);
  const int64_t bytes =
      exchange.count == 0 ? 0 : last * exchange.stride + static_cast<int64_t>(sizeof(float));
  BRIGADE_RETURN_IF_ERROR(
      arguments.AddOperand({"messages", 1, false, true, 64}, exchange.messages, bytes));
  if (exchange.skip != nullptr) {
    BRIGADE_RETURN_IF_ERROR(arguments.AddOperand("skip", exchange.skip, 1));
  }
  if (exchange.non_finite != nullptr) {
    BRIGADE_RETURN_IF_ERROR(arguments.AddOperand("non_finite", exchange.non_finite, 1));
  }
  BRIGADE_RETURN_IF_ERROR(arguments.AddOperand("saved", saved, size));
  BRIGADE_RETURN_IF_ERROR(arguments.AddOperand("error", error, size));
  BRIGADE_RETURN_IF_ERROR(arguments.CheckOverlap());
  if (size == 0) return absl::OkStatus();

  const device::Operation operation = {"restore_errors", arguments.accesses()};
#if BRIGADE_CUDA
  if (stream.device().kind == device::DeviceKind::kCuda) {
    return stream.Launch(operation, [&](void* cuda_stream) {
      return device::CudaStatus(
          LaunchRestoreErrors(exchange, saved, error, size, static_cast<cudaStream_t>(cuda_stream)),
          "restore_errors");
    });
  }
#endif
  return stream.Enqueue(operation, [exchange, saved, error, size](device::ThreadPool&) {
    if (IsVoid(exchange)) std::copy_n(saved, size, error);
    return absl::OkStatus();
  });
}

}  // namespace brigade::collectives
