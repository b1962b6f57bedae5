#include "brigade/benchmarks/common/figures.h"

#include <fstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace brigade::benchmarks {

void Figures::Add(const std::string& name, double value) {
  lines_.push_back(absl::StrFormat("  \"%s\": %.9g", name, value));
}

absl::Status Figures::Write(const std::string& path) const {
  if (path.empty()) return absl::OkStatus();
  std::ofstream file(path);
  file << "{\n" << absl::StrJoin(lines_, ",\n") << "\n}\n" << std::flush;
  return file ? absl::OkStatus() : absl::UnavailableError(absl::StrCat("cannot write ", path));
}

}  // namespace brigade::benchmarks
