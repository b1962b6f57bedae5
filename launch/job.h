#ifndef BRIGADE_LAUNCH_JOB_H_
#define BRIGADE_LAUNCH_JOB_H_

// A job from its start to its end: an agent on each host, ranks, restarts, and what the launcher
// itself says.

#include <optional>
#include <string>
#include <vector>

#include "brigade/collectives/bootstrap/job_secret.h"
#include "brigade/launch/command_line.h"
#include "brigade/launch/hosts.h"
#include "brigade/launch/ranks.h"

namespace brigade::launch {

struct JobOptions {
  Options options;
  // All hosts of the job.
  std::vector<Host> hosts;
  // Of these, the one whose ranks are started here, if others start those of the other hosts.
  std::optional<int> only;
  // For ranks on other hosts, beside those that ranks have by themselves.
  Variables exported;
  // What the secrets of starts are made of; none: others cannot know it.
  std::optional<collectives::JobSecret> secret;
  std::string run_id;
  // Of Gathering.
  bool sets_devices = true;
  std::vector<std::string> devices;
};

// Runs it. What ranks print goes to this process's outputs, each line behind "[RANK] "; a failure
// is told on its error output: of a start that ended by it, the rank that failed first, once, at
// the end. When a rank fails, or a host is lost, all ranks are stopped, and started again up to
// max_restarts times, on the hosts that are there then: all of them, or no fewer than min_nodes.
//
// Returns 0 if all ranks have; 128 + signal if one has ended this process's work; else the code of
// the rank that failed first, 128 + signal if one has killed it. Of several that fail at once that
// is one that was killed: errors of a rank whose neighbour is gone are what follows.
// What ranks print and the system does not take, as on a full disk, is lost, which is said once.
//
// No process is left then. SIGINT, SIGTERM, SIGHUP and SIGQUIT go to all ranks; a second one kills
// them. If this process is killed its agents end the ranks.
int RunJob(const JobOptions& options);

}  // namespace brigade::launch

#endif  // BRIGADE_LAUNCH_JOB_H_
