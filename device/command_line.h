#ifndef BRIGADE_DEVICE_COMMAND_LINE_H_
#define BRIGADE_DEVICE_COMMAND_LINE_H_

// What the programs of all packages do alike with their command lines. Flags are Abseil's.

#include <cstdint>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "brigade/device/user_paths.h"

namespace brigade::device {

// The main() of a program that takes flags and nothing else: parses them, runs it, and prints an
// error on stderr. Returns 0, or 1 after an error, and where stdout has not taken all.
//   --help (-h, -help) prints `about`, a sentence, and all flags, and ends the process with 0.
//   A word that is no flag is InvalidArgument, naming it.
int RunProgram(int argc, char** argv, absl::string_view about,
               absl::FunctionRef<absl::Status()> run);

// The parts of RunProgram, for those that print otherwise.
bool AsksForHelp(int argc, char** argv);
// `about` and the flags of the program, without those of Abseil itself, by name.
std::string HelpText(absl::string_view program, absl::string_view about);
// Parses; ends the process with 0 after AsksForHelp, with 1 for a flag that is unknown. Values that
// flags refuse are InvalidArgument, each with what its flag takes and means.
absl::Status ParseFlags(int argc, char** argv, absl::string_view about);

// The names of flags that are given without a value, as in --config=$FILE where FILE is not set.
std::vector<std::string> EmptyFlags(int argc, char** argv);

// A flag that counts things by powers of 1000: 7000000000, 7e9, 7B, 1.3B, 350M, 16K, 1T.
struct Count {
  int64_t value = 0;
};
bool AbslParseFlag(absl::string_view text, Count* count, std::string* error);
std::string AbslUnparseFlag(Count count);

}  // namespace brigade::device

#endif  // BRIGADE_DEVICE_COMMAND_LINE_H_
