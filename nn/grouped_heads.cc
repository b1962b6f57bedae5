#include "brigade/nn/grouped_heads.h"

#include "absl/strings/str_cat.h"
#include "brigade/device/status_macros.h"
#include "brigade/nn/arrays.h"
#include "brigade/nn/enqueue.h"
#include "brigade/nn/grouped_heads_math.h"

namespace brigade::nn {
namespace {

absl::Status Check(absl::string_view layer, const GroupedHeadsShape& shape) {
  if (shape.rows >= 0 && shape.head_width >= 1 && shape.key_value_heads >= 1 && shape.heads >= 1 &&
      shape.heads % shape.key_value_heads == 0) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(layer, ": ", shape.rows, " rows of ", shape.heads,
                                                 " heads of queries and ", shape.key_value_heads,
                                                 " of keys and values, ", shape.head_width,
                                                 " wide; the latter must divide the former"));
}

GroupedHeadsPlaces PlacesOf(const GroupedHeadsShape& shape) {
  return {shape.heads, shape.key_value_heads, shape.head_width};
}

}  // namespace

absl::Status RepeatHeads(const GroupedHeadsShape& shape, const void* grouped, void* all,
                         device::Stream& stream) {
  BRIGADE_RETURN_IF_ERROR(Check("repeat_heads", shape));
  return WithType("repeat_heads", shape.dtype, [&](auto tag) {
    using T = decltype(tag);
    const RepeatHeadsRows<T> rows = {PlacesOf(shape), Typed<T>(grouped), Typed<T>(all)};
    return EnqueueRows({"repeat_heads",
                        {Read(rows.grouped, shape.rows * rows.places.grouped_columns()),
                         Write(rows.all, shape.rows * rows.places.columns())}},
                       shape.rows, rows, stream);
  });
}

absl::Status RepeatHeadsBackward(const GroupedHeadsShape& shape, const void* all, void* grouped,
                                 device::Stream& stream) {
  BRIGADE_RETURN_IF_ERROR(Check("repeat_heads_backward", shape));
  return WithType("repeat_heads_backward", shape.dtype, [&](auto tag) {
    using T = decltype(tag);
    const SumHeadsRows<T> rows = {PlacesOf(shape), Typed<T>(all), Typed<T>(grouped)};
    return EnqueueRows({"repeat_heads_backward",
                        {Read(rows.all, shape.rows * rows.places.columns()),
                         Write(rows.grouped, shape.rows * rows.places.grouped_columns())}},
                       shape.rows, rows, stream);
  });
}

}  // namespace brigade::nn
