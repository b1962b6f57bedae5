#include "brigade/nn/swiglu.h"

#include "brigade/nn/arrays.h"
#include "brigade/nn/enqueue.h"
#include "brigade/nn/swiglu_math.h"

namespace brigade::nn {

absl::Status Swiglu(const SwigluShape& shape, const void* x, void* y, device::Stream& stream) {
  return WithType("swiglu", shape.dtype, [&](auto tag) {
    using T = decltype(tag);
    const SwigluRows<T> rows = {Typed<T>(x), Typed<T>(y), shape.width};
    const int64_t size = shape.rows * shape.width;
    return EnqueueRows({"swiglu", {Read(rows.x, 2 * size), Write(rows.y, size)}}, shape.rows, rows,
                       stream);
  });
}

absl::Status SwigluBackward(const SwigluShape& shape, const void* x, const void* dy, Gradient dx,
                            device::Stream& stream) {
  return WithType("swiglu_backward", shape.dtype, [&](auto tag) {
    using T = decltype(tag);
    const SwigluBackwardRows<T> rows = {Typed<T>(x), Typed<T>(dy), Typed<T>(dx.data), dx.accumulate,
                                        shape.width};
    const int64_t size = shape.rows * shape.width;
    return EnqueueRows({"swiglu_backward",
                        {Read(rows.x, 2 * size), Read(rows.dy, size), Write(rows.dx, 2 * size)}},
                       shape.rows, rows, stream);
  });
}

}  // namespace brigade::nn
