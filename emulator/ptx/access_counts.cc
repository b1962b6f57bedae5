#include "brigade/emulator/ptx/access_counts.h"

#include <algorithm>
#include <array>
#include <cstddef>

namespace brigade::emulator {
namespace {

constexpr int kSectorBits = 5, kLineBits = 7;
constexpr int kBanks = 32, kBankBytes = 4;

}  // namespace

void CountSectors(const Lanes& addresses, uint32_t touching, int bytes, AccessCounts& counts) {
  std::array<uint64_t, kLanes> sorted;
  int64_t lanes = 0;
  for (int lane = 0; lane < kLanes; ++lane) {
    if ((touching >> lane & 1) != 0) sorted[static_cast<size_t>(lanes++)] = addresses[lane];
  }
  const auto begin = sorted.begin(), end = sorted.begin() + lanes;
  if (!std::is_sorted(begin, end)) std::sort(begin, end);
  int64_t different = 0;
  uint64_t last = ~sorted[0];
  for (auto it = begin; it != end; ++it) {
    different += *it != last ? 1 : 0;
    counts.sectors += *it >> kSectorBits != last >> kSectorBits ? 1 : 0;
    counts.lines += *it >> kLineBits != last >> kLineBits ? 1 : 0;
    last = *it;
  }
  counts.least_sectors += (different * bytes + (1 << kSectorBits) - 1) >> kSectorBits;
}

// Different words of one bank are delivered one after the other; accesses of 8 (16) bytes go by
// halves (quarters) of the warp.
int64_t BankConflicts(const Lanes& addresses, uint32_t touching, int bytes) {
  const int words = std::max(1, bytes / kBankBytes);
  const int together = kLanes / words;
  int64_t conflicts = 0;
  for (int begin = 0; begin < kLanes; begin += together) {
    std::array<uint64_t, kLanes> addressed;
    int count = 0;
    for (int lane = begin; lane < begin + together; ++lane) {
      if ((touching >> lane & 1) == 0) continue;
      for (int w = 0; w < words; ++w) {
        addressed[static_cast<size_t>(count++)] =
            addresses[lane] / kBankBytes + static_cast<uint64_t>(w);
      }
    }
    std::sort(addressed.begin(), addressed.begin() + count);
    std::array<int, kBanks> of_bank = {};
    for (int i = 0; i < count; ++i) {
      const uint64_t word = addressed[static_cast<size_t>(i)];
      if (i == 0 || word != addressed[static_cast<size_t>(i - 1)]) ++of_bank[word % kBanks];
    }
    conflicts += std::max(1, *std::max_element(of_bank.begin(), of_bank.end())) - 1;
  }
  return conflicts;
}

}  // namespace brigade::emulator
