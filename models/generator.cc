#include "brigade/models/generator.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "brigade/device/status_macros.h"
#include "brigade/nn/functions.h"

namespace brigade::models {

absl::StatusOr<Generator> Generator::Create(const DecoderConfig& config, const Options& options,
                                            device::Context& context) {
  Generator generator;
  const int64_t capacity = options.capacity == 0 ? config.positions : options.capacity;
  if (options.positions < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("a prompt read ", options.positions, " tokens at a time"));
  }
  BRIGADE_ASSIGN_OR_RETURN(
      generator.model_,
      Decoder::Create(config,
                      {.dtype = options.dtype,
                       .samples = 1,
                       .positions = std::min(options.positions, std::max<int64_t>(capacity, 1)),
                       .trains = false,
                       .cached_positions = capacity,
                       .lora = options.lora},
                      context));
  const DecoderOptions& of_model = generator.model_->options();
  BRIGADE_ASSIGN_OR_RETURN(generator.stream_, context.CreateStream("generate"));
  const int64_t ids_bytes = of_model.positions * static_cast<int64_t>(sizeof(int32_t));
  BRIGADE_ASSIGN_OR_RETURN(generator.ids_,
                           context.Allocate(ids_bytes, device::Purpose::kActivations, "ids"));
  BRIGADE_ASSIGN_OR_RETURN(generator.host_ids_,
                           context.AllocateHost(ids_bytes, device::Purpose::kScratch, "ids"));
  BRIGADE_ASSIGN_OR_RETURN(
      generator.host_logits_,
      context.AllocateHost(config.vocabulary * precision::SizeOf(options.dtype),
                           device::Purpose::kScratch, "logits"));
  generator.logits_.resize(static_cast<size_t>(config.vocabulary));
  return generator;
}

absl::Status Generator::Read(absl::Span<const int32_t> ids, int64_t first,
                             zero::ParameterSource& source) {
  const int64_t most = model_->options().positions;
  const auto size = static_cast<int64_t>(ids.size());
  int64_t last = 0;
  for (int64_t at = 0; at < size; at += most) {
    const int64_t count = std::min(most, size - at);
    // The memory of the host is read by the copy before.
    BRIGADE_RETURN_IF_ERROR(stream_->Synchronize());
    std::memcpy(host_ids_.data(), ids.data() + at, static_cast<size_t>(count) * sizeof(int32_t));
    BRIGADE_RETURN_IF_ERROR(stream_->Copy(ids_.data(), host_ids_.data(),
                                          count * static_cast<int64_t>(sizeof(int32_t))));
    BRIGADE_RETURN_IF_ERROR(model_->Continue(
        {.inputs = ids_.data(), .samples = 1, .positions = count}, first + at, source, *stream_));
    last = count - 1;
  }
  const int64_t vocabulary = model_->config().vocabulary;
  const precision::DType dtype = model_->options().dtype;
  const int64_t bytes = vocabulary * precision::SizeOf(dtype);
  BRIGADE_RETURN_IF_ERROR(stream_->Copy(
      host_logits_.data(), static_cast<const char*>(model_->logits()) + last * bytes, bytes));
  BRIGADE_RETURN_IF_ERROR(stream_->Synchronize());
  nn::VisitReal(dtype, [&](auto tag) {
    using T = decltype(tag);
    const absl::Span<T> row = host_logits_.as<T>();
    for (size_t i = 0; i < logits_.size(); ++i) logits_[i] = static_cast<float>(nn::Widen(row[i]));
  });
  return absl::OkStatus();
}

absl::StatusOr<std::vector<int32_t>> Generator::Generate(absl::Span<const int32_t> prompt,
                                                         const GenerateOptions& options,
                                                         zero::ParameterSource& source,
                                                         const std::function<bool(int32_t)>& each) {
  BRIGADE_RETURN_IF_ERROR(Validate(options.sampling));
  const int64_t capacity = model_->options().cached_positions;
  const auto size = static_cast<int64_t>(prompt.size());
  if (options.new_tokens < 0) {
    return absl::InvalidArgumentError(absl::StrCat("new_tokens is ", options.new_tokens));
  }
  // The last token that comes is not read.
  if (size < 1 || size > capacity || options.new_tokens > capacity - size + 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("a prompt of ", size, " tokens and ", options.new_tokens,
                     " new ones; there is room for ", capacity, ", and a prompt has one at least"));
  }
  for (const int32_t id : prompt) {
    if (id < 0 || id >= model_->config().vocabulary) {
      return absl::InvalidArgumentError(absl::StrCat("token ", id, " of the prompt is none of the ",
                                                     model_->config().vocabulary));
    }
  }
  std::vector<int32_t> tokens;
  if (options.new_tokens == 0) return tokens;
  BRIGADE_RETURN_IF_ERROR(Read(prompt, 0, source));
  for (int64_t position = size;; ++position) {
    BRIGADE_ASSIGN_OR_RETURN(const int64_t token,
                             SampleToken(logits_, options.sampling, 0, position));
    tokens.push_back(static_cast<int32_t>(token));
    if (each && !each(tokens.back())) return tokens;
    const bool stops = std::find(options.stop_tokens.begin(), options.stop_tokens.end(),
                                 tokens.back()) != options.stop_tokens.end();
    if (stops || static_cast<int64_t>(tokens.size()) == options.new_tokens) return tokens;
    BRIGADE_RETURN_IF_ERROR(Read({&tokens.back(), 1}, position, source));
  }
}

}  // namespace brigade::models
