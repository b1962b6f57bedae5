#include "brigade/models/predictor.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "brigade/data/token_samples.h"
#include "brigade/device/status_macros.h"
#include "brigade/nn/functions.h"

namespace brigade::models {

double Prediction::perplexity() const { return std::exp(loss()); }

absl::StatusOr<Predictor> Predictor::Create(const DecoderConfig& config, const Options& options,
                                            device::Context& context) {
  Predictor predictor;
  BRIGADE_ASSIGN_OR_RETURN(predictor.model_,
                           Decoder::Create(config,
                                           {.dtype = options.dtype,
                                            .samples = options.samples,
                                            .positions = options.positions,
                                            .trains = false,
                                            .segments = options.segments,
                                            .restart_positions = options.restart_positions,
                                            .lora = options.lora},
                                           context));
  BRIGADE_ASSIGN_OR_RETURN(predictor.stream_, context.CreateStream("predict"));
  const int64_t rows = options.samples * options.positions;
  const int64_t labels_bytes = rows * static_cast<int64_t>(sizeof(int32_t));
  const int64_t ids_bytes = (options.segments ? 3 : 1) * labels_bytes;
  const int64_t losses_bytes =
      rows * (options.dtype == precision::DType::kFloat64 ? sizeof(double) : sizeof(float));
  constexpr auto kActivations = device::Purpose::kActivations;
  constexpr auto kScratch = device::Purpose::kScratch;
  BRIGADE_ASSIGN_OR_RETURN(predictor.ids_, context.Allocate(ids_bytes, kActivations, "ids"));
  BRIGADE_ASSIGN_OR_RETURN(predictor.labels_,
                           context.Allocate(labels_bytes, kActivations, "labels"));
  BRIGADE_ASSIGN_OR_RETURN(predictor.losses_,
                           context.Allocate(losses_bytes, kActivations, "losses"));
  BRIGADE_ASSIGN_OR_RETURN(predictor.host_ids_, context.AllocateHost(ids_bytes, kScratch, "ids"));
  BRIGADE_ASSIGN_OR_RETURN(predictor.host_labels_,
                           context.AllocateHost(labels_bytes, kScratch, "labels"));
  BRIGADE_ASSIGN_OR_RETURN(predictor.host_losses_,
                           context.AllocateHost(losses_bytes, kScratch, "losses"));
  BRIGADE_ASSIGN_OR_RETURN(
      predictor.host_logits_,
      context.AllocateHost(options.positions * config.vocabulary * precision::SizeOf(options.dtype),
                           kScratch, "logits"));
  const auto positions = static_cast<size_t>(options.positions);
  predictor.ids_of_row_.resize(positions + 1);
  predictor.positions_of_row_.resize(positions);
  predictor.segments_of_row_.resize(positions);
  return predictor;
}

size_t Predictor::input_numbers() const {
  return (model_->options().segments ? size_t{3} : size_t{1}) * positions_of_row_.size();
}

absl::Status Predictor::ReadRows(const data::Dataset& dataset, int64_t first, int64_t count) {
  const absl::Span<int32_t> all = host_ids_.as<int32_t>(), labels = host_labels_.as<int32_t>();
  std::fill(all.begin(), all.end(), 0);
  std::fill(labels.begin(), labels.end(), data::kIgnored);
  const DecoderOptions& options = model_->options();
  const size_t positions = positions_of_row_.size();
  for (int64_t s = 0; s < options.samples; ++s) {
    const absl::Span<int32_t> input =
        all.subspan(static_cast<size_t>(s) * input_numbers(), input_numbers());
    if (s < count) {
      BRIGADE_RETURN_IF_ERROR(dataset.Read(
          first + s, {.ids = absl::MakeSpan(ids_of_row_),
                      .labels = labels.subspan(static_cast<size_t>(s) * positions, positions),
                      .positions = absl::MakeSpan(positions_of_row_),
                      .segments = absl::MakeSpan(segments_of_row_)}));
      std::copy_n(ids_of_row_.begin(), positions, input.begin());
    } else {
      std::fill(segments_of_row_.begin(), segments_of_row_.end(), data::kPadding);
    }
    if (options.segments) {
      data::PlacesInSegments(segments_of_row_, input.subspan(positions, positions),
                             input.subspan(2 * positions, positions));
      continue;
    }
    const bool has_several = std::any_of(segments_of_row_.begin(), segments_of_row_.end(),
                                         [](int32_t segment) { return segment > 0; });
    if (!has_several) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "sample ", first + s, " has several segments, across which attention would see"));
  }
  return absl::OkStatus();
}

