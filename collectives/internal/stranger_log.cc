#include "brigade/collectives/internal/stranger_log.h"

#include <cstdio>
#include <utility>

#include "absl/strings/str_format.h"

namespace brigade::collectives::internal {

StrangerLog::~StrangerLog() {
  if (refused_ < 2) return;
  absl::FPrintF(stderr, "brigade: port %d refused %d connections of strangers\n", port_, refused_);
}

void StrangerLog::Refused(const std::string& address, absl::string_view why) {
  if (refused_++ > 0) return;
  absl::FPrintF(stderr, "brigade: port %d refused %s: %s; others are counted\n", port_, address,
                why);
}

void StrangerLog::AcceptsNobody(absl::string_view why) {
  if (std::exchange(is_short_, true)) return;
  absl::FPrintF(stderr, "brigade: port %d accepts nobody for now: %s\n", port_, why);
}

}  // namespace brigade::collectives::internal
