#include "brigade/recompute/internal/tables.h"

#include <algorithm>
#include <limits>

namespace brigade::recompute::internal {
namespace {

// How a part can begin.
struct Candidate {
  Choice choice = {};
  // The part that follows is [next, last]. It has `kept` less room.
  int next = 0;
  // Memory and time of this part's own operations, those of the parts within it aside.
  int64_t peak = 0;
  double time = 0;
};

// Calls visit(candidate) for each way in which [first, last] can begin.
template <typename Visit>
void VisitCandidates(const Chain& chain, int first, int last, const Visit& visit) {
  const auto stage = [&](int s) -> const Stage& { return chain.stages[static_cast<size_t>(s)]; };
  const Stage& begin = stage(first);
  // While [first, last] goes forward the gradient in memory is that of its output.
  const int64_t gradient = stage(last).gradient_bytes;
  for (size_t o = 0; o < begin.options.size(); ++o) {
    const SaveOption& option = begin.options[o];
    visit({.choice = {.option = static_cast<int>(o), .kept = option.saved_bytes},
           .next = first + 1,
           .peak = option.saved_bytes +
                   std::max(gradient + option.forward_transient_bytes,
                            begin.gradient_bytes + option.backward_transient_bytes),
           .time = begin.forward_time + option.backward_time});
  }
  int64_t peak = 0;
  double time = 0;
  for (int split = first + 1; split <= last; ++split) {
    const Stage& before = stage(split - 1);
    // The input of `first` is not counted; inputs of the stages after it pass.
    const int64_t passing = split - 1 == first ? 0 : stage(split - 2).output_bytes;
    peak = std::max(peak, gradient + passing + before.output_bytes + before.transient_bytes);
    time += before.forward_time;
    visit({.choice = {.split = split, .kept = before.output_bytes},
           .next = split,
           .peak = peak,
           .time = time});
  }
}

}  // namespace

PeakTable::PeakTable(const Chain& chain)
    : stages_(static_cast<int>(chain.stages.size())),
      entries_(chain.stages.size() * chain.stages.size()) {
  for (int first = stages_ - 1; first >= 0; --first) {
    for (int last = first; last < stages_; ++last) {
      Entry best = {.peak = std::numeric_limits<int64_t>::max()};
      VisitCandidates(chain, first, last, [&](const Candidate& candidate) {
        int64_t peak = candidate.peak;
        if (candidate.next <= last) {
          peak = std::max(peak, candidate.choice.kept + At(candidate.next, last).peak);
        }
        if (candidate.choice.split != 0) {
          peak = std::max(peak, At(first, candidate.choice.split - 1).peak);
        }
        if (peak < best.peak) best = {.peak = peak, .choice = candidate.choice};
      });
      entries_[static_cast<size_t>(first) * static_cast<size_t>(stages_) +
               static_cast<size_t>(last)] = best;
    }
  }
}

TimeTable::TimeTable(const Chain& chain, int64_t budget)
    : chain_(chain),
      stages_(static_cast<int>(chain.stages.size())),
      width_(static_cast<size_t>(budget) + 1),
      times_(static_cast<size_t>(TableEntries(stages_)) * width_,
             std::numeric_limits<double>::infinity()),
      zeros_(width_) {
  for (int first = stages_ - 1; first >= 0; --first) {
    for (int last = first; last < stages_; ++last) {
      const absl::Span<const double> row = Row(first, last);
      double* const best = times_.data() + (row.data() - times_.data());
      VisitCandidates(chain, first, last, [&](const Candidate& candidate) {
        const int64_t kept = candidate.choice.kept;
        const double* const following = Row(candidate.next, last).data();
        const double* const before = Row(first, candidate.choice.split - 1).data();
        for (int64_t m = candidate.peak; m <= budget; ++m) {
          best[m] = std::min(best[m], candidate.time + following[m - kept] + before[m]);
        }
      });
    }
  }
}

Choice TimeTable::Get(int first, int last, int64_t budget) const {
  Choice choice;
  double best = std::numeric_limits<double>::infinity();
  const auto m = static_cast<size_t>(budget);
  VisitCandidates(chain_, first, last, [&](const Candidate& candidate) {
    if (candidate.peak > budget) return;
    const double time = candidate.time +
                        Row(candidate.next, last)[m - static_cast<size_t>(candidate.choice.kept)] +
                        Row(first, candidate.choice.split - 1)[m];
    if (time < best) {
      best = time;
      choice = candidate.choice;
    }
  });
  return choice;
}

absl::Span<const double> TimeTable::Row(int first, int last) const {
  if (last < first) return zeros_;
  // Rows of the same `first` follow each other.
  const int64_t row = TableEntries(stages_) - TableEntries(stages_ - first) + (last - first);
  return {times_.data() + static_cast<size_t>(row) * width_, width_};
}

}  // namespace brigade::recompute::internal
