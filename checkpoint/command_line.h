#ifndef BRIGADE_CHECKPOINT_COMMAND_LINE_H_
#define BRIGADE_CHECKPOINT_COMMAND_LINE_H_

// What the commands of this package share. They end with 0; with 1 for an error, or damage that was
// found; with 2 for a command line that they do not understand.

#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace brigade::checkpoint {

struct CommandLine {
  std::vector<std::string> arguments = {};
  // By name: "--dtype=bf16" is {"dtype", "bf16"}, "--force" is {"force", ""}.
  std::map<std::string, std::string> flags = {};
};

// `flags`: those that there are, with "=" at the end where they have a value. Ends the program:
// with the text `help` after --help, and by ExitWithUsage for other flags.
CommandLine ParseCommandLine(int argc, char** argv, absl::string_view help,
                             const std::vector<std::string>& flags = {});

[[noreturn]] void ExitWithUsage(absl::string_view help, absl::string_view what);

// 0, or 1 with the error on stderr.
int ExitStatus(const absl::Status& status);

}  // namespace brigade::checkpoint

#endif  // BRIGADE_CHECKPOINT_COMMAND_LINE_H_
