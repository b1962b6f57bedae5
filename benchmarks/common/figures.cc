#include "brigade/benchmarks/common/figures.h"

#include <fstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace brigade::benchmarks {
namespace {

absl::Status WriteLines(char begin, const std::vector<std::string>& lines, char end,
                        const std::string& path) {
  if (path.empty()) return absl::OkStatus();
  std::ofstream file(path);
  file << begin << "\n" << absl::StrJoin(lines, ",\n") << "\n" << end << "\n" << std::flush;
  return file ? absl::OkStatus() : absl::UnavailableError(absl::StrCat("cannot write ", path));
}

}  // namespace

void Figures::Add(const std::string& name, double value) {
  lines_.push_back(absl::StrFormat("  \"%s\": %.9g", name, value));
}

absl::Status Figures::Write(const std::string& path) const {
  return WriteLines('{', lines_, '}', path);
}

absl::Status WriteRows(const std::vector<std::string>& rows, const std::string& path) {
  return WriteLines('[', rows, ']', path);
}

}  // namespace brigade::benchmarks
