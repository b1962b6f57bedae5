#include "brigade/data/token_samples.h"

#include <cstddef>
#include <cstring>
#include <vector>

#include "absl/types/span.h"
#include "brigade/device/status_macros.h"

namespace brigade::data {

void PlacesInSegments(absl::Span<const int32_t> segments, absl::Span<int32_t> positions,
                      absl::Span<int32_t> ends) {
  for (size_t begin = 0; begin < segments.size();) {
    size_t end = begin + 1;
    while (end < segments.size() && segments[end] == segments[begin]) ++end;
    for (size_t t = begin; t < end; ++t) {
      positions[t] = static_cast<int32_t>(t - begin);
      ends[t] = static_cast<int32_t>(end);
    }
    begin = end;
  }
}

absl::Status TokenSamples::Read(int64_t sample, void* input, void* target) const {
  const auto context = static_cast<size_t>(positions());
  // The ids with the one behind the last; positions and segments.
  std::vector<int32_t> rest(3 * context + 1);
  const auto all = absl::MakeSpan(rest);
  const absl::Span<int32_t> ids = all.first(context + 1);
  BRIGADE_RETURN_IF_ERROR(
      dataset_->Read(sample, {.ids = ids,
                              .labels = absl::MakeSpan(static_cast<int32_t*>(target), context),
                              .positions = all.subspan(context + 1, context),
                              .segments = all.subspan(2 * context + 1, context)}));
  auto* const to = static_cast<int32_t*>(input);
  std::memcpy(to, ids.data(), context * sizeof(int32_t));
  if (pieces_ == Pieces::kJoined) return absl::OkStatus();
  PlacesInSegments(all.subspan(2 * context + 1, context), absl::MakeSpan(to + context, context),
                   absl::MakeSpan(to + 2 * context, context));
  return absl::OkStatus();
}

}  // namespace brigade::data
