#include "brigade/benchmarks/common/cases.h"

#include <cstdio>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace brigade::benchmarks {
namespace {

constexpr int64_t kKi = 1024;
constexpr int64_t kMi = 1024 * kKi;
constexpr int64_t kSmallest = 4 * kKi;
constexpr int64_t kLargest = 256 * kMi;
constexpr double kGiB = 1024.0 * kMi;

// Left to the rest of the system.
constexpr int64_t kReserveBytes = 512 * kMi;

void RegisterCase(const std::string& name, const Case& what, const MeasureCase& measure) {
  benchmark::RegisterBenchmark(name.c_str(),
                               [what, measure](benchmark::State& state) {
                                 auto bench = Bench::Create(what.threads);
                                 absl::Status status = bench.status();
                                 if (bench.ok()) status = measure(what, **bench, state);
                                 if (!status.ok()) state.SkipWithError(status.ToString().c_str());
                               })
      ->UseManualTime()
      ->Unit(what.elements < kMi ? benchmark::kMicrosecond : benchmark::kMillisecond);
}

}  // namespace

absl::Status RegisterCases(const std::string& name, const CaseOptions& options,
                           MeasureCase measure) {
  absl::StatusOr<int> all_threads = AllThreads();
  if (!all_threads.ok()) return all_threads.status();
  std::vector<int> threads = {1};
  if (*all_threads > 1) threads.push_back(*all_threads);

  std::vector<Case> cases;
  for (int64_t elements = kSmallest; elements <= kLargest; elements *= 4) {
    for (const int count : threads) cases.push_back({elements, 1, count});
  }
  if (options.lists) {
    for (const int count : threads) cases.push_back({256 * kKi, 100, count});
    for (const int count : threads) cases.push_back({64 * kMi, 10000, count});
  }

  const int64_t available = AvailableBytes() - kReserveBytes;
  for (const Case& what : cases) {
    const std::string full_name =
        absl::StrCat(name, what.tensors == 1 ? "" : absl::StrCat("/tensors:", what.tensors),
                     "/elements:", what.elements, "/threads:", what.threads);
    const int64_t needed = what.list().extent() * options.bytes_per_element;
    if (needed > available) {
      absl::FPrintF(stderr, "%s skipped: needs %.1f GiB of memory, %.1f GiB are available\n",
                    full_name, needed / kGiB, available / kGiB);
      continue;
    }
    RegisterCase(full_name, what, measure);
  }
  return absl::OkStatus();
}

}  // namespace brigade::benchmarks
