#include "brigade/benchmarks/common/run_main.h"

#include <iostream>

#include "absl/flags/parse.h"
#include "absl/flags/usage.h"
#include "absl/strings/str_cat.h"

namespace brigade::benchmarks {

int RunMain(int argc, char** argv, absl::string_view what, absl::FunctionRef<absl::Status()> run) {
  absl::SetProgramUsageMessage(
      absl::StrCat("Times ", what, "; benchmarks/README.md says how to read it."));
  absl::ParseCommandLine(argc, argv);
  const absl::Status status = run();
  if (!status.ok()) std::cerr << status << "\n";
  return status.ok() ? 0 : 1;
}

}  // namespace brigade::benchmarks
