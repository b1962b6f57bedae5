#include "brigade/collectives/compressed/amax_scale.h"

#include "absl/strings/str_cat.h"
#include "brigade/collectives/compressed/amax_scale_math.h"
#include "brigade/kernels/list_arguments.h"
#include "brigade/precision/dtype_names.h"

#if BRIGADE_CUDA
#include "brigade/collectives/compressed/amax_scale_cuda.h"
#include "brigade/device/cuda/cuda_status.h"
#endif

namespace brigade::collectives {

absl::Status ChooseAmaxScale(const float* amax, int64_t terms, precision::DType wire,
                             AmaxScale* result, device::Stream& stream) {
  if (wire != precision::DType::kFloat16 && wire != precision::DType::kBFloat16) {
    return absl::InvalidArgumentError(
        absl::StrCat("amax_scale: wire is ", precision::ShortName(wire), ", must be fp16 or bf16"));
  }
  if (terms < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("amax_scale: there are ", terms, " terms, must be 1 or more"));
  }
  kernels::ListArguments arguments("amax_scale", {}, stream);
  BRIGADE_RETURN_IF_ERROR(arguments.AddOperand("amax", amax, 1));
  BRIGADE_RETURN_IF_ERROR(arguments.AddOperand("result", result, 1));
  BRIGADE_RETURN_IF_ERROR(arguments.CheckOverlap());

  const int32_t limit = wire == precision::DType::kFloat16 ? kHalfSumLimit : kBFloat16SumLimit;
  const device::Operation operation = {"amax_scale", arguments.accesses()};
#if BRIGADE_CUDA
  if (stream.device().kind == device::DeviceKind::kCuda) {
    return stream.Launch(operation, [&](void* cuda_stream) {
      return device::CudaStatus(
          LaunchAmaxScale(amax, terms, limit, result, static_cast<cudaStream_t>(cuda_stream)),
          "amax_scale");
    });
  }
#endif
  return stream.Enqueue(operation, [amax, terms, limit, result](device::ThreadPool&) {
    *result = AmaxScaleFor(*amax, terms, limit);
    return absl::OkStatus();
  });
}

}  // namespace brigade::collectives
