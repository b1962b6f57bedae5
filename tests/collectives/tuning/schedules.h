#ifndef BRIGADE_TESTS_COLLECTIVES_TUNING_SCHEDULES_H_
#define BRIGADE_TESTS_COLLECTIVES_TUNING_SCHEDULES_H_

#include <vector>

#include "brigade/collectives/tuning/cost_model.h"

// What the cost model says in formulas, worked out message by message.
namespace brigade::collectives {

struct Message {
  // Sent when what came in earlier steps is there.
  int step;
  int from;
  int to;
  double bytes;
  // Waits for messages of the same stream only.
  int stream = 0;
  // Which of a rank's or a node's ports; -1: the sender's, as ranks are dealt.
  int lane = -1;
};
using Schedule = std::vector<std::vector<Message>>;  // by phase

// Who sends what to whom; what the algorithms that know of nodes do is read from their programs, of
// elements of a byte, which are a multiple of 32 for each rank. The topology has ranks enough for
// more than one.
Schedule ScheduleOf(const Topology& topology, Algorithm algorithm, CollectiveKind operation,
                    double bytes);

// The node of each rank.
std::vector<int> NodesOf(const Topology& topology);

}  // namespace brigade::collectives

#endif  // BRIGADE_TESTS_COLLECTIVES_TUNING_SCHEDULES_H_
