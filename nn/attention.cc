#include "brigade/nn/attention.h"

#include <cmath>

#include "brigade/device/status_macros.h"
#include "brigade/nn/arrays.h"
#include "brigade/nn/attention_math.h"
#include "brigade/nn/enqueue.h"

namespace brigade::nn {
namespace {

double Scale(const AttentionShape& shape) {
  return 1.0 / std::sqrt(static_cast<double>(shape.head_width()));
}

// Where a head's matrices are: `part` of queries, keys and values; or the one part of the output.
template <typename T>
Operand Head(const AttentionShape& shape, const T* data, int64_t part, int64_t parts,
             bool transposed = false) {
  const int64_t leading = parts * shape.width;
  return {const_cast<T*>(data) + part * shape.width, leading, transposed, shape.head_width(),
          shape.context * leading};
}

template <typename T>
Operand Scores(const AttentionShape& shape, const T* data, bool transposed = false) {
  const int64_t size = shape.context * shape.context;
  return {const_cast<T*>(data), shape.context, transposed, size, shape.heads * size};
}

enum Part { kQueries, kKeys, kValues };

}  // namespace

absl::Status Attention(const AttentionShape& shape, const void* qkv, void* probabilities, void* out,
                       Blas& blas, device::Stream& stream) {
  const int64_t t = shape.context, width = shape.head_width();
  return WithType("attention", shape.dtype, [&](auto tag) {
    using T = decltype(tag);
    const T* const in = Typed<T>(qkv);
    T* const scores = Typed<T>(probabilities);
    BRIGADE_RETURN_IF_ERROR(blas.Gemm({.dtype = shape.dtype,
                                       .m = t,
                                       .n = t,
                                       .k = width,
                                       .a = Head(shape, in, kQueries, 3),
                                       .b = Head(shape, in, kKeys, 3, true),
                                       .c = Scores(shape, scores),
                                       .batch = shape.heads,
                                       .outer_batch = shape.batch,
                                       .scale = Scale(shape)},
                                      stream));
    const CausalSoftmaxRows<T> softmax = {scores, t};
    BRIGADE_RETURN_IF_ERROR(EnqueueRows({"softmax", {Write(scores, shape.scores())}},
                                        shape.batch * shape.heads * t, softmax, stream));
    return blas.Gemm({.dtype = shape.dtype,
                      .m = t,
                      .n = width,
                      .k = t,
                      .a = Scores(shape, scores),
                      .b = Head(shape, in, kValues, 3),
                      .c = Head(shape, Typed<T>(out), 0, 1),
                      .batch = shape.heads,
                      .outer_batch = shape.batch},
                     stream);
  });
}

absl::Status AttentionBackward(const AttentionShape& shape, const void* qkv,
                               const void* probabilities, const void* dout, void* dscores,
                               void* dqkv, Blas& blas, device::Stream& stream) {
  const int64_t t = shape.context, width = shape.head_width();
  return WithType("attention_backward", shape.dtype, [&](auto tag) {
    using T = decltype(tag);
    const T* const in = Typed<T>(qkv);
    const T* const p = Typed<T>(probabilities);
    const T* const up = Typed<T>(dout);
    T* const ds = Typed<T>(dscores);
    T* const d = Typed<T>(dqkv);
    const auto gemm = [&](int64_t m, int64_t n, int64_t k, Operand a, Operand b, Operand c,
                          double scale = 1) {
      return blas.Gemm({.dtype = shape.dtype,
                        .m = m,
                        .n = n,
                        .k = k,
                        .a = a,
                        .b = b,
                        .c = c,
                        .batch = shape.heads,
                        .outer_batch = shape.batch,
                        .scale = scale},
                       stream);
    };
    BRIGADE_RETURN_IF_ERROR(gemm(t, width, t, Scores(shape, p, true), Head(shape, up, 0, 1),
                                 Head(shape, d, kValues, 3)));
    BRIGADE_RETURN_IF_ERROR(gemm(t, t, width, Head(shape, up, 0, 1),
                                 Head(shape, in, kValues, 3, true), Scores(shape, ds)));
    const CausalSoftmaxBackwardRows<T> softmax = {p, ds, t};
    BRIGADE_RETURN_IF_ERROR(
        EnqueueRows({"softmax_backward", {Read(p, shape.scores()), Write(ds, shape.scores())}},
                    shape.batch * shape.heads * t, softmax, stream));
    BRIGADE_RETURN_IF_ERROR(gemm(t, width, t, Scores(shape, ds), Head(shape, in, kKeys, 3),
                                 Head(shape, d, kQueries, 3), Scale(shape)));
    return gemm(t, width, t, Scores(shape, ds, true), Head(shape, in, kQueries, 3),
                Head(shape, d, kKeys, 3), Scale(shape));
  });
}

}  // namespace brigade::nn
