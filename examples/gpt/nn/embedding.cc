#include "brigade/examples/gpt/nn/embedding.h"

#include "brigade/device/status_macros.h"
#include "brigade/examples/gpt/nn/arrays.h"
#include "brigade/examples/gpt/nn/embedding_math.h"
#include "brigade/examples/gpt/nn/enqueue.h"

namespace brigade::nn {

absl::Status Embedding(const Texts& texts, precision::DType dtype, int64_t width,
                       const void* tokens, const void* positions, void* x, device::Stream& stream) {
  return WithType("embedding", dtype, [&](auto tag) {
    using T = decltype(tag);
    const EmbeddingRows<T> rows = {texts, Typed<T>(tokens), Typed<T>(positions), Typed<T>(x),
                                   width};
    return EnqueueRows(
        {"embedding",
         {Read(texts.bytes, texts.size()), Read(rows.tokens, kVocabulary * width),
          Read(rows.positions, texts.context * width), Write(rows.x, texts.rows() * width)}},
        texts.rows(), rows, stream);
  });
}

absl::Status EmbeddingBackward(const Texts& texts, precision::DType dtype, int64_t width,
                               const void* dx, Gradient dtokens, Gradient dpositions,
                               device::Stream& stream) {
  return WithType("embedding_backward", dtype, [&](auto tag) {
    using T = decltype(tag);
    const int64_t size = texts.rows() * width;
    const TokenGradient<T> token = {texts, Typed<T>(dx), Typed<T>(dtokens.data), dtokens.accumulate,
                                    width};
    BRIGADE_RETURN_IF_ERROR(EnqueueColumns({"embedding_backward",
                                            {Read(texts.bytes, texts.size()), Read(token.dx, size),
                                             Write(token.dtokens, kVocabulary * width)}},
                                           kVocabulary, width, token, stream));
    const PositionGradient<T> position = {
        token.dx, Typed<T>(dpositions.data), dpositions.accumulate, texts.batch, texts.context,
        width};
    return EnqueueColumns(
        {"embedding_backward",
         {Read(position.dx, size), Write(position.dpositions, texts.context * width)}},
        texts.context, width, position, stream);
  });
}

}  // namespace brigade::nn
