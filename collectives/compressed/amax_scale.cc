#include "brigade/collectives/compressed/amax_scale.h"

#include "absl/strings/str_cat.h"
#include "brigade/collectives/compressed/amax_scale_math.h"
#include "brigade/kernels/list_arguments.h"

#if BRIGADE_CUDA
#include "brigade/collectives/compressed/amax_scale_cuda.h"
#include "brigade/device/cuda/cuda_status.h"
#endif

namespace brigade::kernels {

absl::Status ChooseWireScale(const float* abs_max, int64_t terms, precision::DType wire,
                             WireScale* result, device::Stream& stream) {
  if (wire != precision::DType::kFloat16 && wire != precision::DType::kBFloat16) {
    return absl::InvalidArgumentError(absl::StrCat("wire_scale: wire is ", precision::Name(wire),
                                                   ", must be float16 or bfloat16"));
  }
  if (terms < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("wire_scale: there are ", terms, " terms, must be 1 or more"));
  }
  ListArguments arguments("wire_scale", {}, stream);
  BRIGADE_RETURN_IF_ERROR(arguments.AddOperand("abs_max", abs_max, 1));
  BRIGADE_RETURN_IF_ERROR(arguments.AddOperand("result", result, 1));
  BRIGADE_RETURN_IF_ERROR(arguments.CheckOverlap());

  const int32_t limit = wire == precision::DType::kFloat16 ? kHalfLimit : kBFloat16Limit;
  const device::Operation operation = {"wire_scale", arguments.accesses()};
#if BRIGADE_CUDA
  if (stream.device().kind == device::DeviceKind::kCuda) {
    return stream.Launch(operation, [&](void* cuda_stream) {
      return device::CudaStatus(
          LaunchWireScale(abs_max, terms, limit, result, static_cast<cudaStream_t>(cuda_stream)),
          "wire_scale");
    });
  }
#endif
  return stream.Enqueue(operation, [abs_max, terms, limit, result](device::ThreadPool&) {
    *result = ChooseScale(*abs_max, terms, limit);
    return absl::OkStatus();
  });
}

}  // namespace brigade::kernels
