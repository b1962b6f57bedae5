#ifndef BRIGADE_PROFILE_COLLECTIVE_CALLS_H_
#define BRIGADE_PROFILE_COLLECTIVE_CALLS_H_

// Which collectives a rank has called in a step, how long each took and what it has sent, from a
// trace whose calls are marked (collectives/call_marks.h).

#include <cstdint>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "brigade/profile/trace_rows.h"

namespace brigade::profile {

// Calls of one kind on one stream.
struct CollectiveCalls {
  std::string stream = {};
  // "all_gather"
  std::string name = {};
  int64_t calls = 0;
  // From where the stream has come to a call to its end.
  double seconds = 0;
  // Of them: until the other ranks had come to it too. 0 where an engine's trace does not tell.
  double waiting_seconds = 0;
  double sent_bytes = 0;
};

// All calls that are marked and have ended in the trace: marked are those that were made in the
// step, wherever their streams come to them. In the order in which they come first, stream by
// stream.
std::vector<CollectiveCalls> CallsOf(absl::Span<const StreamOperations> streams);

// Adds to those of the same stream and name.
void AddCalls(const CollectiveCalls& calls, std::vector<CollectiveCalls>& all);

}  // namespace brigade::profile

#endif  // BRIGADE_PROFILE_COLLECTIVE_CALLS_H_
