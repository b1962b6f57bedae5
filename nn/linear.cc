#include "brigade/nn/linear.h"

#include <utility>

#include "brigade/device/status_macros.h"
#include "brigade/nn/pointwise.h"

namespace brigade::nn {

namespace {

int64_t LeadingOf(const LinearInput& input) {
  return input.y_leading == 0 ? input.outputs : input.y_leading;
}

MatrixShape ShapeOfY(const LinearInput& input) {
  return {input.dtype, input.rows, input.outputs, input.y_leading};
}

}  // namespace

absl::Status Linear(const LinearInput& input, const void* bias, void* y, Blas& blas,
                    device::Stream& stream) {
  void* const weight = const_cast<void*>(input.weight);
  BRIGADE_RETURN_IF_ERROR(blas.Gemm(
      {.dtype = input.dtype,
       .m = input.rows,
       .n = input.outputs,
       .k = input.inputs,
       .a = {const_cast<void*>(input.x), input.inputs},
       .b = {weight, input.input_major ? input.outputs : input.inputs, !input.input_major},
       .c = {y, LeadingOf(input)},
       .accumulate = input.accumulate},
      stream));
  if (bias == nullptr) return absl::OkStatus();
  return AddBias(ShapeOfY(input), y, bias, nullptr, stream);
}

absl::Status LinearBackward(const LinearInput& input, const void* dy, Gradient dx, Gradient dweight,
                            Gradient dbias, Blas& blas, const Workspace& workspace,
                            device::Stream& stream) {
  if (dbias.data != nullptr) {
    BRIGADE_RETURN_IF_ERROR(BiasBackward(ShapeOfY(input), dy, dbias, workspace, stream));
  }
  const Operand up = {const_cast<void*>(dy), LeadingOf(input)};
  const Operand x = {const_cast<void*>(input.x), input.inputs};
  if (dweight.data != nullptr) {
    GemmArguments product = {.dtype = input.dtype,
                             .m = input.outputs,
                             .n = input.inputs,
                             .k = input.rows,
                             .a = up,
                             .b = x,
                             .c = {dweight.data, input.inputs},
                             .accumulate = dweight.accumulate};
    if (input.input_major) {
      std::swap(product.m, product.n);
      std::swap(product.a, product.b);
      product.c.leading = input.outputs;
    }
    product.a.transposed = true;
    BRIGADE_RETURN_IF_ERROR(blas.Gemm(product, stream));
  }
  if (dx.data == nullptr) return absl::OkStatus();
  return blas.Gemm({.dtype = input.dtype,
                    .m = input.rows,
                    .n = input.inputs,
                    .k = input.outputs,
                    .a = up,
                    .b = {const_cast<void*>(input.weight),
                          input.input_major ? input.outputs : input.inputs, input.input_major},
                    .c = {dx.data, input.inputs},
                    .accumulate = dx.accumulate},
                   stream);
}

}  // namespace brigade::nn
