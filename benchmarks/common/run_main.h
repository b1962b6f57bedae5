#ifndef BRIGADE_BENCHMARKS_COMMON_RUN_MAIN_H_
#define BRIGADE_BENCHMARKS_COMMON_RUN_MAIN_H_

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace brigade::benchmarks {

// The main() of a benchmark that prints a table of its own: device::RunProgram, behind CheckNumbers
// (numbers.h). `what` ends the sentence "Times ..." of --help.
int RunMain(int argc, char** argv, absl::string_view what, absl::FunctionRef<absl::Status()> run);

}  // namespace brigade::benchmarks

#endif  // BRIGADE_BENCHMARKS_COMMON_RUN_MAIN_H_
