// Shows what is in a checkpoint: bazel run //checkpoint:inspect -- FOLDER

#include <cstdio>
#include <string>

#include "brigade/checkpoint/command_line.h"
#include "brigade/checkpoint/inspect.h"
#include "brigade/device/command_line.h"

namespace {

constexpr char kHelp[] =
    R"(usage: inspect FOLDER|FILE

Shows what is in a checkpoint: step, rates, options, parameters and files, as its manifest says;
of a folder of checkpoints a line each; of weights of other tools (a safetensors file, a folder
with model.safetensors or its index, or an index) the tensors. Reads no data: see verify.
)";

}  // namespace

int main(int argc, char** argv) {
  using namespace brigade::checkpoint;
  const CommandLine line = ParseCommandLine(argc, argv, kHelp);
  if (line.arguments.size() != 1) ExitWithUsage(kHelp, "One folder or file is needed.");
  std::string text;
  const absl::Status status = Inspect(brigade::device::FromUsersFolder(line.arguments[0]), text);
  std::fwrite(text.data(), 1, text.size(), stdout);
  return ExitStatus(status);
}
