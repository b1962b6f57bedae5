#include "brigade/data/row_writer.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace brigade::data {

absl::Status CheckRead(int64_t sample, const Row& row, const Dataset& dataset) {
  const auto context = static_cast<size_t>(dataset.context());
  if (row.ids.size() != context + 1 || row.labels.size() != context ||
      row.positions.size() != context || row.segments.size() != context) {
    return absl::InvalidArgumentError(
        absl::StrCat("a row of ", row.ids.size(), " ids, ", row.labels.size(), " labels, ",
                     row.positions.size(), " positions and ", row.segments.size(),
                     " segments for a context of ", context, ", which has ", context + 1, " ids"));
  }
  if (sample >= 0 && sample < dataset.size()) return absl::OkStatus();
  return absl::OutOfRangeError(
      absl::StrCat("sample ", sample, " of a data set of ", dataset.size()));
}

void RowWriter::Add(const TokenStore& store, TokenRange tokens,
                    absl::Span<const TokenRange> counted) {
  const auto size = static_cast<size_t>(tokens.end - tokens.begin);
  store.Read(tokens.begin, row_.ids.subspan(size_, size));
  const size_t context = row_.labels.size();
  for (size_t i = 0; i < size && size_ + i < context; ++i) {
    row_.labels[size_ + i] = kIgnored;
    row_.positions[size_ + i] = static_cast<int32_t>(i);
    row_.segments[size_ + i] = segment_;
  }
  for (const TokenRange& range : counted) {
    const int64_t begin = std::max(range.begin, tokens.begin + 1);
    const int64_t end = std::min(range.end, tokens.end);
    for (int64_t token = begin; token < end; ++token) {
      // It is the label of the position before it.
      const size_t t = size_ + static_cast<size_t>(token - tokens.begin) - 1;
      row_.labels[t] = row_.ids[t + 1];
    }
  }
  size_ += size;
  ++segment_;
}

void RowWriter::Finish() {
  const size_t context = row_.labels.size();
  std::fill(row_.ids.begin() + static_cast<ptrdiff_t>(size_), row_.ids.end(), 0);
  for (size_t t = size_; t < context; ++t) {
    row_.labels[t] = kIgnored;
    row_.positions[t] = 0;
    row_.segments[t] = kPadding;
  }
}

}  // namespace brigade::data
