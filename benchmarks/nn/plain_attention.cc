#include "brigade/benchmarks/nn/plain_attention.h"

#include <cmath>

#include "brigade/device/status_macros.h"
#include "brigade/nn/arrays.h"
#include "brigade/nn/enqueue.h"
#include "brigade/nn/functions.h"
#include "brigade/nn/rows.h"

namespace brigade::benchmarks {
namespace {

using nn::EnqueueRowsOnCpu;
using nn::Exp;
using nn::Operand;
using nn::Read;
using nn::Typed;
using nn::Wide;
using nn::Widen;
using nn::WithType;
using nn::Write;

// In place on scores [.., context, context]: softmax(scores) over the columns up to the row's own
// position, 0 behind it.
template <typename T>
struct CausalSoftmaxRows {
  T* scores;
  int64_t context;

  template <typename Row>
  BRIGADE_INLINE void operator()(Row row, int64_t r) const {
    using W = Wide<T>;
    T* const s = scores + r * context;
    const int64_t visible = r % context + 1;
    const W max =
        row.template Max<W>(visible, [&](int64_t c) BRIGADE_NN_BODY { return Widen(s[c]); });
    const W sum = row.template Sum<W>(
        visible, [&](int64_t c) BRIGADE_NN_BODY { return Exp(Widen(s[c]) - max); });
    const W inverse = W(1) / sum;
    row.ForEach(visible,
                [&](int64_t c) BRIGADE_NN_BODY { s[c] = T(Exp(Widen(s[c]) - max) * inverse); });
    row.ForEach(context - visible, [&](int64_t c) BRIGADE_NN_BODY { s[visible + c] = T(W(0)); });
  }
};

// In place on the gradient of the probabilities, which becomes that of the scores:
// d = p * (d - sum(d * p)).
template <typename T>
struct CausalSoftmaxBackwardRows {
  const T* probabilities;
  T* gradient;
  int64_t context;

  template <typename Row>
  BRIGADE_INLINE void operator()(Row row, int64_t r) const {
    using W = Wide<T>;
    const T* const p = probabilities + r * context;
    T* const d = gradient + r * context;
    const int64_t visible = r % context + 1;
    const W dot = row.template Sum<W>(
        visible, [&](int64_t c) BRIGADE_NN_BODY { return Widen(p[c]) * Widen(d[c]); });
    row.ForEach(visible,
                [&](int64_t c) BRIGADE_NN_BODY { d[c] = T(Widen(p[c]) * (Widen(d[c]) - dot)); });
    row.ForEach(context - visible, [&](int64_t c) BRIGADE_NN_BODY { d[visible + c] = T(W(0)); });
  }
};

int64_t ScoresOf(const nn::AttentionShape& shape) { return shape.statistics() * shape.context; }

double Scale(const nn::AttentionShape& shape) {
  return 1.0 / std::sqrt(static_cast<double>(shape.head_width()));
}

// Where a head's matrices are: `part` of queries, keys and values; or the one part of the output.
template <typename T>
Operand Head(const nn::AttentionShape& shape, const T* data, int64_t part, int64_t parts,
             bool transposed = false) {
  const int64_t leading = parts * shape.width;
  return {const_cast<T*>(data) + part * shape.width, leading, transposed, shape.head_width(),
          shape.context * leading};
}

template <typename T>
Operand Scores(const nn::AttentionShape& shape, const T* data, bool transposed = false) {
  const int64_t size = shape.context * shape.context;
  return {const_cast<T*>(data), shape.context, transposed, size, shape.heads * size};
}

enum Part { kQueries, kKeys, kValues };

}  // namespace

absl::Status PlainAttention(const nn::AttentionShape& shape, const void* qkv, void* probabilities,
                            void* out, nn::Blas& blas, device::Stream& stream) {
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
    BRIGADE_RETURN_IF_ERROR(EnqueueRowsOnCpu({"softmax", {Write(scores, ScoresOf(shape))}},
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

absl::Status PlainAttentionBackward(const nn::AttentionShape& shape, const void* qkv,
                                    const void* probabilities, const void* dout, void* dscores,
                                    void* dqkv, nn::Blas& blas, device::Stream& stream) {
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
    BRIGADE_RETURN_IF_ERROR(EnqueueRowsOnCpu(
        {"softmax_backward", {Read(p, ScoresOf(shape)), Write(ds, ScoresOf(shape))}},
        shape.batch * shape.heads * t, softmax, stream));
    BRIGADE_RETURN_IF_ERROR(gemm(t, width, t, Scores(shape, ds), Head(shape, in, kKeys, 3),
                                 Head(shape, d, kQueries, 3), Scale(shape)));
    return gemm(t, width, t, Scores(shape, ds, true), Head(shape, in, kQueries, 3),
                Head(shape, d, kKeys, 3), Scale(shape));
  });
}

}  // namespace brigade::benchmarks
