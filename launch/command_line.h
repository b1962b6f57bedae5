#ifndef BRIGADE_LAUNCH_COMMAND_LINE_H_
#define BRIGADE_LAUNCH_COMMAND_LINE_H_

// The words behind `brigade_launch`: DeepSpeed's and torchrun's flags, and a program.

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "brigade/launch/hosts.h"

namespace brigade::launch {

// Who starts the processes of other hosts.
enum class BackEnd { kLocal, kSsh, kPdsh, kOpenMpi, kSlurm };

struct Options {
  // "": none, and ranks run here. Or the hosts themselves, as HostsFromList takes them.
  std::string hostfile, hosts;
  std::string include, exclude;
  // 0: all.
  int num_nodes = 0, num_gpus = 0;
  // --nnodes=MIN:MAX, of each start; 0: not given.
  int min_nodes = 0, max_nodes = 0;
  // A number, "gpu", "cpu" or "auto"; "": not given.
  std::string ranks_per_node;
  bool standalone = false;
  int max_restarts = 0;
  // The same command is given on each host, where this is one of them.
  bool no_ssh = false;
  std::optional<int> node_rank;
  // "": the first host's own.
  std::string master_addr;
  // 0: one that is free.
  int master_port = 0;
  bool save_pid = false;
  // Of a file for each rank, in which its output goes instead of to the launcher's.
  std::string log_directory;
  bool bind_cores = false;
  std::optional<BackEnd> launcher;
  // For ssh, pdsh, mpirun or srun, before all others.
  std::vector<std::string> launcher_args;
  // What is started as ssh is.
  std::string ssh = "ssh";
  // This program on other hosts; "": where it is here.
  std::string remote_program;
  // How long ranks may go on after a signal, before they are killed.
  absl::Duration grace = absl::Seconds(30);
  // How long another host may be silent before it counts as lost.
  absl::Duration host_timeout = absl::Seconds(30);
  // PROGRAM is run as it is, also if its name ends in .py.
  bool no_python = false;
  // PROGRAM is a module of Python's.
  bool module = false;
  // This process has been started by a launcher, as its agent of this name, with this patience.
  std::optional<std::string> agent;
  absl::Duration agent_patience = absl::ZeroDuration();
  // What --help prints is asked for.
  bool help = false;
  // PROGRAM and its arguments.
  std::vector<std::string> program;
};

// Flags up to the first word that is none, or up to "--": --name=value, --name value, with "-" or
// "_" between words. InvalidArgument naming the word: a flag that is unknown, with the nearest one;
// a value that is none of the flag's; flags that contradict each other; no program.
absl::StatusOr<Options> ParseCommandLine(absl::Span<const std::string> words);

// The hosts and slots that are asked for: those of the hostfile, or this one, without what flags
// leave out. `gpus`: how many this host has. Of more than max_nodes the others are in reserve where
// RunJob starts the ranks of all hosts: for those that a start does not find, the first one too;
// where others start the ranks they are left out. InvalidArgument for fewer than min_nodes; errors
// of hosts.h, and those of reading the hostfile.
absl::StatusOr<std::vector<Host>> HostsOf(const Options& options, int gpus);

// What --help prints.
std::string HelpText();

// "ssh" of kSsh.
const char* NameOf(BackEnd back_end);

}  // namespace brigade::launch

#endif  // BRIGADE_LAUNCH_COMMAND_LINE_H_
