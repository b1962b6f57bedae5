#include "brigade/nn/cached_attention.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "brigade/device/status_macros.h"
#include "brigade/nn/arrays.h"
#include "brigade/nn/cached_attention_math.h"
#include "brigade/nn/enqueue.h"

namespace brigade::nn {
namespace {

absl::Status Check(const CachedAttentionShape& shape) {
  if (shape.samples < 0 || shape.count < 1 || shape.first < 0 ||
      shape.first > shape.capacity - shape.count) {
    return absl::InvalidArgumentError(
        absl::StrCat("cached_attention: ", shape.count, " positions behind ", shape.first, ", of ",
                     shape.samples, " texts, in a cache of ", shape.capacity));
  }
  if (shape.head_width < 1 || shape.head_width > kMaxHeadWidth || shape.key_value_heads < 1 ||
      shape.heads < 1 || shape.heads % shape.key_value_heads != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("cached_attention: ", shape.heads, " heads of queries and ",
                     shape.key_value_heads, " of keys and values, ", shape.head_width,
                     " wide; the latter must divide the former, and be "
                     "1 to ",
                     kMaxHeadWidth, " wide"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CachedAttention(const CachedAttentionShape& shape, const void* projected, void* keys,
                             void* values, void* out, device::Stream& stream) {
  BRIGADE_RETURN_IF_ERROR(Check(shape));
  return WithType("cached_attention", shape.dtype, [&](auto tag) -> absl::Status {
    using T = decltype(tag);
    using W = Wide<T>;
    const CachedAttentionArrays<T> arrays = {
        .projected = Typed<T>(projected),
        .keys = Typed<T>(keys),
        .values = Typed<T>(values),
        .capacity = shape.capacity,
        .first = shape.first,
        .count = shape.count,
        .heads = shape.heads,
        .key_value_heads = shape.key_value_heads,
        .head_width = shape.head_width,
        .scale = static_cast<W>(1 / std::sqrt(static_cast<double>(shape.head_width)))};
    const int64_t rows = shape.samples * shape.count;
    const int64_t cached = shape.cache_elements();
    const AppendToCacheRows<T> append = {arrays};
    BRIGADE_RETURN_IF_ERROR(
        EnqueueRows({"append_to_cache",
                     {Read(arrays.projected, rows * arrays.projected_columns()),
                      Write(arrays.keys, cached), Write(arrays.values, cached)}},
                    rows, append, stream));
    const CachedAttentionRows<T> attention = {arrays, Typed<T>(out)};
    const T *const cached_keys = arrays.keys, *const cached_values = arrays.values;
    return EnqueueRows({"cached_attention",
                        {Read(arrays.projected, rows * arrays.projected_columns()),
                         Read(cached_keys, cached), Read(cached_values, cached),
                         Write(attention.out, rows * shape.heads * shape.head_width)}},
                       rows * shape.heads, attention, stream);
  });
}

}  // namespace brigade::nn
