#include "brigade/checkpoint/command_line.h"

#include <cstdio>
#include <cstdlib>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "brigade/device/printable.h"

namespace brigade::checkpoint {

CommandLine ParseCommandLine(int argc, char** argv, absl::string_view help,
                             const std::vector<std::string>& flags) {
  CommandLine line;
  bool flags_end = false;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (flags_end || !absl::StartsWith(argument, "-")) {
      line.arguments.push_back(argument);
      continue;
    }
    if (argument == "--") {
      flags_end = true;
      continue;
    }
    if (argument == "--help" || argument == "-help" || argument == "-h") {
      std::fwrite(help.data(), 1, help.size(), stdout);
      std::exit(0);
    }
    const size_t equals = argument.find('=');
    const bool has_value = equals != std::string::npos;
    // With the "=".
    const std::string name = argument.substr(0, has_value ? equals + 1 : equals);
    if (!absl::StartsWith(name, "--") || !absl::c_linear_search(flags, name.substr(2))) {
      ExitWithUsage(help, absl::StrCat(device::Printable(argument, 200), " is not known"));
    }
    line.flags[has_value ? name.substr(2, equals - 2) : name.substr(2)] =
        has_value ? argument.substr(equals + 1) : "";
  }
  return line;
}

void ExitWithUsage(absl::string_view help, absl::string_view what) {
  std::fprintf(stderr, "%s\n%s", std::string(what).c_str(), std::string(help).c_str());
  std::exit(2);
}

int ExitStatus(const absl::Status& status) {
  if (status.ok()) return 0;
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return 1;
}

}  // namespace brigade::checkpoint
