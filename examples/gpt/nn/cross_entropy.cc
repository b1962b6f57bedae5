#include "brigade/examples/gpt/nn/cross_entropy.h"

#include "brigade/examples/gpt/nn/arrays.h"
#include "brigade/examples/gpt/nn/cross_entropy_math.h"
#include "brigade/examples/gpt/nn/embedding.h"
#include "brigade/examples/gpt/nn/enqueue.h"

namespace brigade::nn {

absl::Status CrossEntropy(const Texts& texts, precision::DType dtype, const void* logits,
                          void* losses, device::Stream& stream) {
  return WithType("cross_entropy", dtype, [&](auto tag) {
    using T = decltype(tag);
    const CrossEntropyRows<T> rows = {texts, Typed<T>(logits), Typed<Wide<T>>(losses), kVocabulary};
    return EnqueueRows(
        {"cross_entropy",
         {Read(texts.bytes, texts.size()), Read(rows.logits, texts.rows() * kVocabulary),
          Write(rows.losses, texts.rows())}},
        texts.rows(), rows, stream);
  });
}

absl::Status CrossEntropyBackward(const Texts& texts, precision::DType dtype, void* logits,
                                  const float* seed, device::Stream& stream) {
  return WithType("cross_entropy_backward", dtype, [&](auto tag) {
    using T = decltype(tag);
    const CrossEntropyBackwardRows<T> rows = {texts, Typed<T>(logits), seed, kVocabulary};
    return EnqueueRows({"cross_entropy_backward",
                        {Read(texts.bytes, texts.size()), Read(seed, 1),
                         Write(rows.logits, texts.rows() * kVocabulary)}},
                       texts.rows(), rows, stream);
  });
}

absl::Status MeanOfLosses(precision::DType dtype, const void* losses, int64_t rows, float* mean,
                          device::Stream& stream) {
  return WithType("mean_loss", dtype, [&](auto tag) {
    using T = decltype(tag);
    const MeanLoss<T> formula = {Typed<Wide<T>>(losses), mean, rows};
    return EnqueueColumns({"mean_loss", {Read(formula.losses, rows), Write(mean, 1)}}, 1, 1,
                          formula, stream);
  });
}

}  // namespace brigade::nn
