// Prints docs/configuration.md: bazel run //train/config:configuration_reference

#include <cstdio>

#include "absl/status/status.h"
#include "brigade/device/command_line.h"
#include "brigade/train/config/key_page.h"

int main(int argc, char** argv) {
  return brigade::device::RunProgram(
      argc, argv,
      "Prints docs/configuration.md: all keys that a training's configuration may have.", [] {
        std::fputs(brigade::train::ConfigurationPage().c_str(), stdout);
        return std::fflush(stdout) == 0 ? absl::OkStatus()
                                        : absl::UnavailableError("cannot write the page");
      });
}
