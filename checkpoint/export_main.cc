// Makes a safetensors file of a checkpoint: bazel run //checkpoint:export -- FOLDER OUT.safetensors

#include <cstdio>
#include <string>

#include "brigade/checkpoint/command_line.h"
#include "brigade/checkpoint/export.h"
#include "brigade/device/command_line.h"
#include "brigade/precision/dtype_names.h"

namespace {

constexpr char kHelp[] =
    R"(usage: export FOLDER OUT.safetensors [--dtype=fp32|fp16|bf16] [--force]
       export FOLDER --folder=OUT

Writes one safetensors file of a checkpoint's parameters: in fp32, frozen ones in their own type, or
all in the type that is named. --force replaces a file that is there. With --folder: the checkpoint
itself, without piece files. Checksums are compared; what is damaged is not exported.
)";

}  // namespace

int main(int argc, char** argv) {
  using namespace brigade::checkpoint;
  CommandLine line = ParseCommandLine(argc, argv, kHelp, {"dtype=", "force", "folder="});
  const bool to_folder = line.flags.count("folder") != 0;
  if (line.arguments.size() != (to_folder ? 1u : 2u)) {
    ExitWithUsage(kHelp, "A checkpoint and one name to write are needed.");
  }
  if (to_folder && line.flags.size() > 1) ExitWithUsage(kHelp, "--folder stands alone.");
  ExportOptions options = {.force = line.flags.count("force") != 0};
  if (line.flags.count("dtype") != 0) {
    options.dtype = brigade::precision::ParseTrainingFormat(line.flags["dtype"]);
    if (!options.dtype.has_value()) {
      ExitWithUsage(kHelp, "--dtype must be fp32, fp16 or bf16.");
    }
  }
  const std::string from = brigade::device::FromUsersFolder(line.arguments[0]);
  const std::string out =
      brigade::device::FromUsersFolder(to_folder ? line.flags["folder"] : line.arguments[1]);
  if (out.empty()) ExitWithUsage(kHelp, "The name to write is empty.");
  const auto report = to_folder ? ExportFolder(from, out) : ExportParameters(from, out, options);
  if (!report.ok()) return ExitStatus(report.status());
  std::printf("%s: %d files, %d tensors, %lld bytes\n", out.c_str(), report->files, report->tensors,
              static_cast<long long>(report->bytes));
  return 0;
}
