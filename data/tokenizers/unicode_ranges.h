#ifndef BRIGADE_DATA_TOKENIZERS_UNICODE_RANGES_H_
#define BRIGADE_DATA_TOKENIZERS_UNICODE_RANGES_H_

#include <cstdint>

#include "absl/types/span.h"

namespace brigade::data {

struct CodeRange {
  uint32_t first;
  uint32_t last;
};

// The codes of the general categories L and N, in ascending order.
absl::Span<const CodeRange> LetterRanges();
absl::Span<const CodeRange> NumberRanges();

}  // namespace brigade::data

#endif  // BRIGADE_DATA_TOKENIZERS_UNICODE_RANGES_H_
