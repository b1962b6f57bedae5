#include "brigade/device/command_line.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "absl/flags/commandlineflag.h"
#include "absl/flags/parse.h"
#include "absl/flags/reflection.h"
#include "absl/flags/usage.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "absl/time/time.h"
#include "brigade/device/printable.h"

namespace brigade::device {
namespace {

namespace fs = std::filesystem;

constexpr size_t kColumns = 100;
constexpr size_t kIndent = 6;

std::string Wrapped(absl::string_view text) {
  std::string lines;
  size_t column = kColumns;
  for (const absl::string_view word : absl::StrSplit(text, ' ', absl::SkipEmpty())) {
    if (column + 1 + word.size() > kColumns) {
      absl::StrAppend(&lines, lines.empty() ? "" : "\n", std::string(kIndent, ' '), word);
      column = kIndent + word.size();
    } else {
      absl::StrAppend(&lines, " ", word);
      column += 1 + word.size();
    }
  }
  return lines;
}

template <typename T>
bool IsOfType(const absl::CommandLineFlag& flag) {
  return flag.IsOfType<T>() || flag.IsOfType<std::optional<T>>();
}

// What Abseil does not say of a value that it refuses.
absl::string_view KindOf(const absl::CommandLineFlag& flag) {
  if (IsOfType<bool>(flag)) return "it must be true or false";
  if (IsOfType<double>(flag) || IsOfType<float>(flag)) return "it must be a number";
  if (IsOfType<int32_t>(flag) || IsOfType<int64_t>(flag)) return "it must be a whole number";
  if (IsOfType<uint32_t>(flag) || IsOfType<uint64_t>(flag)) {
    return "it must be a whole number, 0 or more";
  }
  if (IsOfType<absl::Duration>(flag)) return "it must be a time like 1.5s, 300ms or 2m";
  return "";
}

// Calls visit(flag, value) for those flags of the command line that are the program's own and have
// a value there: behind a =, or the next word.
void ForFlagsWithValues(int argc, char** argv,
                        absl::FunctionRef<void(absl::CommandLineFlag&, absl::string_view)> visit) {
  for (int i = 1; i < argc; ++i) {
    absl::string_view word = argv[i];
    if (word == "--") break;
    if (!absl::ConsumePrefix(&word, "--") && !absl::ConsumePrefix(&word, "-")) continue;
    const size_t equals = word.find('=');
    absl::CommandLineFlag* const flag = absl::FindCommandLineFlag(word.substr(0, equals));
    if (flag == nullptr || absl::StrContains(flag->Filename(), "absl/")) continue;
    if (equals != absl::string_view::npos) {
      visit(*flag, word.substr(equals + 1));
    } else if (!flag->IsOfType<bool>() && i + 1 < argc) {
      visit(*flag, argv[++i]);
    }
  }
}

// All values that their flags refuse, each with what the flag takes: by itself Abseil ends the
// process and says of a number that it is illegal, and no more.
absl::Status CheckValues(int argc, char** argv) {
  std::string refused;
  ForFlagsWithValues(argc, argv, [&](absl::CommandLineFlag& flag, absl::string_view value) {
    std::string error;
    if (flag.ParseFrom(value, &error)) return;
    // "Illegal value '...' specified for flag '...'", and what the type says.
    absl::string_view kind = error;
    const std::string before = absl::StrCat("' specified for flag '", flag.Name(), "'; ");
    const size_t told = kind.rfind(before);
    kind = told == absl::string_view::npos ? KindOf(flag) : kind.substr(told + before.size());
    absl::StrAppend(&refused, refused.empty() ? "" : "\n", "--", flag.Name(), " is \"",
                    Printable(value, 200), "\"", kind.empty() ? "" : "; ", Printable(kind, 300),
                    ". --", flag.Name(), ": ", flag.Help());
  });
  return refused.empty() ? absl::OkStatus() : absl::InvalidArgumentError(refused);
}

}  // namespace

bool AsksForHelp(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    const absl::string_view argument = argv[i];
    if (argument == "--") break;
    if (argument == "--help" || argument == "-help" || argument == "-h") return true;
  }
  return false;
}

