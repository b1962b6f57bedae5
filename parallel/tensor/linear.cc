#include "brigade/parallel/tensor/linear.h"

#include "absl/strings/str_cat.h"
#include "brigade/device/status_macros.h"
#include "brigade/parallel/tensor/row_pieces.h"
#include "brigade/precision/dtype.h"
#include "brigade/precision/dtype_names.h"

namespace brigade::parallel {
namespace {

// Where the elements of a shard, or of a row, are in an array that has `size` for each.
const void* Of(const void* array, int64_t index, int64_t size, precision::DType dtype) {
  if (array == nullptr) return nullptr;
  return static_cast<const char*>(array) + index * size * precision::SizeOf(dtype);
}
void* Of(void* array, int64_t index, int64_t size, precision::DType dtype) {
  return const_cast<void*>(Of(static_cast<const void*>(array), index, size, dtype));
}
nn::Gradient Of(nn::Gradient gradient, int64_t index, int64_t size, precision::DType dtype) {
  return {Of(gradient.data, index, size, dtype), gradient.accumulate};
}

const void* WeightOf(const nn::LinearInput& shard, int s) {
  return Of(shard.weight, s, shard.outputs * shard.inputs, shard.dtype);
}

absl::Status CheckType(const nn::LinearInput& shard, const ShardSums& sums) {
  if (shard.dtype == sums.options().dtype) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("linear: dtype is ", precision::ShortName(shard.dtype), ", that of the sums ",
                   precision::ShortName(sums.options().dtype)));
}

}  // namespace

absl::Status ColumnLinear(const nn::LinearInput& shard, const void* bias, void* y, ShardSums& sums,
                          nn::Blas& blas, device::Stream& stream) {
  BRIGADE_RETURN_IF_ERROR(CheckType(shard, sums));
  const RowPieces pieces = sums.GatheredPiecesOf(shard.rows);
  for (int p = 0; p < pieces.count(); ++p) {
    BRIGADE_RETURN_IF_ERROR(sums.AwaitRows(p, stream));
    const RowRange rows = pieces.Piece(p);
    for (int s = 0; s < sums.local_shards(); ++s) {
      nn::LinearInput each = shard;
      each.rows = rows.count;
      each.x = Of(shard.x, rows.first, shard.inputs, shard.dtype);
      each.weight = WeightOf(shard, s);
      BRIGADE_RETURN_IF_ERROR(
          nn::Linear(each, Of(bias, s, shard.outputs, shard.dtype),
                     Of(y, s * shard.rows + rows.first, shard.outputs, shard.dtype), blas, stream));
    }
  }
  return absl::OkStatus();
}

absl::Status ColumnLinearBackward(const nn::LinearInput& shard, const void* dy, void* dx,
                                  nn::Gradient dweight, nn::Gradient dbias, ShardSums& sums,
                                  nn::Blas& blas, const nn::Workspace& workspace,
                                  device::Stream& stream) {
  BRIGADE_RETURN_IF_ERROR(CheckType(shard, sums));
  if (dx != nullptr) {
    const auto product = [&](int s, const RowRange& rows, void* partial, precision::DType dtype) {
      return blas.Gemm(
          {.dtype = shard.dtype,
           .m = rows.count,
           .n = shard.inputs,
           .k = shard.outputs,
           .a = {const_cast<void*>(Of(dy, s * shard.rows + rows.first, shard.outputs, shard.dtype)),
                 shard.outputs},
           .b = {const_cast<void*>(WeightOf(shard, s)), shard.inputs},
           .c = {partial, shard.inputs},
           .c_dtype = dtype},
          stream);
    };
    BRIGADE_RETURN_IF_ERROR(sums.StartSum(shard.rows, shard.inputs, product, dx, stream));
  }
  // Beside the sum.
  BRIGADE_RETURN_IF_ERROR(sums.AwaitRows(stream));
  for (int s = 0; s < sums.local_shards(); ++s) {
    BRIGADE_RETURN_IF_ERROR(
        nn::LinearBackward(shard, Of(dy, s, shard.rows * shard.outputs, shard.dtype), {},
                           Of(dweight, s, shard.outputs * shard.inputs, shard.dtype),
                           Of(dbias, s, shard.outputs, shard.dtype), blas, workspace, stream));
  }
  return dx == nullptr ? absl::OkStatus() : sums.FinishSum(stream);
}

absl::Status RowLinear(const nn::LinearInput& shard, void* y, ShardSums& sums, nn::Blas& blas,
                       device::Stream& stream) {
  BRIGADE_RETURN_IF_ERROR(CheckType(shard, sums));
  const auto product = [&](int s, const RowRange& rows, void* partial, precision::DType dtype) {
    return blas.Gemm({.dtype = shard.dtype,
                      .m = rows.count,
                      .n = shard.outputs,
                      .k = shard.inputs,
                      .a = {const_cast<void*>(Of(shard.x, s * shard.rows + rows.first, shard.inputs,
                                                 shard.dtype)),
                            shard.inputs},
                      .b = {const_cast<void*>(WeightOf(shard, s)), shard.inputs, true},
                      .c = {partial, shard.outputs},
                      .c_dtype = dtype},
                     stream);
  };
  return sums.Sum(shard.rows, shard.outputs, product, y, stream);
}

absl::Status RowLinearBackward(const nn::LinearInput& shard, const void* dy, void* dx,
                               nn::Gradient dweight, ShardSums& sums, nn::Blas& blas,
                               const nn::Workspace& workspace, device::Stream& stream) {
  BRIGADE_RETURN_IF_ERROR(CheckType(shard, sums));
  const RowPieces pieces = sums.GatheredPiecesOf(shard.rows);
  // Of one shard and some of its rows.
  const auto backward = [&](int s, const RowRange& rows, nn::Gradient dx_of_rows,
                            nn::Gradient dweight_of_shard) {
    nn::LinearInput each = shard;
    each.rows = rows.count;
    each.x = Of(shard.x, s * shard.rows + rows.first, shard.inputs, shard.dtype);
    each.weight = WeightOf(shard, s);
    return nn::LinearBackward(each, Of(dy, rows.first, shard.outputs, shard.dtype), dx_of_rows,
                              dweight_of_shard, {}, blas, workspace, stream);
  };
  const auto dweight_of = [&](int s) {
    return Of(dweight, s, shard.outputs * shard.inputs, shard.dtype);
  };
  const bool is_cut = pieces.count() > 1;
  if (is_cut && dx != nullptr) {
    for (int p = 0; p < pieces.count(); ++p) {
      BRIGADE_RETURN_IF_ERROR(sums.AwaitRows(p, stream));
      const RowRange rows = pieces.Piece(p);
      for (int s = 0; s < sums.local_shards(); ++s) {
        void* const dx_of_rows = Of(dx, s * shard.rows + rows.first, shard.inputs, shard.dtype);
        BRIGADE_RETURN_IF_ERROR(backward(s, rows, {dx_of_rows}, {}));
      }
    }
  }
  BRIGADE_RETURN_IF_ERROR(sums.AwaitRows(stream));
  for (int s = 0; s < sums.local_shards(); ++s) {
    void* const dx_of_shard = is_cut ? nullptr : Of(dx, s * shard.rows, shard.inputs, shard.dtype);
    BRIGADE_RETURN_IF_ERROR(backward(s, {0, shard.rows}, {dx_of_shard}, dweight_of(s)));
  }
  return absl::OkStatus();
}

}  // namespace brigade::parallel
