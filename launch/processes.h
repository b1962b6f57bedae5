#ifndef BRIGADE_LAUNCH_PROCESSES_H_
#define BRIGADE_LAUNCH_PROCESSES_H_

// Processes that end with the one that has started them, whatever ends it.

#include <sys/resource.h>
#include <sys/types.h>

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "brigade/launch/ranks.h"

namespace brigade::launch {

struct Command {
  // Looked for in PATH if it has no slash.
  std::vector<std::string> words;
  // Beside this process's own, or instead of those of the same name.
  Variables variables = {};
  // "": this process's.
  std::string directory = {};
  // That it runs on; empty: all.
  std::vector<int> cores = {};
  // For both outputs, at the end of what is there; "": pipes.
  std::string log = {};
  // What it reads is what the caller writes; else nothing.
  bool has_input = false;
  // Its errors are this process's.
  bool keeps_errors = false;
  // How many descriptors it may have; 0: as this process.
  rlim_t descriptors = 0;
  // What the system sends it when its parent, a thread, ends.
  int signal_with_parent = 0;
};

// A process, alone in a process group of its own; with the ends of its pipes, -1 where there is
// none. The caller closes them.
struct Process {
  pid_t id = -1;
  int input = -1, output = -1, errors = -1;
};

// Starts it. Signals are as in a program that a shell starts. NotFound or PermissionDenied naming
// the program if it cannot be run, and what the system says, naming directory, log or core, if it
// has none of these.
absl::StatusOr<Process> Start(const Command& command);

// From now on what this process's children leave behind become its own children.
void AdoptOrphans();

// Sends a signal to all processes under this one, to their children too; returns how many got it.
int SignalDescendants(int signal);

// Kills all of them, and reaps them, until there is none but those of other users, and those that
// the system keeps for 10 s.
void EndDescendants();

// Of SIGTERM, SIGINT, SIGHUP and SIGQUIT those that are not ignored, as SIGHUP is behind nohup.
std::vector<int> EndingSignals();

// A descriptor that reads them, and SIGCHLD, which do nothing else from now on.
int OpenSignals();

// Lets this process have as many descriptors as the system allows: each rank takes two, and each
// host three, where by default a process has 1024. Returns how many it could have before.
rlim_t RaiseDescriptorLimit();

// A folder for files that nobody needs later: TMPDIR, or /tmp where that is no folder.
std::string TemporaryFolder();

// 128 + signal, or the code, of what waitpid says.
int ExitCode(int wait_status);

// "SIGTERM"; "signal 42".
std::string SignalName(int signal);

}  // namespace brigade::launch

#endif  // BRIGADE_LAUNCH_PROCESSES_H_
