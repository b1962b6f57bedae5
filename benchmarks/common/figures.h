#ifndef BRIGADE_BENCHMARKS_COMMON_FIGURES_H_
#define BRIGADE_BENCHMARKS_COMMON_FIGURES_H_

#include <string>
#include <vector>

#include "absl/status/status.h"

namespace brigade::benchmarks {

// What a benchmark writes with --json for a check_* script: figures by name.
class Figures {
 public:
  void Add(const std::string& name, double value);

  // As an object; otherwise as WriteRows.
  absl::Status Write(const std::string& path) const;

 private:
  std::vector<std::string> lines_;
};

// Writes a JSON array of these objects; nothing for a path that is empty. Unavailable for a file
// that cannot be written.
absl::Status WriteRows(const std::vector<std::string>& rows, const std::string& path);

}  // namespace brigade::benchmarks

#endif  // BRIGADE_BENCHMARKS_COMMON_FIGURES_H_
