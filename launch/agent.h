#ifndef BRIGADE_LAUNCH_AGENT_H_
#define BRIGADE_LAUNCH_AGENT_H_

// What the launcher has on each host: starts ranks, passes on what they say, and ends them.

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "brigade/launch/channel.h"
#include "brigade/launch/ranks.h"

namespace brigade::launch {

// What the launcher tells an agent when ranks are to begin.
struct StartOrder {
  std::vector<std::string> program;
  std::string directory;
  // "": output goes to the launcher.
  std::string log_directory;
  bool bind_cores = false;
  absl::Duration grace;
  // Of all ranks.
  Variables variables;
  std::vector<Rank> ranks;
};

// How often both sides speak at least.
absl::Duration Heartbeat(absl::Duration patience);

Message ToMessage(const StartOrder& order);
absl::StatusOr<StartOrder> StartOrderFrom(const Message& message);

// The main() of an agent, which talks to the launcher over its standard input and output:
//
//   agent says                                  launcher says
//   hello ADDRESS PORT                          start ... (ToMessage)
//   output RANK 1|2 LINES                       stop SIGNAL
//   ended RANK PROCESS CODE SIGNAL ASKED WHY    kill
//   stopped PORT                                alive
//   signalled SIGNAL
//   alive
//
// ADDRESS is one by which other hosts reach this one, and PORT is free on it. SIGNAL of a rank that
// ended by itself is 0; ASKED is 1 if it had been told to stop. `stopped` follows the end of all
// ranks and of all that they had started. A stop sends the signal to ranks and their children, and
// kills what is left when the grace is over; kill does so at once. The end of the launcher's
// messages, or a signal to the agent itself, is a stop after which the agent ends.
//
// Two processes: one that does this, and its parent, which waits and then kills whatever is left,
// so that nothing that ranks have started outlives an agent that was killed. Returns 0, or 128 +
// the signal that ended it.
//
// `name` is that of the job and the host. While another agent has it, whose ranks may still be in
// their grace, this one waits before it says hello. `patience` is of silence, from hello on, after
// which the launcher counts as lost; 0: it is on this host, where its end is seen.
int RunAgent(const std::string& name, absl::Duration patience);

}  // namespace brigade::launch

#endif  // BRIGADE_LAUNCH_AGENT_H_
