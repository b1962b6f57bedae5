// Reads all of a checkpoint and compares checksums: bazel run //checkpoint:verify -- FOLDER

#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <string>

#include "brigade/checkpoint/command_line.h"
#include "brigade/checkpoint/verify.h"
#include "brigade/device/command_line.h"

namespace {

constexpr char kHelp[] =
    R"(usage: verify FOLDER

Reads all of a checkpoint: whether each file is there, whole, with its checksum and those of its
tensors, and nothing else. Names on stderr what is damaged, and then ends with 1.
)";

}  // namespace

int main(int argc, char** argv) {
  using namespace brigade::checkpoint;
  const CommandLine line = ParseCommandLine(argc, argv, kHelp);
  if (line.arguments.size() != 1) ExitWithUsage(kHelp, "One folder is needed.");
  VerifyOptions options;
  int64_t shown = -1;
  if (isatty(STDERR_FILENO) != 0) {
    options.progress = [&](int64_t done, int64_t total) {
      const int64_t percent = total == 0 ? 100
                                         : static_cast<int64_t>(100.0 * static_cast<double>(done) /
                                                                static_cast<double>(total));
      if (percent == shown) return;
      shown = percent;
      std::fprintf(stderr, "\r%3lld %%", static_cast<long long>(percent));
    };
  }
  const auto report = Verify(brigade::device::FromUsersFolder(line.arguments[0]), options);
  if (shown >= 0) std::fprintf(stderr, "\r     \r");
  if (!report.ok()) return ExitStatus(report.status());
  for (const std::string& damage : report->damages) std::fprintf(stderr, "%s\n", damage.c_str());
  const auto bytes = static_cast<double>(report->bytes);
  std::printf("%s: %d files, %d tensors, %lld bytes in %.2f s, %.2f GB/s\n",
              report->damages.empty() ? "whole" : "DAMAGED", report->files, report->tensors,
              static_cast<long long>(report->bytes), report->seconds,
              bytes / 1e9 / std::max(report->seconds, 1e-9));
  return report->damages.empty() ? 0 : 1;
}
