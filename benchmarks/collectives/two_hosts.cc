// All-reduces by every algorithm between two hosts of two ranks, with a slow link between the
// hosts, beside what the cost model predicts from what MeasureTopology finds. The hosts are network
// namespaces of this machine; needs root.

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstdio>
#include <functional>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "brigade/benchmarks/collectives/sizes.h"
#include "brigade/benchmarks/common/figures.h"
#include "brigade/benchmarks/common/interleave.h"
#include "brigade/benchmarks/common/run_main.h"
#include "brigade/collectives/communicator.h"
#include "brigade/collectives/init.h"
#include "brigade/collectives/measurement/measure.h"
#include "brigade/collectives/tuning/cost_model.h"
#include "brigade/collectives/tuning/select.h"
#include "brigade/device/context.h"
#include "brigade/device/status_macros.h"
#include "brigade/tests/collectives/engines/gloo/processes.h"
#include "brigade/tests/collectives/engines/gloo/two_hosts.h"

// So slow that the link decides, not the cores that all four ranks share.
ABSL_FLAG(int, megabits, 20, "per second of the link");
ABSL_FLAG(int, packet_bytes, 296, "of an IP packet at most; one is free after a pause");
ABSL_FLAG(int, rounds, 7, "each contestant's turns for a size; medians count");
ABSL_FLAG(std::string, json, "", "also write all rows to this file");

namespace brigade::benchmarks {
namespace {

using collectives::Algorithm;
using collectives::CollectiveKind;
using collectives::Communicator;
using collectives::ReduceOptions;
using collectives::Topology;
using collectives::testing::TwoHosts;

constexpr int kRanks = 4, kHosts = 2;
constexpr double kTurnSeconds = 30e-3;

struct Contestant {
  std::string name;
  // None: a ring over ranks that are dealt to the hosts in turn.
  std::optional<Algorithm> algorithm;
  std::function<absl::Status(const float* input, float* output, int64_t count)> run;
};

ReduceOptions PerHop(collectives::Algorithm algorithm) {
  return {.reduction = collectives::Reduction::kRoundedPerHop, .algorithm = algorithm};
}

// Ranks are dealt to the hosts in turn: every hop of the ring leaves its host, by the port that the
// host's ranks share.
collectives::Phase InterleavedRing(const Topology& topology, int64_t bytes) {
  const int64_t steps = 2 * (kRanks - 1);
  const int ranks_of_port = (kRanks / kHosts + topology.between.ports - 1) / topology.between.ports;
  const double block = static_cast<double>(bytes) / kRanks;
  collectives::Phase phase;
  phase.between = {steps, static_cast<double>(ranks_of_port * steps) * block};
  phase.reduced_bytes = (kRanks - 1) * block;
  phase.call_s = topology.call_s;
  return phase;
}

struct Row {
  int64_t bytes;
  std::string name;
  double seconds;
  double predicted;       // 0: there is no model of it
  double of_interleaved;  // the interleaved ring's time over this one's; the median of rounds
  double of_best;         // this one's over that of the contestant with the least median
  bool chosen;            // by Select
};

// One rank's part.
class Benchmark {
 public:
  Benchmark(Communicator& world, device::Context& context, device::Stream& stream)
      : world_(world), context_(context), stream_(stream) {}

  absl::Status Run(int host);

 private:
  absl::StatusOr<double> Turn(const Contestant& contestant, int64_t count, int calls);
  absl::Status MeasureSize(const std::vector<Contestant>& contestants, const Topology& topology,
                           int64_t bytes);