absl::Status Predictor::Pass(zero::ParameterSource& source) {
  BRIGADE_RETURN_IF_ERROR(stream_->Copy(ids_.data(), host_ids_.data(), ids_.bytes()));
  BRIGADE_RETURN_IF_ERROR(stream_->Copy(labels_.data(), host_labels_.data(), labels_.bytes()));
  const DecoderOptions& options = model_->options();
  BRIGADE_RETURN_IF_ERROR(Forward(*model_,
                                  {ids_.data(), labels_.data(), options.samples, options.positions},
                                  losses_.data(), source, *stream_));
  BRIGADE_RETURN_IF_ERROR(stream_->Copy(host_losses_.data(), losses_.data(), losses_.bytes()));
  return stream_->Synchronize();
}

absl::Status Predictor::CountPass(int64_t count, Prediction& prediction) {
  const DecoderOptions& options = model_->options();
  const int64_t vocabulary = model_->config().vocabulary;
  const int64_t bytes = options.positions * vocabulary * precision::SizeOf(options.dtype);
  const absl::Span<const int32_t> labels = host_labels_.as<int32_t>();
  for (int64_t s = 0; s < count; ++s) {
    BRIGADE_RETURN_IF_ERROR(stream_->Copy(
        host_logits_.data(), static_cast<const char*>(model_->logits()) + s * bytes, bytes));
    BRIGADE_RETURN_IF_ERROR(stream_->Synchronize());
    nn::VisitReal(options.dtype, [&](auto tag) {
      using T = decltype(tag);
      using Wide = nn::Wide<T>;
      const absl::Span<const T> logits = host_logits_.as<T>();
      const absl::Span<const Wide> losses = host_losses_.as<Wide>();
      for (int64_t t = 0; t < options.positions; ++t) {
        const auto row = static_cast<size_t>(s * options.positions + t);
        if (labels[row] == data::kIgnored) continue;
        ++prediction.tokens;
        prediction.sum_of_losses += static_cast<double>(losses[row]);
        const auto of_row =
            logits.subspan(static_cast<size_t>(t * vocabulary), static_cast<size_t>(vocabulary));
        const auto greatest =
            std::max_element(of_row.begin(), of_row.end(),
                             [](const T& a, const T& b) { return nn::Widen(a) < nn::Widen(b); });
        prediction.correct += greatest - of_row.begin() == labels[row];
      }
    });
  }
  prediction.samples += count;
  return absl::OkStatus();
}

absl::StatusOr<Prediction> Predictor::Predict(const data::Dataset& dataset,
                                              zero::ParameterSource& source) {
  const DecoderOptions& options = model_->options();
  if (dataset.context() != options.positions) {
    return absl::InvalidArgumentError(absl::StrCat(
        "samples of ", dataset.context(), " positions for a predictor of ", options.positions));
  }
  if (dataset.vocabulary() > model_->config().vocabulary) {
    return absl::InvalidArgumentError(absl::StrCat("a data set of ", dataset.vocabulary(),
                                                   " tokens for a model of ",
                                                   model_->config().vocabulary));
  }
  Prediction prediction;
  const auto begin = std::chrono::steady_clock::now();
  for (int64_t first = 0; first < dataset.size(); first += options.samples) {
    const int64_t count = std::min(options.samples, dataset.size() - first);
    BRIGADE_RETURN_IF_ERROR(ReadRows(dataset, first, count));
    BRIGADE_RETURN_IF_ERROR(Pass(source));
    BRIGADE_RETURN_IF_ERROR(CountPass(count, prediction));
  }
  prediction.seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return prediction;
}

}  // namespace brigade::models
