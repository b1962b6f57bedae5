#ifndef BRIGADE_TESTS_RECOMPUTE_EXHAUSTIVE_H_
#define BRIGADE_TESTS_RECOMPUTE_EXHAUSTIVE_H_

#include <cstdint>

#include "brigade/recompute/chain.h"

namespace brigade::recompute {

// The least time of all persistent schedules within a budget, infinite where there is none: a
// search over the states of the memory (which inputs are kept, what each stage has saved, what
// passes, which stage goes backward next), by Dijkstra's algorithm. In a persistent schedule a
// value is read by the next operation alone, or kept until its backward pass. For a few stages.
double ExhaustiveTime(const Chain& chain, int64_t budget_bytes);

}  // namespace brigade::recompute

#endif  // BRIGADE_TESTS_RECOMPUTE_EXHAUSTIVE_H_
