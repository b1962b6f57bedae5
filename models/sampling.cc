#include "brigade/models/sampling.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <numeric>
#include <vector>

#include "absl/strings/str_cat.h"
#include "brigade/device/status_macros.h"
#include "brigade/nn/philox.h"
#include "brigade/precision/rounding.h"

namespace brigade::models {
namespace {

// In [0, 1).
double Uniform(uint64_t seed, int64_t sample, int64_t position) {
  const auto s = static_cast<uint64_t>(sample), p = static_cast<uint64_t>(position);
  const nn::PhiloxWords words =
      nn::Philox({{static_cast<uint32_t>(p), static_cast<uint32_t>(p >> 32),
                   static_cast<uint32_t>(s), static_cast<uint32_t>(s >> 32)}},
                 seed);
  const uint64_t bits = (uint64_t{words.word[0]} << 32 | words.word[1]) >> 11;
  return static_cast<double>(bits) * 0x1p-53;
}

}  // namespace

absl::Status Validate(const SamplingOptions& options) {
  if (!(options.temperature >= 0) || std::isinf(options.temperature)) {
    return absl::InvalidArgumentError(absl::StrCat("the temperature is ", options.temperature,
                                                   "; it must be at least 0 and finite"));
  }
  if (options.top_k < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("top_k is ", options.top_k, "; it must be at least 0"));
  }
  if (!(options.top_p > 0 && options.top_p <= 1)) {
    return absl::InvalidArgumentError(
        absl::StrCat("top_p is ", options.top_p, "; it must be above 0 and at most 1"));
  }
  return absl::OkStatus();
}

absl::StatusOr<int64_t> SampleToken(absl::Span<const float> logits, const SamplingOptions& options,
                                    int64_t sample, int64_t position) {
  BRIGADE_RETURN_IF_ERROR(Validate(options));
  if (logits.empty()) return absl::InvalidArgumentError("no logits to sample from");
  bool any = false;
  for (size_t i = 0; i < logits.size(); ++i) {
    const float logit = logits[i];
    if (std::isnan(logit) || logit == std::numeric_limits<float>::infinity()) {
      return absl::InvalidArgumentError(
          absl::StrCat("the logit of token ", i, " at position ", position, " is ", logit));
    }
    any |= !std::isinf(logit);
  }
  if (!any) return absl::InvalidArgumentError("all logits are -inf");
  if (options.temperature == 0) {
    return std::max_element(logits.begin(), logits.end()) - logits.begin();
  }
  // Greatest first; equal ones in their order.
  std::vector<int64_t> order(logits.size());
  std::iota(order.begin(), order.end(), int64_t{0});
  const auto at = [&](int64_t token) { return logits[static_cast<size_t>(token)]; };
  std::sort(order.begin(), order.end(),
            [&](int64_t a, int64_t b) { return at(a) != at(b) ? at(a) > at(b) : a < b; });
  size_t count = order.size();
  if (options.top_k > 0 && static_cast<size_t>(options.top_k) < count) {
    const float last = at(order[static_cast<size_t>(options.top_k) - 1]);
    count = static_cast<size_t>(options.top_k);
    while (count < order.size() && at(order[count]) == last) ++count;
  }
  const auto greatest = static_cast<double>(at(order.front()));
  std::vector<double> weights(count);
  double total = 0;
  for (size_t i = 0; i < count; ++i) {
    weights[i] = std::exp((static_cast<double>(at(order[i])) - greatest) / options.temperature);
    total += weights[i];
  }
  if (options.top_p < 1) {
    double sum = 0;
    size_t kept = 0;
    while (kept < count && sum < options.top_p * total) sum += weights[kept++];
    count = kept;
    total = sum;
  }
  const double wanted = Uniform(options.seed, sample, position) * total;
  double sum = 0;
  for (size_t i = 0; i < count; ++i) {
    sum += weights[i];
    if (wanted < sum) return order[i];
  }
  // Rounding: the last one that can come.
  while (count > 1 && weights[count - 1] == 0) --count;
  return order[count - 1];
}

}  // namespace brigade::models
