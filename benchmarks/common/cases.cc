#include "brigade/benchmarks/common/cases.h"

#include <cstdio>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "brigade/benchmarks/common/main.h"
#include "brigade/device/status_macros.h"

namespace brigade::benchmarks {
namespace {

constexpr int64_t kKi = 1024;
constexpr int64_t kMi = 1024 * kKi;
constexpr int64_t kSmallest = 4 * kKi;
constexpr int64_t kLargest = 256 * kMi;
constexpr double kGiB = 1024.0 * kMi;

// Left to the rest of the system.
constexpr int64_t kReserveBytes = 512 * kMi;
// And to the copies that are the ceiling on GPUs (report.cc).
constexpr int64_t kGpuReserveBytes = 3 * kKi * kMi;

void RegisterCase(const std::string& name, const Case& what, const MeasureCase& measure) {
  benchmark::RegisterBenchmark(name.c_str(),
                               [what, measure](benchmark::State& state) {
                                 auto bench = Bench::Create(what.device, what.threads);
                                 absl::Status status = bench.status();
                                 if (bench.ok()) status = measure(what, **bench, state);
                                 if (!status.ok()) state.SkipWithError(status.ToString().c_str());
                               })
      ->UseManualTime()
      ->Unit(what.elements < kMi ? benchmark::kMicrosecond : benchmark::kMillisecond);
}

absl::StatusOr<std::vector<Case>> CpuCases() {
  BRIGADE_ASSIGN_OR_RETURN(auto all_threads, AllThreads());
  std::vector<int> threads = {1};
  if (all_threads > 1) threads.push_back(all_threads);
  std::vector<Case> cases;
  const auto add = [&](int64_t elements, int64_t tensors) {
    for (const int count : threads) cases.push_back({elements, tensors, device::Cpu(), count});
  };
  for (int64_t elements = kSmallest; elements <= kLargest; elements *= 4) add(elements, 1);
  add(256 * kKi, 100);
  add(64 * kMi, 10000);
  return cases;
}

absl::StatusOr<std::vector<Case>> GpuCases() {
  // A GPU that cannot be used ends it here, with the reason.
  if (auto bench = Bench::Create(device::Cuda(), 1); !bench.ok()) return bench.status();
  // What the emulator runs; a GPU shows what a launch takes.
  std::vector<Case> cases = {{10'000, 1, device::Cuda()}};
  for (const int64_t elements : {1'000'000, 100'000'000, 1'000'000'000}) {
    cases.push_back({elements, 1, device::Cuda()});
    cases.push_back({elements, 1000, device::Cuda()});
  }
  return cases;
}

}  // namespace

TensorList Case::list() const {
  if (tensors == 1) return TensorList::Flat(elements);
  return device.kind == device::DeviceKind::kCuda ? TensorList::Gpt(elements)
                                                  : TensorList::Mixed(tensors, elements);
}

absl::Status RegisterCases(const std::string& name, const CaseOptions& options,
                           MeasureCase measure) {
  const device::Device device = BenchDevice();
  const bool gpu = device.kind == device::DeviceKind::kCuda;
  BRIGADE_ASSIGN_OR_RETURN(auto cases, gpu ? GpuCases() : CpuCases());
  BRIGADE_ASSIGN_OR_RETURN(auto all_bytes, AvailableBytes(device));
  const int64_t available = all_bytes - (gpu ? kGpuReserveBytes : kReserveBytes);
  for (const Case& what : cases) {
    const std::string full_name = absl::StrCat(
        name, what.tensors == 1 ? "" : absl::StrCat("/tensors:", what.tensors),
        "/elements:", what.elements, gpu ? "/cuda" : absl::StrCat("/threads:", what.threads));
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
