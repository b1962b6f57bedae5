#ifndef BRIGADE_TESTS_COLLECTIVES_FAULT_CONFORMANCE_H_
#define BRIGADE_TESTS_COLLECTIVES_FAULT_CONFORMANCE_H_

#include <functional>
#include <string>
#include <vector>

#include "brigade/tests/collectives/ranks.h"

namespace brigade::collectives {

// What a rank of a group of two does while the other one does something else.
enum class Action {
  kAllReduce,
  kReduceScatter,
  kAllGather,
  kAllToAll,
  kShift,
  kBroadcast,
  kBarrier,
  kSend,
  kReceive,
  kAllGatherHost,
  kSplit,
  kShrink,
  kAbort,
  kNothing,
};

const std::vector<Action>& AllActions();
std::string Name(Action action);  // "AllReduce"

// An engine for the suites below.
struct EngineUnderTest {
  std::function<CreateEngineFn(const RanksOptions&)> create_engines;
  // Whether a send or a receive is compared with what the other rank does when it is made, and not
  // only when it is late.
  bool compares_sends_at_once = true;
};

// What every engine must do when rank 0 begins with `first` and rank 1 follows with any of
// AllActions(): both succeed where the two belong together. Otherwise the communicator ends on both
// ranks with an error that names what both of them do, and what is left goes on with Shrink.
void ConformWhenRanksDiffer(Action first, const EngineUnderTest& engine);

// What every engine must do when one rank of three makes the same call with another argument, or a
// receive is longer than its send: all ranks get an InvalidArgument that names both calls and their
// number, and go on with Shrink.
void ConformWhenArgumentsDiffer(const EngineUnderTest& engine);

// What every engine must do while a rank's stream hangs in work of its own, with calls behind it:
// an abort by another rank ends what waits for those calls on the host, and Reserve does not keep
// them from running.
void ConformWhenAStreamHangs(const EngineUnderTest& engine);

// What every engine must do when one rank of three is through and destroys its communicator while
// the others still send to each other: no error, until one of them waits for it.
void ConformWhenARankHasLeft(const EngineUnderTest& engine);

}  // namespace brigade::collectives

#endif  // BRIGADE_TESTS_COLLECTIVES_FAULT_CONFORMANCE_H_
