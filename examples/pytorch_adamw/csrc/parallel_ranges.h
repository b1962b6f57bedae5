#ifndef BRIGADE_ADAMW_PARALLEL_RANGES_H_
#define BRIGADE_ADAMW_PARALLEL_RANGES_H_

#include <ATen/Parallel.h>

#include <algorithm>
#include <cstdint>
#include <vector>

namespace brigade_adamw {

// For each tensor of a list, how many pieces of `piece` elements lie before it; the last entry is
// the number of all pieces.
inline std::vector<int64_t> PiecesBefore(const std::vector<int64_t>& sizes, int64_t piece) {
  std::vector<int64_t> before = {0};
  before.reserve(sizes.size() + 1);
  for (const int64_t size : sizes) before.push_back(before.back() + (size + piece - 1) / piece);
  return before;
}

// Calls run(tensor, begin, end) for ranges that are all elements of the list, in the threads of
// ATen, which share them equally. Ranges begin at multiples of `piece` and end at such a multiple
// or with their tensor.
template <typename Run>
void ParallelForEachRange(const std::vector<int64_t>& sizes, int64_t piece, const Run& run) {
  constexpr int64_t kElementsPerThread = 32768;  // fewer are not worth another thread
  const std::vector<int64_t> before = PiecesBefore(sizes, piece);
  const int64_t grain = std::max<int64_t>(kElementsPerThread / piece, 1);
  at::parallel_for(0, before.back(), grain, [&](int64_t begin, int64_t end) {
    size_t i = std::upper_bound(before.begin(), before.end(), begin) - before.begin() - 1;
    for (; begin < end; ++i) {
      const int64_t stop = std::min(end, before[i + 1]);
      if (stop == begin) continue;
      run(i, (begin - before[i]) * piece, std::min((stop - before[i]) * piece, sizes[i]));
      begin = stop;
    }
  });
}

}  // namespace brigade_adamw

#endif  // BRIGADE_ADAMW_PARALLEL_RANGES_H_
