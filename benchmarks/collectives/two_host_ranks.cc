#include "brigade/benchmarks/collectives/two_host_ranks.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstdint>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "brigade/benchmarks/collectives/sizes.h"
#include "brigade/collectives/init.h"
#include "brigade/device/status_macros.h"
#include "brigade/tests/collectives/engines/gloo/processes.h"
#include "brigade/tests/collectives/engines/gloo/two_hosts.h"

// So slow that the link decides, not the cores that all four ranks share.
ABSL_FLAG(int, megabits, 20, "per second of the link");
ABSL_FLAG(int, packet_bytes, 296, "of an IP packet at most; one is free after a pause");

namespace brigade::benchmarks {
namespace {

using collectives::testing::TwoHosts;

constexpr double kTurnSeconds = 30e-3;

std::string Describe(const char* name, const collectives::Level& level) {
  return absl::StrFormat("# %s: a step %.1f us, ports %d of %.1f MB/s\n", name,
                         level.latency_s * 1e6, level.ports, level.bytes_per_s * 1e-6);
}

absl::Status RunRank(const TwoHosts& hosts, int rank,
                     const std::function<absl::Status(const HostRank&)>& role) {
  const int host = rank / (kRanks / kHosts);
  hosts.Enter(host);
  device::ContextOptions options;
  options.compute_threads = 1;
  options.checks = false;
  BRIGADE_ASSIGN_OR_RETURN(auto context, device::Context::Create(options));
  BRIGADE_ASSIGN_OR_RETURN(auto stream, context->CreateStream("collectives"));
  collectives::LaunchInfo launch_info;
  launch_info.rank = rank;
  launch_info.size = kRanks;
  launch_info.master_addr = TwoHosts::kAddress[0];
  collectives::InitOptions world_options;
  world_options.interface = TwoHosts::kDevice[host];
  BRIGADE_ASSIGN_OR_RETURN(auto world, collectives::Init(launch_info, world_options, *context));
  return role({host, *world, *context, *stream});
}

}  // namespace

absl::StatusOr<double> HostRank::SecondsOf(int calls,
                                           const std::function<absl::Status()>& call) const {
  BRIGADE_RETURN_IF_ERROR(world.AllGatherHost({0}).status());
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < calls; ++i) BRIGADE_RETURN_IF_ERROR(call());
  BRIGADE_RETURN_IF_ERROR(stream.Synchronize());
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - begin;
  BRIGADE_ASSIGN_OR_RETURN(auto all,
                           world.AllGatherHost({std::bit_cast<int64_t>(elapsed.count())}));
  double slowest = 0;
  for (const int64_t each : all) slowest = std::max(slowest, std::bit_cast<double>(each));
  return slowest / calls;
}

absl::StatusOr<int> HostRank::CallsOfTurn(const std::function<absl::Status()>& call) const {
  BRIGADE_ASSIGN_OR_RETURN(const int iterations, IterationsOfFlags());
  BRIGADE_RETURN_IF_ERROR(SecondsOf(1, call).status());
  BRIGADE_ASSIGN_OR_RETURN(const double seconds, SecondsOf(1, call));
  if (iterations > 0) return iterations;
  return std::clamp(static_cast<int>(kTurnSeconds / seconds), 1, 200);
}

absl::Status RunOnTwoHosts(const std::function<absl::Status(const HostRank&)>& role) {
  BRIGADE_RETURN_IF_ERROR(SizesOfFlags().status());
  BRIGADE_RETURN_IF_ERROR(IterationsOfFlags().status());
  TwoHosts hosts;
  const std::string obstacle =
      hosts.Create(absl::GetFlag(FLAGS_megabits), absl::GetFlag(FLAGS_packet_bytes));
  if (!obstacle.empty()) return absl::UnavailableError(absl::StrCat("no two hosts: ", obstacle));
  if (!hosts.slow()) return absl::UnavailableError("there is no `tc` that slows a link");
  const auto reports = collectives::testing::RunRanks(
      kRanks, [&](int rank, collectives::testing::Fault&) { return RunRank(hosts, rank, role); });
  for (const auto& report : reports) BRIGADE_RETURN_IF_ERROR(report.status);
  return absl::OkStatus();
}

std::string DescribeTwoHosts(const std::string& what, const collectives::Topology& topology) {
  return absl::StrCat(
      "# ", what, ", 2 hosts of 2 ranks, a link of ", absl::GetFlag(FLAGS_megabits),
      " Mbit/s in packets of ", absl::GetFlag(FLAGS_packet_bytes), " bytes\n",
      Describe("inside ", topology.inside), Describe("between", topology.between),
      absl::StrFormat("# a call of all %.1f us, a queued message %.1f us, sums %.2f GB/s, codes "
                      "%.2f GB/s\n",
                      topology.call_s * 1e6, topology.message_s * 1e6,
                      topology.reduced_bytes_per_s * 1e-9, topology.memory_bytes_per_s * 1e-9));
}

}  // namespace brigade::benchmarks
