#include "brigade/parallel/tensor/cross_entropy.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "brigade/device/status_macros.h"
#include "brigade/nn/arrays.h"
#include "brigade/nn/enqueue.h"
#include "brigade/parallel/tensor/cross_entropy_math.h"
#include "brigade/parallel/tensor/shard_sums.h"

namespace brigade::parallel {
namespace {

using precision::DType;

DType PartType(DType dtype) { return dtype == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32; }

constexpr int64_t kNumbers = 3;

}  // namespace

int64_t VocabularyCrossEntropy::Bytes(const VocabularyCrossEntropyOptions& options) {
  return options.shards.ranks * StatisticsBytes(options.dtype, options.rows);
}

int64_t VocabularyCrossEntropy::StatisticsBytes(DType dtype, int64_t rows) {
  return rows * kNumbers * precision::SizeOf(PartType(dtype));
}

collectives::CollectiveSignature VocabularyCrossEntropy::SignatureOf(
    const VocabularyCrossEntropyOptions& options, int64_t rows) {
  return {.kind = collectives::CollectiveKind::kAllGather,
          .algorithm = collectives::GatherOptions().algorithm,
          .dtype = PartType(options.dtype),
          .count = rows * kNumbers};
}

absl::StatusOr<std::unique_ptr<VocabularyCrossEntropy>> VocabularyCrossEntropy::Create(
    const VocabularyCrossEntropyOptions& options, collectives::Communicator* ranks,
    device::Context& context) {
  BRIGADE_RETURN_IF_ERROR(CheckRanks(options.shards, ranks));
  BRIGADE_RETURN_IF_ERROR(nn::WithType("vocabulary_cross_entropy", options.dtype,
                                       [](auto) { return absl::OkStatus(); }));
  if (options.rows < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("vocabulary_cross_entropy: rows is ", options.rows));
  }
  BRIGADE_ASSIGN_OR_RETURN(auto memory, context.Allocate(Bytes(options), device::Purpose::kScratch,
                                                         "parts of rows of logits"));
  if (options.shards.ranks > 1) {
    BRIGADE_RETURN_IF_ERROR(ranks->Reserve(SignatureOf(options, options.rows)));
  }
  return std::unique_ptr<VocabularyCrossEntropy>(
      new VocabularyCrossEntropy(options, ranks, std::move(memory)));
}

VocabularyCrossEntropy::VocabularyCrossEntropy(const VocabularyCrossEntropyOptions& options,
                                               collectives::Communicator* ranks,
                                               device::Buffer memory)
    : options_(options), ranks_(ranks), memory_(std::move(memory)) {}

absl::Status VocabularyCrossEntropy::CheckRows(const nn::TokenIds& window) const {
  BRIGADE_RETURN_IF_ERROR(nn::CheckVocabulary("vocabulary_cross_entropy", window));
  const TensorShards& shards = options_.shards;
  const int64_t all = window.whole_vocabulary();
  if (window.rows() <= options_.rows && all % shards.count == 0 &&
      window.vocabulary() == all / shards.ranks &&
      window.first() == shards.rank * window.vocabulary()) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "vocabulary_cross_entropy: ", window.rows(), " rows, ids ", window.first(), " to ",
      window.first() + window.vocabulary(), " of ", all, ", on rank ", shards.rank, " of ",
      shards.ranks, " with ", shards.count, " shards; it is for ", options_.rows, " rows"));
}

absl::Status VocabularyCrossEntropy::Forward(const nn::TokenIds& window, const void* logits,
                                             void* statistics, void* losses,
                                             device::Stream& stream) {
  BRIGADE_RETURN_IF_ERROR(CheckRows(window));
  return nn::WithType("vocabulary_cross_entropy", options_.dtype, [&](auto tag) {
    using T = decltype(tag);
    using W = nn::Wide<T>;
    const int64_t rows = window.rows();
    const int ranks = options_.shards.ranks, local = options_.shards.local();
    auto* const parts = nn::Typed<SoftmaxPart<W>>(memory_.data());
    auto* const mine = parts + options_.shards.rank * rows;
    auto* const whole = nn::Typed<SoftmaxPart<W>>(statistics);
    const VocabularyParts<T> of_shards = {window, nn::Typed<T>(logits), mine, local,
                                          window.vocabulary() / local};
    BRIGADE_RETURN_IF_ERROR(nn::EnqueueRows(
        {"vocabulary_parts",
         {nn::ReadIds(window), nn::ReadLabels(window),
          nn::Read(of_shards.logits, rows * window.vocabulary()), nn::Write(mine, rows)}},
        rows, of_shards, stream));
    if (ranks > 1) {
      BRIGADE_RETURN_IF_ERROR(
          ranks_->AllGather(mine, parts, rows * kNumbers, precision::kDType<W>, {}, stream));
    }
    const VocabularyLosses<W> of_ranks = {window, parts, whole, nn::Typed<W>(losses), ranks};
    return nn::EnqueueRows(
        {"vocabulary_losses",
         {nn::ReadIds(window), nn::ReadLabels(window), nn::Read(of_ranks.parts, ranks * rows),
          nn::Write(whole, rows), nn::Write(of_ranks.losses, rows)}},
        rows, of_ranks, stream);
  });
}

absl::Status VocabularyCrossEntropy::Backward(const nn::TokenIds& window, void* logits,
                                              const void* statistics, const float* seed,
                                              device::Stream& stream) {
  BRIGADE_RETURN_IF_ERROR(CheckRows(window));
  return nn::WithType("vocabulary_cross_entropy_backward", options_.dtype, [&](auto tag) {
    using T = decltype(tag);
    const int64_t rows = window.rows();
    const int local = options_.shards.local();
    const auto* const whole = nn::Typed<SoftmaxPart<nn::Wide<T>>>(statistics);
    const VocabularyCrossEntropyGradient<T> gradient = {
        window, nn::Typed<T>(logits), whole, seed, local, window.vocabulary() / local};
    return nn::EnqueueRows(
        {"vocabulary_cross_entropy_backward",
         {nn::ReadIds(window), nn::ReadLabels(window), nn::Read(whole, rows), nn::Read(seed, 1),
          nn::Write(gradient.logits, rows * window.vocabulary())}},
        rows, gradient, stream);
  });
}

}  // namespace brigade::parallel
