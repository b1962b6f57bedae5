#ifndef BRIGADE_LAUNCH_BACK_END_H_
#define BRIGADE_LAUNCH_BACK_END_H_

// Command lines of those that start processes on other hosts.

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "brigade/launch/command_line.h"
#include "brigade/launch/hosts.h"
#include "brigade/launch/ranks.h"

namespace brigade::launch {

// What no command line has, since everybody reads those.
inline constexpr const char* kSecretVariables[] = {"BRIGADE_JOB_SECRET", "BRIGADE_JOB_SECRET_FILE"};

// Of ssh: who can be asked for nothing gets an error instead.
inline constexpr const char* kNoPassword[] = {"-o", "BatchMode=yes"};

// A word as a shell reads it.
std::string ShellQuoted(absl::string_view word);

// KEY=VALUE lines, as in DeepSpeed's .deepspeed_env; blank lines and those that begin with # are
// none. InvalidArgument naming `file`, the line and what it is.
absl::StatusOr<Variables> VariablesFromText(absl::string_view text, absl::string_view file);

// What ranks on other hosts get of this process's environment: names that begin with NCCL, PYTHON,
// MV2, UCX, MLFLOW, TORCH, OMP_ or BRIGADE_, but no secret; and what .deepspeed_env says, in the
// user's home or here, or by the name in DS_ENV_FILE. A secret there goes into this process's
// environment. Errors of VariablesFromText and ReadFile.
absl::StatusOr<Variables> ExportedVariables();

// What starts the agent of a host, by its name: this program, or ssh with it. A program that is
// called ssh is told to ask for no password, which nobody could type, behind what the user says of
// that: of an option ssh takes what comes first.
std::vector<std::string> AgentCommand(const Options& options, const std::string& host,
                                      const std::string& name);

// The program and its arguments, with Python where it is a script or module of it.
std::vector<std::string> ProgramOf(const Options& options);

// The whole job for pdsh, mpirun or srun, which then take this process's place. pdsh starts this
// program on each host, with --no_ssh; the others start ranks, with what `exported` names of this
// process's environment. InvalidArgument where they cannot: slots that are not a host's first ones.
absl::StatusOr<std::vector<std::string>> ForeignCommand(const Options& options,
                                                        const std::vector<Host>& hosts,
                                                        const Variables& exported);

// Where ranks that mpirun or srun starts look for rank 0.
Variables ForeignVariables(const Options& options, const std::vector<Host>& hosts);

// Hosts as ForeignCommand tells them to this program: what Filter's text is.
std::string ToText(const std::vector<Host>& hosts);

}  // namespace brigade::launch

#endif  // BRIGADE_LAUNCH_BACK_END_H_
