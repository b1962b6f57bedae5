// Prints what a rank needs in each stage: bazel run //zero:memory_model -- --params=7.5e9 --ranks=64

#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/flags/usage.h"
#include "absl/strings/numbers.h"
#include "brigade/zero/memory_model.h"

ABSL_FLAG(double, params, 7.5e9, "parameters of the model");
ABSL_FLAG(std::vector<std::string>, ranks,
          std::vector<std::string>({"1", "4", "16", "64", "256", "1024"}),
          "numbers of ranks, separated by commas");

namespace brigade::zero {
namespace {

int Main() {
  const double params = absl::GetFlag(FLAGS_params);
  if (!(params > 0 && params < 1e18)) {
    std::fprintf(stderr, "--params is %g; it must be positive\n", params);
    return 1;
  }
  std::printf(
      "GB per rank (10^9 bytes) for %g parameters: 16-bit weights and gradients, fp32 master, "
      "Adam\n",
      params);
  std::printf("%8s %12s %12s %12s %12s\n", "ranks", "stage 0", "stage 1", "stage 2", "stage 3");
  for (const std::string& text : absl::GetFlag(FLAGS_ranks)) {
    int64_t ranks = 0;
    if (!absl::SimpleAtoi(text, &ranks) || ranks < 1) {
      std::fprintf(stderr, "--ranks has \"%s\"; it must be a positive number\n", text.c_str());
      return 1;
    }
    std::printf("%8lld", static_cast<long long>(ranks));
    for (int stage = 0; stage < kStages; ++stage) {
      std::printf(" %12.2f", PaperBytes(params, ranks, stage) / 1e9);
    }
    std::printf("\n");
  }
  return 0;
}

}  // namespace
}  // namespace brigade::zero

int main(int argc, char** argv) {
  absl::SetProgramUsageMessage("Device memory that training with ZeRO needs");
  absl::ParseCommandLine(argc, argv);
  return brigade::zero::Main();
}
