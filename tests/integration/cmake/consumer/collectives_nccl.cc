// NCCL is loaded at run time: one that is not there is named.
#include <cstdio>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "brigade/collectives/engines/nccl/api.h"

int main() {
  const absl::Status status = brigade::collectives::LoadNccl("libno_such_nccl.so").status();
  std::printf("%s\n", status.ToString().c_str());
  return absl::StrContains(status.message(), "libno_such_nccl.so") ? 0 : 1;
}
