#include "brigade/device/command_line.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <system_error>
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
  const std::vector<char*> words = absl::ParseCommandLine(argc, argv);
  if (words.size() < 2) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("\"", Printable(words[1], 200), "\" is no flag; see --help"));
}

int RunProgram(int argc, char** argv, absl::string_view about,
               absl::FunctionRef<absl::Status()> run) {
  absl::Status status = ParseFlags(argc, argv, about);
  if (status.ok()) status = run();
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

std::string FromUsersFolder(const std::string& path) {
  const char* const folder = std::getenv("BUILD_WORKING_DIRECTORY");
  if (path.empty() || path[0] == '/' || folder == nullptr) return path;
  return absl::StrCat(folder, "/", path);
}

std::string DataFile(const std::string& path) {
  std::error_code error;
  if (fs::exists(path, error)) return path;
  const fs::path program = fs::read_symlink("/proc/self/exe", error);
  // One folder for each repository; the names differ between versions of Bazel.
  for (const auto& repository : fs::directory_iterator(program.string() + ".runfiles", error)) {
    const fs::path found = repository.path() / path;
    if (fs::exists(found, error)) return found.string();
  }
  return path;
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
    *error = absl::StrCat(
        "it must be a number like 7000000000, 7e9, 7B, 1.3B, 350M, 16K or 1T, not \"", text, "\"");
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