  Communicator& world_;
  device::Context& context_;
  device::Stream& stream_;
  std::vector<float> input_, output_;
  std::vector<Row> rows_;
};

// Seconds of a call, of the slowest rank.
absl::StatusOr<double> Benchmark::Turn(const Contestant& contestant, int64_t count, int calls) {
  std::fill_n(output_.begin(), count, 0.0f);
  BRIGADE_RETURN_IF_ERROR(world_.AllGatherHost({0}).status());
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < calls; ++i) {
    BRIGADE_RETURN_IF_ERROR(contestant.run(input_.data(), output_.data(), count));
  }
  BRIGADE_RETURN_IF_ERROR(stream_.Synchronize());
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - begin;
  const bool right = std::all_of(output_.begin(), output_.begin() + count,
                                 [](float sum) { return sum == kRanks; });
  if (!right) return absl::DataLossError(absl::StrCat("wrong sums by ", contestant.name));
  BRIGADE_ASSIGN_OR_RETURN(auto all,
                           world_.AllGatherHost({std::bit_cast<int64_t>(elapsed.count())}));
  double slowest = 0;
  for (const int64_t each : all) slowest = std::max(slowest, std::bit_cast<double>(each));
  return slowest / calls;
}

absl::Status Benchmark::MeasureSize(const std::vector<Contestant>& contestants,
                                    const Topology& topology, int64_t bytes) {
  const int64_t count = bytes / static_cast<int64_t>(sizeof(float));
  BRIGADE_ASSIGN_OR_RETURN(const int iterations, IterationsOfFlags());
  std::vector<int> calls;
  for (const Contestant& contestant : contestants) {
    double seconds = 0;
    for (int i = 0; i < 2; ++i) {
      BRIGADE_ASSIGN_OR_RETURN(auto turn, Turn(contestant, count, 1));
      seconds = turn;
    }
    calls.push_back(iterations > 0 ? iterations
                                   : std::clamp(static_cast<int>(kTurnSeconds / seconds), 1, 200));
  }
  std::vector<Seconds> seconds(contestants.size());
  for (int round = 0; round < absl::GetFlag(FLAGS_rounds); ++round) {
    for (size_t turn = 0; turn < contestants.size(); ++turn) {
      const size_t i = round % 2 == 0 ? turn : contestants.size() - 1 - turn;
      BRIGADE_ASSIGN_OR_RETURN(auto each, Turn(contestants[i], count, calls[i]));
      seconds[i].push_back(each);
    }
  }
  BRIGADE_ASSIGN_OR_RETURN(auto choice,
                           collectives::Select(topology, CollectiveKind::kAllReduce, bytes));
  const auto slower = [](const Seconds& a, const Seconds& b) { return Median(a) < Median(b); };
  const Seconds& best = *std::min_element(seconds.begin(), seconds.end(), slower);
  for (size_t i = 0; i < contestants.size(); ++i) {
    const auto& [name, algorithm, run] = contestants[i];
    std::vector<collectives::Phase> phases = {InterleavedRing(topology, bytes)};
    if (algorithm.has_value()) {
      BRIGADE_ASSIGN_OR_RETURN(phases,
                               PhasesOf(topology, *algorithm, CollectiveKind::kAllReduce, bytes));
    }
    rows_.push_back({bytes, name, Median(seconds[i]), SecondsOf(topology, phases),
                     MedianRatio(seconds.back(), seconds[i]), MedianRatio(seconds[i], best),
                     algorithm == choice.algorithm});
  }
  return absl::OkStatus();
}

std::string Describe(const char* name, const collectives::Level& level) {
  return absl::StrFormat("# %s: a step %.1f us, ports %d of %.1f MB/s\n", name,
                         level.latency_s * 1e6, level.ports, level.bytes_per_s * 1e-6);
}

void Print(const Row& row) {
  std::cout << absl::StrFormat("%9d  %-18s %10.1f %10.1f %9.2f %14.2f %8.2f%s\n", row.bytes,
                               row.name, row.seconds * 1e6, row.predicted * 1e6,
                               row.seconds / row.predicted, row.of_interleaved, row.of_best,
                               row.chosen ? "  *" : "");
}

absl::Status Benchmark::Run(int host) {
  const auto begin = std::chrono::steady_clock::now();
  BRIGADE_ASSIGN_OR_RETURN(auto topology, MeasureTopology(world_, host, context_, stream_));
  const std::chrono::duration<double> measured = std::chrono::steady_clock::now() - begin;
  const int place = world_.rank() % (kRanks / kHosts);
  BRIGADE_ASSIGN_OR_RETURN(auto dealt, world_.Split(0, place * kHosts + host));
  BRIGADE_RETURN_IF_ERROR(world_.SetTopology(topology));

  std::vector<Contestant> contestants;
  const auto add = [&](std::string name, std::optional<Algorithm> algorithm, Communicator& group) {
    const ReduceOptions options = PerHop(algorithm.value_or(Algorithm::kRing));
    contestants.push_back(
        {std::move(name), algorithm,
         [&group, options, this](const float* input, float* output, int64_t count) {
           return group.AllReduce(input, output, count, precision::DType::kFloat32, options,
                                  stream_);
         }});
  };
  for (const Algorithm algorithm : collectives::kModelledAlgorithms) {
    add(std::string(Name(algorithm)), algorithm, world_);
  }
  add("interleaved_ring", std::nullopt, *dealt);

  const bool prints = world_.rank() == 0;
  if (prints) {
    std::cout << "# all_reduce of fp32, 2 hosts of 2 ranks, a link of "
              << absl::GetFlag(FLAGS_megabits) << " Mbit/s in packets of "
              << absl::GetFlag(FLAGS_packet_bytes) << " bytes\n"
              << Describe("inside ", topology.inside) << Describe("between", topology.between)
              << absl::StrFormat(
                     "# a call of all %.1f us, a queued message %.1f us, sums %.2f GB/s; "
                     "measured in %.3f s\n",
                     topology.call_s * 1e6, topology.message_s * 1e6,
                     topology.reduced_bytes_per_s * 1e-9, measured.count())
              << "#   bytes  algorithm                  us  predicted  of model  "
                 "of interleaved  of best  * chosen\n";
  }
  BRIGADE_ASSIGN_OR_RETURN(const std::vector<int64_t> sizes, SizesOfFlags());
  input_.assign(static_cast<size_t>(sizes.back()) / sizeof(float), 1.0f);
  output_ = input_;
  for (const int64_t bytes : sizes) {
    const size_t before = rows_.size();
    BRIGADE_RETURN_IF_ERROR(MeasureSize(contestants, topology, bytes));
    if (prints) std::for_each(rows_.begin() + static_cast<int64_t>(before), rows_.end(), Print);
    std::cout << std::flush;
  }
  if (!prints) return absl::OkStatus();
  std::vector<std::string> lines;
  for (const Row& row : rows_) {
    lines.push_back(
        absl::StrFormat(R"(  {"bytes": %d, "algorithm": "%s", "seconds": %.9g, "predicted": %.9g, )"
                        R"("of_interleaved": %.6g, "of_best": %.6g, "chosen": %s})",
                        row.bytes, row.name, row.seconds, row.predicted, row.of_interleaved,
                        row.of_best, row.chosen ? "true" : "false"));
  }
  return WriteRows(lines, absl::GetFlag(FLAGS_json));
}

absl::Status RunRank(const TwoHosts& hosts, int rank) {
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
  return Benchmark(*world, *context, *stream).Run(host);
}

absl::Status Main() {
  BRIGADE_RETURN_IF_ERROR(SizesOfFlags().status());
  BRIGADE_RETURN_IF_ERROR(IterationsOfFlags().status());
  TwoHosts hosts;
  const std::string obstacle =
      hosts.Create(absl::GetFlag(FLAGS_megabits), absl::GetFlag(FLAGS_packet_bytes));
  if (!obstacle.empty()) return absl::UnavailableError(absl::StrCat("no two hosts: ", obstacle));
  if (!hosts.slow()) return absl::UnavailableError("there is no `tc` that slows a link");
  const auto reports = collectives::testing::RunRanks(
      kRanks, [&](int rank, collectives::testing::Fault&) { return RunRank(hosts, rank); });
  for (const auto& report : reports) BRIGADE_RETURN_IF_ERROR(report.status);
  return absl::OkStatus();
}

}  // namespace
}  // namespace brigade::benchmarks

int main(int argc, char** argv) {
  using namespace brigade::benchmarks;
  NcclTestsArguments arguments(argc, argv);
  SetDefaultSizes(1 << 10, 512 << 10, 2);
  return RunMain(arguments.argc(), arguments.argv(), "all-reduces between two hosts", Main);
}
