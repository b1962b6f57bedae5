// What the NCCL engine adds to a call of NCCL, on the host: calls of a communicator beside calls of
// the bare table, of which neither does anything but return.
//
//   bazel run //benchmarks/collectives:nccl_overhead
//
// prints microseconds a call beside the bar, and exits with 1 if that is missed;
//
//   bazel run //benchmarks/collectives:nccl_overhead -- --smoke
//
// looks only whether it runs.

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "brigade/benchmarks/common/run_main.h"
#include "brigade/collectives/communicator.h"
#include "brigade/collectives/engines/nccl/nccl_engine.h"
#include "brigade/collectives/engines/threads/thread_group.h"

ABSL_FLAG(bool, smoke, false, "look only whether it runs");

namespace brigade::collectives {
namespace {

constexpr double kBar = 2.0;  // us a call
constexpr int kCallsPerBurst = 100;

// Takes every call at once, and forgets it.
NcclApi SilentApi() {
  static int comm;
  NcclApi api;
  api.get_version = [](int*) { return NcclResult::kSuccess; };
  api.get_error_string = [](NcclResult) { return ""; };
  api.get_last_error = [](NcclComm) { return ""; };
  api.get_unique_id = [](NcclUniqueId*) { return NcclResult::kSuccess; };
  api.comm_init_rank_config = [](NcclComm* made, int, NcclUniqueId, int, NcclConfig*) {
    *made = reinterpret_cast<NcclComm>(&comm);
    return NcclResult::kSuccess;
  };
  api.comm_get_async_error = [](NcclComm, NcclResult* error) {
    return *error = NcclResult::kSuccess;
  };
  api.comm_finalize = [](NcclComm) { return NcclResult::kSuccess; };
  api.comm_destroy = [](NcclComm) { return NcclResult::kSuccess; };
  api.comm_abort = [](NcclComm) { return NcclResult::kSuccess; };
  api.all_reduce = [](const void*, void*, size_t, NcclType, NcclOp, NcclComm, NcclStream) {
    return NcclResult::kSuccess;
  };
  api.reduce_scatter = api.all_reduce;
  api.all_gather = [](const void*, void*, size_t, NcclType, NcclComm, NcclStream) {
    return NcclResult::kSuccess;
  };
  api.is_capturing = [](NcclStream) { return false; };
  api.supports = [](device::DeviceKind kind) { return kind == device::DeviceKind::kCpu; };
  api.launch = [](device::Stream& stream, const device::Operation&,
                  absl::FunctionRef<absl::Status(NcclStream stream)> call) {
    return call(reinterpret_cast<NcclStream>(&stream));
  };
  return api;
}

// Median over bursts of the time of a call.
double MicrosecondsPerCall(int bursts, device::Stream& stream, absl::FunctionRef<bool()> call) {
  std::vector<double> times;
  for (int burst = 0; burst < bursts; ++burst) {
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < kCallsPerBurst; ++i) {
      if (!call()) return -1;
    }
    const std::chrono::duration<double, std::micro> taken =
        std::chrono::steady_clock::now() - begin;
    times.push_back(taken.count() / kCallsPerBurst);
    if (!stream.Synchronize().ok()) return -1;
  }
  std::nth_element(times.begin(), times.begin() + bursts / 2, times.end());
  return times[static_cast<size_t>(bursts / 2)];
}

// Prints rank 0's rows. Whether they meet the bar.
bool RunRank(int rank, int ranks, bool compare, ThreadGroup& group, int bursts) {
  device::ContextOptions context_options;
  context_options.compute_threads = 1;
  context_options.checks = false;
  auto context = device::Context::Create(context_options).value();
  auto stream = context->CreateStream("compute").value();
  NcclOptions options;
  options.api = SilentApi();
  options.compare_calls = compare;
  auto engine = CreateNcclEngine(options, group.Join(rank, *context).value(), *context).value();
  auto communicator = Communicator::Create(std::move(engine), *context).value();
  constexpr int64_t kCount = 1 << 20;
  std::vector<float> small(kCount), large(static_cast<size_t>(ranks) * kCount);
  const NcclApi& api = options.api;
  NcclComm comm = nullptr;
  api.comm_init_rank_config(&comm, ranks, {}, rank, nullptr);
  const auto raw = reinterpret_cast<NcclStream>(stream.get());
  const auto none = NcclResult::kSuccess;
  const ReduceOptions sum = {.reduction = Reduction::kRoundedPerHop,
                             .algorithm = Algorithm::kNative};
  struct Row {
    const char* name;
    std::function<bool()> bare, wrapped;
  };
  const std::vector<Row> rows = {
      {"all_reduce",
       [&] {
         return api.all_reduce(small.data(), small.data(), kCount, NcclType::kFloat32, NcclOp::kSum,
                               comm, raw) == none;
       },
       [&] { return communicator->AllReduce(small, absl::MakeSpan(small), sum, *stream).ok(); }},
      {"reduce_scatter",
       [&] {
         return api.reduce_scatter(large.data(), small.data(), kCount, NcclType::kFloat32,
                                   NcclOp::kSum, comm, raw) == none;
       },
       [&] {
         return communicator->ReduceScatter(large, absl::MakeSpan(small), sum, *stream).ok();
       }},
      {"all_gather",
       [&] {
         return api.all_gather(small.data(), large.data(), kCount, NcclType::kFloat32, comm, raw) ==
                none;
       },
       [&] { return communicator->AllGather(small, absl::MakeSpan(large), {}, *stream).ok(); }},
  };
  bool good = true;
  for (const Row& row : rows) {
    const double bare = MicrosecondsPerCall(bursts, *stream, row.bare);
    const double wrapped = MicrosecondsPerCall(bursts, *stream, row.wrapped);
    const bool met = bare >= 0 && wrapped >= 0 && wrapped - bare <= kBar;
    good = good && met;
    if (rank != 0) continue;
    std::printf("%-16s %5d %9s %9.3f %9.3f %9.3f %5.1f  %s\n", row.name, ranks,
                compare ? "compared" : "-", bare, wrapped, wrapped - bare, kBar,
                met ? "PASS" : "FAIL");
  }
  return rank != 0 || good;
}

bool RunRanks(int ranks, bool compare, int bursts) {
  auto group = ThreadGroup::Create({ranks}).value();
  bool good = false;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      const bool mine = RunRank(rank, ranks, compare, *group, bursts);
      if (rank == 0) good = mine;
    });
  }
  for (std::thread& thread : threads) thread.join();
  return good;
}

absl::Status Main() {
  const bool smoke = absl::GetFlag(FLAGS_smoke);
  const int bursts = smoke ? 3 : 300;
  std::printf("%-16s %5s %9s %9s %9s %9s %5s\n", "call", "ranks", "", "bare us", "engine us",
              "added us", "bar");
  bool good = RunRanks(1, false, bursts);
  good &= RunRanks(2, false, bursts);
  good &= RunRanks(2, true, bursts);
  return good || smoke ? absl::OkStatus() : absl::AbortedError("a bar is missed");
}

}  // namespace
}  // namespace brigade::collectives

int main(int argc, char** argv) {
  return brigade::benchmarks::RunMain(argc, argv, "what the NCCL engine adds to a call on the host",
                                      brigade::collectives::Main);
}
