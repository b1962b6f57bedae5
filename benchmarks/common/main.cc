// The main() of all benchmarks: Google Benchmark's flags, and ours.

#include "brigade/benchmarks/common/main.h"

#include <cstdio>
#include <filesystem>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/str_format.h"
#include "benchmark/benchmark.h"
#include "brigade/benchmarks/common/numbers.h"
#include "brigade/device/command_line.h"

ABSL_FLAG(int64_t, rounds, 11, "how often each contestant is timed; medians are reported");

ABSL_FLAG(int64_t, operations, 0,
          "how often each contestant runs while it is timed once; 0: about a millisecond long");

ABSL_FLAG(std::string, device, "cpu", "cpu, or cuda: the first GPU");

namespace brigade::benchmarks {
namespace {

int Main(int argc, char** argv) {
  // Defaults of ours, first because a later flag wins: counters as columns, and one iteration of
  // each benchmark, which is --rounds rounds of our own (report.h).
  std::vector<char*> arguments(argv, argv + argc);
  std::string defaults[] = {"--benchmark_counters_tabular=true", "--benchmark_min_time=0"};
  for (std::string& flag : defaults) arguments.insert(arguments.begin() + 1, flag.data());
  arguments.push_back(nullptr);
  argc = static_cast<int>(arguments.size()) - 1;

  const std::string about =
      "Times what its name says; benchmarks/kernels/README.md says how to read it. Takes "
      "--benchmark_... of Google Benchmark as well, all but those for the number of iterations.";
  if (device::AsksForHelp(argc, arguments.data())) {
    std::fputs(device::HelpText(std::filesystem::path(argv[0]).filename().string(), about).c_str(),
               stdout);
    std::puts("\nThe flags of Google Benchmark:\n");
    std::fflush(stdout);
    benchmark::PrintDefaultHelp();
    return 0;
  }
  benchmark::Initialize(&argc, arguments.data());
  if (const absl::Status status = device::ParseFlags(argc, arguments.data(), about); !status.ok()) {
    absl::FPrintF(stderr, "%s\n", status.ToString());
    return 1;
  }
  if (const absl::Status status = CheckNumbers(); !status.ok()) {
    absl::FPrintF(stderr, "%s\n", status.ToString());
    return 1;
  }
  if (const std::string device = absl::GetFlag(FLAGS_device); device != "cpu" && device != "cuda") {
    absl::FPrintF(stderr, "--device is \"%s\", must be cpu or cuda\n", device);
    return 1;
  }
  benchmark::AddCustomContext("rounds", std::to_string(absl::GetFlag(FLAGS_rounds)));
  // Else a reader takes the library's warning, if there is one, for what is measured.
  benchmark::AddCustomContext(
      "library", "only prints; a DEBUG build of it, as Debian's is, changes no time here");

  if (absl::Status status = RegisterBenchmarks(); !status.ok()) {
    absl::FPrintF(stderr, "%s\n", status.ToString());
    return 1;
  }
  const size_t run = benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return run == 0 ? 1 : 0;
}

}  // namespace

int64_t Rounds() { return absl::GetFlag(FLAGS_rounds); }
int64_t Operations() { return absl::GetFlag(FLAGS_operations); }

device::Device BenchDevice() {
  return absl::GetFlag(FLAGS_device) == "cuda" ? device::Cuda() : device::Cpu();
}

}  // namespace brigade::benchmarks

int main(int argc, char** argv) { return brigade::benchmarks::Main(argc, argv); }