std::string HelpText(absl::string_view program, absl::string_view about) {
  std::map<std::string, const absl::CommandLineFlag*> flags;
  for (const auto& [name, flag] : absl::GetAllFlags()) {
    if (!absl::StrContains(flag->Filename(), "absl/")) flags[std::string(name)] = flag;
  }
  std::string text = absl::StrCat("usage: ", program, flags.empty() ? "" : " [--FLAG=VALUE...]",
                                  "\n\n", about, "\n");
  for (const auto& [name, flag] : flags) {
    // Nothing is parsed yet: the default, also where main() has set one of its own.
    const std::string value = flag->CurrentValue();
    absl::StrAppend(&text, "\n  --", name,
                    value.empty() ? " (no default)" : absl::StrCat(" (default: ", value, ")"), "\n",
                    Wrapped(flag->Help()), "\n");
  }
  return text;
}

absl::Status ParseFlags(int argc, char** argv, absl::string_view about) {
  if (AsksForHelp(argc, argv)) {
    const std::string program = fs::path(argv[0]).filename().string();
    std::fputs(HelpText(program, about).c_str(), stdout);
    std::exit(std::fflush(stdout) == 0 ? 0 : 1);
  }
  absl::SetProgramUsageMessage(about);
  if (absl::Status status = CheckValues(argc, argv); !status.ok()) return status;
  const std::vector<char*> words = absl::ParseCommandLine(argc, argv);
  if (words.size() < 2) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("\"", Printable(words[1], 200), "\" is no flag; see --help"));
}

int RunProgram(int argc, char** argv, absl::string_view about,
               absl::FunctionRef<absl::Status()> run) {
  absl::Status status = ParseFlags(argc, argv, about);
  if (status.ok()) status = run();
  // Also of a disk that has had no room before.
  if (status.ok() && (std::fflush(stdout) != 0 || std::ferror(stdout) != 0)) {
    status = absl::UnavailableError("cannot write all that was printed");
  }
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return status.ok() ? 0 : 1;
}

std::vector<std::string> EmptyFlags(int argc, char** argv) {
  std::vector<std::string> names;
  for (int i = 1; i < argc; ++i) {
    absl::string_view name = argv[i];
    if (name == "--") break;
    if (!absl::ConsumePrefix(&name, "--") && !absl::ConsumePrefix(&name, "-")) continue;
    const bool is_next = i + 1 < argc && *argv[i + 1] == '\0';
    if ((absl::ConsumeSuffix(&name, "=") || is_next) &&
        absl::FindCommandLineFlag(name) != nullptr) {
      names.emplace_back(name);
    }
  }
  return names;
}

bool AbslParseFlag(absl::string_view text, Count* count, std::string* error) {
  constexpr std::pair<char, double> kUnits[] = {{'K', 1e3}, {'M', 1e6}, {'B', 1e9}, {'T', 1e12}};
  absl::string_view digits = text;
  double unit = 1, value = 0;
  for (const auto& [letter, factor] : kUnits) {
    if (digits.empty() ||
        absl::ascii_toupper(static_cast<unsigned char>(digits.back())) != letter) {
      continue;
    }
    unit = factor;
    digits.remove_suffix(1);
    break;
  }
  // As far as a double counts one by one.
  constexpr double kMost = 0x1p53;
  if (!absl::SimpleAtod(digits, &value) || !(value >= 0 && value * unit <= kMost)) {
    *error = "it must be a number like 7000000000, 7e9, 7B, 1.3B, 350M, 16K or 1T";
    return false;
  }
  count->value = std::llround(value * unit);
  return true;
}

std::string AbslUnparseFlag(Count count) {
  constexpr std::pair<int64_t, const char*> kUnits[] = {
      {1'000'000'000'000, "T"}, {1'000'000'000, "B"}, {1'000'000, "M"}, {1'000, "K"}};
  for (const auto& [unit, letter] : kUnits) {
    // With one digit behind the point, where that is exact.
    if (count.value >= unit && count.value % (unit / 10) == 0) {
      return absl::StrCat(static_cast<double>(count.value) / static_cast<double>(unit), letter);
    }
  }
  return absl::StrCat(count.value);
}

}  // namespace brigade::device
