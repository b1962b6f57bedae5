#ifndef BRIGADE_DATA_PACKING_H_
#define BRIGADE_DATA_PACKING_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"

namespace brigade::data {

// Packs of pieces whose lengths add up to at most `capacity`, so that little of it is padding: the
// pieces go by length, longest first, of equal ones the first one first, each to the pack that it
// fills best, of equal ones to the oldest. Every piece is in one pack; in a pack they ascend, and
// packs are in the order of their first pieces. Lengths are 1 to `capacity`.
//
// Cost         O(n log n) time for n pieces, 32 bytes of memory for each.
// Determinism  A function of the lengths.
// Source       Best fit decreasing: at most 11/9 of the fewest packs and 4 more (Johnson, Demers,
//              Ullman, Garey and Graham, 1974); for documents Ding et al. 2024, "Fewer truncations
//              improve language modeling".
std::vector<std::vector<int64_t>> PackBestFit(absl::Span<const int64_t> lengths, int64_t capacity);

}  // namespace brigade::data

#endif  // BRIGADE_DATA_PACKING_H_
