#include "brigade/nn/linear.h"

#include "brigade/device/status_macros.h"
#include "brigade/nn/pointwise.h"

namespace brigade::nn {

absl::Status Linear(const LinearInput& input, const void* bias, void* y, Blas& blas,
                    device::Stream& stream) {
  BRIGADE_RETURN_IF_ERROR(blas.Gemm({.dtype = input.dtype,
                                     .m = input.rows,
                                     .n = input.outputs,
                                     .k = input.inputs,
                                     .a = {const_cast<void*>(input.x), input.inputs},
                                     .b = {const_cast<void*>(input.weight), input.inputs, true},
                                     .c = {y, input.outputs}},
                                    stream));
  if (bias == nullptr) return absl::OkStatus();
  return AddBias({input.dtype, input.rows, input.outputs}, y, bias, nullptr, stream);
}

absl::Status LinearBackward(const LinearInput& input, const void* dy, Gradient dx, Gradient dweight,
                            Gradient dbias, Blas& blas, const Workspace& workspace,
                            device::Stream& stream) {
  if (dbias.data != nullptr) {
    BRIGADE_RETURN_IF_ERROR(
        BiasBackward({input.dtype, input.rows, input.outputs}, dy, dbias, workspace, stream));
  }
  if (dweight.data != nullptr) {
    BRIGADE_RETURN_IF_ERROR(blas.Gemm({.dtype = input.dtype,
                                       .m = input.outputs,
                                       .n = input.inputs,
                                       .k = input.rows,
                                       .a = {const_cast<void*>(dy), input.outputs, true},
                                       .b = {const_cast<void*>(input.x), input.inputs},
                                       .c = {dweight.data, input.inputs},
                                       .accumulate = dweight.accumulate},
                                      stream));
  }
  if (dx.data == nullptr) return absl::OkStatus();
  return blas.Gemm({.dtype = input.dtype,
                    .m = input.rows,
                    .n = input.inputs,
                    .k = input.outputs,
                    .a = {const_cast<void*>(dy), input.outputs},
                    .b = {const_cast<void*>(input.weight), input.inputs},
                    .c = {dx.data, input.inputs},
                    .accumulate = dx.accumulate},
                   stream);
}

}  // namespace brigade::nn
