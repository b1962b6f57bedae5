#include "brigade/benchmarks/common/run_main.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "brigade/benchmarks/common/numbers.h"
#include "brigade/device/command_line.h"

namespace brigade::benchmarks {

int RunMain(int argc, char** argv, absl::string_view what, absl::FunctionRef<absl::Status()> run) {
  const std::string about = absl::StrCat(
      "Times ", what, "; the README.md of its folder in benchmarks/ says how to read it.");
  return device::RunProgram(argc, argv, about, [&] {
    const absl::Status status = CheckNumbers();
    return status.ok() ? run() : status;
  });
}

}  // namespace brigade::benchmarks
