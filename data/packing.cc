#include "brigade/data/packing.h"

#include <algorithm>
#include <numeric>
#include <set>
#include <tuple>
#include <utility>

namespace brigade::data {

std::vector<std::vector<int64_t>> PackBestFit(absl::Span<const int64_t> lengths, int64_t capacity) {
  std::vector<int64_t> order(lengths.size());
  std::iota(order.begin(), order.end(), 0);
  const auto length_of = [&](int64_t piece) { return lengths[static_cast<size_t>(piece)]; };
  std::stable_sort(order.begin(), order.end(),
                   [&](int64_t a, int64_t b) { return length_of(a) > length_of(b); });
  std::vector<std::vector<int64_t>> packs;
  // Room that is left, and the pack: the first one with enough of it is what is filled best.
  std::set<std::pair<int64_t, int64_t>> open;
  for (const int64_t piece : order) {
    const int64_t length = length_of(piece);
    const auto best = open.lower_bound({length, 0});
    int64_t room = capacity, pack = std::ssize(packs);
    if (best == open.end()) {
      packs.emplace_back();
    } else {
      std::tie(room, pack) = *best;
      open.erase(best);
    }
    packs[static_cast<size_t>(pack)].push_back(piece);
    if (room > length) open.emplace(room - length, pack);
  }
  for (std::vector<int64_t>& pack : packs) std::sort(pack.begin(), pack.end());
  std::sort(packs.begin(), packs.end());
  return packs;
}

}  // namespace brigade::data
