#include "brigade/device/edit_distance.h"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <vector>

#include "absl/strings/ascii.h"

namespace brigade::device {

int EditDistance(absl::string_view a, absl::string_view b) {
  a = a.substr(0, 64);
  b = b.substr(0, 64);
  std::vector<int> row(b.size() + 1);  // distances of the a so far to each beginning of b
  std::iota(row.begin(), row.end(), 0);
  for (size_t i = 0; i < a.size(); ++i) {
    int diagonal = row[0]++;
    for (size_t j = 0; j < b.size(); ++j) {
      const int replaced = diagonal + (absl::ascii_tolower(a[i]) != absl::ascii_tolower(b[j]));
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, row[j] + 1, diagonal + 1});
    }
  }
  return row.back();
}

}  // namespace brigade::device
