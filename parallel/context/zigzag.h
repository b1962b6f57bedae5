#ifndef BRIGADE_PARALLEL_CONTEXT_ZIGZAG_H_
#define BRIGADE_PARALLEL_CONTEXT_ZIGZAG_H_

#include <array>
#include <cstdint>

#include "absl/status/status.h"

namespace brigade::parallel {

// Neighbouring positions of a text that one rank has.
struct PositionRun {
  // Among the rank's own positions, and in the text.
  int64_t local, global, count;
};

// Which positions of a text a context rank has so that all do the same work of causal attention:
// the text is cut into 2c chunks, and rank r has chunk r and, behind it, chunk 2c - 1 - r. Each
// pair of ranks then has as many pairs of a query and a key that it sees.
//
//   c = 2    chunk  0 1 2 3        c = 4    chunk  0 1 2 3 4 5 6 7
//            rank   0 1 1 0                 rank   0 1 2 3 3 2 1 0
//
// InvalidArgument naming both numbers for positions that 2 * ranks does not divide.
absl::Status CheckZigzag(int64_t positions, int ranks);

// The two chunks of a rank, in ascending order.
std::array<PositionRun, 2> ZigzagRuns(int64_t positions, int ranks, int rank);

}  // namespace brigade::parallel

#endif  // BRIGADE_PARALLEL_CONTEXT_ZIGZAG_H_
