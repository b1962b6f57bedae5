#ifndef BRIGADE_PARALLEL_CONTEXT_CONTEXT_RANKS_H_
#define BRIGADE_PARALLEL_CONTEXT_CONTEXT_RANKS_H_

#include <cstdint>

#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "brigade/collectives/communicator.h"
#include "brigade/parallel/context/zigzag.h"

namespace brigade::parallel {

// How context ranks attend to each other's positions: ulysses.h, whose ranks have neighbouring
// positions, or ring_attention.h, whose ranks have two chunks.
enum class ContextExchange : uint8_t { kUlysses, kRing };

// Of a text of so many positions those of one of `ranks` ranks, in ascending order. The positions
// can be cut over the ranks (ContextRanks::Check).
absl::InlinedVector<PositionRun, 2> PositionRunsOf(ContextExchange exchange, int64_t positions,
                                                   int ranks, int rank);

// The ranks that share each text of a batch, of which this rank has some positions.
struct ContextRanks {
  // Null: the rank is alone, and has all positions. It must outlive who is given it.
  collectives::Communicator* group = nullptr;
  ContextExchange exchange = ContextExchange::kUlysses;

  int size() const { return group == nullptr ? 1 : group->size(); }
  int rank() const { return group == nullptr ? 0 : group->rank(); }
  bool share() const { return size() > 1; }
  bool is_ring() const { return share() && exchange == ContextExchange::kRing; }
  bool exchanges_heads() const { return share() && !is_ring(); }

  // Those of this rank, where Check says OK.
  absl::InlinedVector<PositionRun, 2> RunsOf(int64_t positions) const {
    return PositionRunsOf(exchange, positions, size(), rank());
  }
  // InvalidArgument naming both numbers for positions that cannot be cut over the ranks.
  absl::Status Check(int64_t positions) const;
};

}  // namespace brigade::parallel

#endif  // BRIGADE_PARALLEL_CONTEXT_CONTEXT_RANKS_H_
