#include "brigade/nn/cross_entropy.h"

#include "brigade/device/status_macros.h"
#include "brigade/nn/arrays.h"
#include "brigade/nn/cross_entropy_math.h"
#include "brigade/nn/enqueue.h"

namespace brigade::nn {
namespace {

absl::Status CheckWhole(absl::string_view operation, const TokenIds& ids) {
  BRIGADE_RETURN_IF_ERROR(CheckVocabulary(operation, ids));
  if (ids.vocabulary() == ids.whole_vocabulary()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(operation, ": the ids are a window of ",
                                                 ids.vocabulary(), " on a vocabulary of ",
                                                 ids.whole_vocabulary()));
}

}  // namespace

absl::Status CrossEntropy(const TokenIds& ids, precision::DType dtype, const void* logits,
                          void* losses, device::Stream& stream) {
  BRIGADE_RETURN_IF_ERROR(CheckWhole("cross_entropy", ids));
  return WithType("cross_entropy", dtype, [&](auto tag) {
    using T = decltype(tag);
    const CrossEntropyRows<T> rows = {ids, Typed<T>(logits), Typed<Wide<T>>(losses),
                                      ids.vocabulary()};
    return EnqueueRows(
        {"cross_entropy",
         {ReadIds(ids), ReadLabels(ids), Read(rows.logits, ids.rows() * ids.vocabulary()),
          Write(rows.losses, ids.rows())}},
        ids.rows(), rows, stream);
  });
}

absl::Status CrossEntropyBackward(const TokenIds& ids, precision::DType dtype, void* logits,
                                  const float* seed, device::Stream& stream) {
  BRIGADE_RETURN_IF_ERROR(CheckWhole("cross_entropy_backward", ids));
  return WithType("cross_entropy_backward", dtype, [&](auto tag) {
    using T = decltype(tag);
    const CrossEntropyBackwardRows<T> rows = {ids, Typed<T>(logits), seed, ids.vocabulary()};
    return EnqueueRows({"cross_entropy_backward",
                        {ReadIds(ids), ReadLabels(ids), Read(seed, 1),
                         Write(rows.logits, ids.rows() * ids.vocabulary())}},
                       ids.rows(), rows, stream);
  });
}

absl::Status MeanOfLosses(precision::DType dtype, const void* losses, int64_t rows, double* parts,
                          float* mean, device::Stream& stream) {
  return WithType("mean_loss", dtype, [&](auto tag) {
    using T = decltype(tag);
    const LossPart<T> part = {Typed<Wide<T>>(losses), parts, rows};
    BRIGADE_RETURN_IF_ERROR(
        EnqueueRows({"mean_loss", {Read(part.losses, rows), Write(parts, LossParts(rows))}},
                    LossParts(rows), part, stream));
    const MeanLoss mean_loss = {parts, mean, rows};
    return EnqueueRows({"mean_loss", {Read(mean_loss.parts, LossParts(rows)), Write(mean, 1)}}, 1,
                       mean_loss, stream);
  });
}

int64_t PartsOfLosses(int64_t rows) { return LossParts(rows); }

}  // namespace brigade::nn
