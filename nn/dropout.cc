#include "brigade/nn/dropout.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "brigade/nn/arrays.h"
#include "brigade/nn/dropout_math.h"
#include "brigade/nn/enqueue.h"

namespace brigade::nn {
namespace {

absl::Status Enqueue(absl::string_view layer, precision::DType dtype, int64_t size,
                     const DropoutMask& mask, const void* x, const void* residual, void* y,
                     device::Stream& stream) {
  if (!(mask.probability >= 0 && mask.probability < 1)) {
    return absl::InvalidArgumentError(absl::StrCat(layer, ": probability is ", mask.probability,
                                                   "; it must be at least 0 and below 1"));
  }
  if (size < 0 || mask.first_element < 0 ||
      mask.first_element > std::numeric_limits<int64_t>::max() - size) {
    return absl::InvalidArgumentError(absl::StrCat(
        layer, ": ", size, " elements from ", mask.first_element, " on are not in 0 to 2^63 - 1"));
  }
  if (mask.probability > 0 && mask.step == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat(layer, ": step is null; the probability is ", mask.probability));
  }
  return WithType(layer, dtype, [&](auto tag) {
    using T = decltype(tag);
    constexpr double kWords = 0x1p32;
    const double threshold = std::min(std::round(mask.probability * kWords), kWords - 1);
    const DropoutRows<T> rows = {
        .x = Typed<T>(x),
        .residual = Typed<T>(residual),
        .y = Typed<T>(y),
        .first = mask.first_element,
        .size = size,
        .seed = mask.seed,
        .layer = mask.layer,
        .step = mask.step,
        .threshold = static_cast<uint32_t>(threshold),
        // Of the probability that words have: 1 where none is dropped.
        .scale = static_cast<Wide<T>>(kWords / (kWords - threshold)),
    };
    return EnqueueRows({layer,
                        {Read(rows.x, size), Read(rows.residual, residual == nullptr ? 0 : size),
                         Read(rows.step, mask.step == nullptr ? 0 : 1), Write(rows.y, size)}},
                       DropoutRowsOf(mask.first_element, size), rows, stream);
  });
}

}  // namespace

absl::Status Dropout(precision::DType dtype, int64_t size, const DropoutMask& mask, const void* x,
                     const void* residual, void* y, device::Stream& stream) {
  return Enqueue("dropout", dtype, size, mask, x, residual, y, stream);
}

absl::Status DropoutBackward(precision::DType dtype, int64_t size, const DropoutMask& mask,
                             const void* dy, Gradient dx, device::Stream& stream) {
  return Enqueue("dropout_backward", dtype, size, mask, dy, dx.accumulate ? dx.data : nullptr,
                 dx.data, stream);
}

}  // namespace brigade::nn
