#ifndef BRIGADE_RECOMPUTE_INTERNAL_TABLES_H_
#define BRIGADE_RECOMPUTE_INTERNAL_TABLES_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "brigade/recompute/chain.h"
#include "brigade/recompute/internal/nested.h"

namespace brigade::recompute::internal {

// The dynamic programs over the parts [first, last] of a chain, of which the input of `first` is in
// memory and not counted. They take O(L^3) steps for L stages. Of equal choices both take the
// first, in this order: to save, in the order of the options; to split, at the earliest stage.

// The least memory in which each part can be gone through, whatever time that takes.
class PeakTable {
 public:
  explicit PeakTable(const Chain& chain);

  // In the unit of the chain's sizes.
  int64_t peak() const { return At(0, stages_ - 1).peak; }
  Choice Get(int first, int last) const { return At(first, last).choice; }

 private:
  struct Entry {
    int64_t peak = 0;
    Choice choice = {};
  };
  const Entry& At(int first, int last) const {
    return entries_[static_cast<size_t>(first) * static_cast<size_t>(stages_) +
                    static_cast<size_t>(last)];
  }

  const int stages_;
  std::vector<Entry> entries_;
};

// The least time of each part within each budget from 0 to that of the whole. The chain outlives
// the table.
class TimeTable {
 public:
  // `budget` in the unit of the chain's sizes: TableEntries(stages) * (budget + 1) doubles of
  // memory, and L^3 / 6 * (budget + 1) steps.
  TimeTable(const Chain& chain, int64_t budget);

  // Infinite where nothing fits.
  double time() const { return Row(0, stages_ - 1).back(); }
  Choice Get(int first, int last, int64_t budget) const;

 private:
  absl::Span<const double> Row(int first, int last) const;

  const Chain& chain_;
  const int stages_;
  const size_t width_;
  std::vector<double> times_;
  // Of a part without stages.
  std::vector<double> zeros_;
};

// Parts of a chain.
inline int64_t TableEntries(int64_t stages) { return stages * (stages + 1) / 2; }

}  // namespace brigade::recompute::internal

#endif  // BRIGADE_RECOMPUTE_INTERNAL_TABLES_H_
