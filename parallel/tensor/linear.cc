#include "brigade/parallel/tensor/linear.h"

#include "absl/strings/str_cat.h"
#include "brigade/device/status_macros.h"
#include "brigade/precision/dtype.h"

namespace brigade::parallel {
namespace {

// Where a shard's elements are in an array that has `size` for each.
const void* Of(const void* array, int shard, int64_t size, precision::DType dtype) {
  if (array == nullptr) return nullptr;
  return static_cast<const char*>(array) + shard * size * precision::SizeOf(dtype);
}
void* Of(void* array, int shard, int64_t size, precision::DType dtype) {
  return const_cast<void*>(Of(static_cast<const void*>(array), shard, size, dtype));
}
nn::Gradient Of(nn::Gradient gradient, int shard, int64_t size, precision::DType dtype) {
  return {Of(gradient.data, shard, size, dtype), gradient.accumulate};
}

const void* WeightOf(const nn::LinearInput& shard, int s) {
  return Of(shard.weight, s, shard.outputs * shard.inputs, shard.dtype);
}

absl::Status CheckType(const nn::LinearInput& shard, const ShardSums& sums) {
  if (shard.dtype == sums.options().dtype) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("linear: dtype is ", precision::Name(shard.dtype),
                                                 ", that of the sums ",
                                                 precision::Name(sums.options().dtype)));
}

}  // namespace

absl::Status ColumnLinear(const nn::LinearInput& shard, int local_shards, const void* bias, void* y,
                          nn::Blas& blas, device::Stream& stream) {
  for (int s = 0; s < local_shards; ++s) {
    nn::LinearInput each = shard;
    each.weight = WeightOf(shard, s);
    BRIGADE_RETURN_IF_ERROR(nn::Linear(each, Of(bias, s, shard.outputs, shard.dtype),
                                       Of(y, s, shard.rows * shard.outputs, shard.dtype), blas,
                                       stream));
  }
  return absl::OkStatus();
}

absl::Status ColumnLinearBackward(const nn::LinearInput& shard, const void* dy, void* dx,
                                  nn::Gradient dweight, nn::Gradient dbias, ShardSums& sums,
                                  nn::Blas& blas, const nn::Workspace& workspace,
                                  device::Stream& stream) {
  BRIGADE_RETURN_IF_ERROR(CheckType(shard, sums));
  const auto dy_of = [&](int s) { return Of(dy, s, shard.rows * shard.outputs, shard.dtype); };
  for (int s = 0; s < sums.local_shards(); ++s) {
    BRIGADE_RETURN_IF_ERROR(nn::LinearBackward(
        shard, dy_of(s), {}, Of(dweight, s, shard.outputs * shard.inputs, shard.dtype),
        Of(dbias, s, shard.outputs, shard.dtype), blas, workspace, stream));
  }
  if (dx == nullptr) return absl::OkStatus();
  const auto product = [&](int s, void* partial, precision::DType dtype) {
    return blas.Gemm({.dtype = shard.dtype,
                      .m = shard.rows,
                      .n = shard.inputs,
                      .k = shard.outputs,
                      .a = {const_cast<void*>(dy_of(s)), shard.outputs},
                      .b = {const_cast<void*>(WeightOf(shard, s)), shard.inputs},
                      .c = {partial, shard.inputs},
                      .c_dtype = dtype},
                     stream);
  };
  return sums.Sum(shard.rows, shard.inputs, product, dx, stream);
}

absl::Status RowLinear(const nn::LinearInput& shard, void* y, ShardSums& sums, nn::Blas& blas,
                       device::Stream& stream) {
  BRIGADE_RETURN_IF_ERROR(CheckType(shard, sums));
  const auto product = [&](int s, void* partial, precision::DType dtype) {
    return blas.Gemm(
        {.dtype = shard.dtype,
         .m = shard.rows,
         .n = shard.outputs,
         .k = shard.inputs,
         .a = {const_cast<void*>(Of(shard.x, s, shard.rows * shard.inputs, shard.dtype)),
               shard.inputs},
         .b = {const_cast<void*>(WeightOf(shard, s)), shard.inputs, true},
         .c = {partial, shard.outputs},
         .c_dtype = dtype},
        stream);
  };
  return sums.Sum(shard.rows, shard.outputs, product, y, stream);
}

absl::Status RowLinearBackward(const nn::LinearInput& shard, int local_shards, const void* dy,
                               void* dx, nn::Gradient dweight, nn::Blas& blas,
                               const nn::Workspace& workspace, device::Stream& stream) {
  for (int s = 0; s < local_shards; ++s) {
    const int64_t size = shard.rows * shard.inputs;
    nn::LinearInput each = shard;
    each.x = Of(shard.x, s, size, shard.dtype);
    each.weight = WeightOf(shard, s);
    BRIGADE_RETURN_IF_ERROR(nn::LinearBackward(
        each, dy, {Of(dx, s, size, shard.dtype)},
        Of(dweight, s, shard.outputs * shard.inputs, shard.dtype), {}, blas, workspace, stream));
  }
  return absl::OkStatus();
}

}  // namespace brigade::parallel
