#include "brigade/benchmarks/common/run_main.h"

#include "absl/strings/str_cat.h"
#include "brigade/benchmarks/common/numbers.h"
#include "brigade/device/command_line.h"

namespace brigade::benchmarks {

int RunMain(int argc, char** argv, absl::string_view what, absl::FunctionRef<absl::Status()> run) {
  return device::RunProgram(
      argc, argv, absl::StrCat("Times ", what, "; benchmarks/README.md says how to read it."), [&] {
        const absl::Status status = CheckNumbers();
        return status.ok() ? run() : status;
      });
}

}  // namespace brigade::benchmarks
