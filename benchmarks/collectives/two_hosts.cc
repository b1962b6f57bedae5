// All-reduces by every algorithm between two hosts of two ranks, with a slow link between the
// hosts, beside what the cost model predicts from what MeasureTopology finds. The hosts are network
// namespaces of this machine; needs root.

#include <algorithm>
#include <functional>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "brigade/benchmarks/collectives/sizes.h"
#include "brigade/benchmarks/collectives/two_host_ranks.h"
#include "brigade/benchmarks/common/figures.h"
#include "brigade/benchmarks/common/interleave.h"
#include "brigade/benchmarks/common/run_main.h"
#include "brigade/collectives/communicator.h"
#include "brigade/collectives/measurement/measure.h"
#include "brigade/collectives/tuning/cost_model.h"
#include "brigade/collectives/tuning/select.h"
#include "brigade/device/status_macros.h"

ABSL_FLAG(int, rounds, 7, "each contestant's turns for a size; medians count");
ABSL_FLAG(std::string, json, "", "also write all rows to this file");

namespace brigade::benchmarks {
namespace {

using collectives::Algorithm;
using collectives::CollectiveKind;
using collectives::Communicator;
using collectives::ReduceOptions;
using collectives::Topology;

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
  explicit Benchmark(const HostRank& self) : self_(self) {}

  absl::Status Run();

 private:
  absl::StatusOr<double> Turn(const Contestant& contestant, int64_t count, int calls);
  absl::Status MeasureSize(const std::vector<Contestant>& contestants, const Topology& topology,
                           int64_t bytes);

  const HostRank& self_;
  std::vector<float> input_, output_;
  std::vector<Row> rows_;
};

absl::StatusOr<double> Benchmark::Turn(const Contestant& contestant, int64_t count, int calls) {
  std::fill_n(output_.begin(), count, 0.0f);
  BRIGADE_ASSIGN_OR_RETURN(const double seconds, self_.SecondsOf(calls, [&] {
    return contestant.run(input_.data(), output_.data(), count);
  }));
  const bool right = std::all_of(output_.begin(), output_.begin() + count,
                                 [](float sum) { return sum == kRanks; });
  if (!right) return absl::DataLossError(absl::StrCat("wrong sums by ", contestant.name));
  return seconds;
}

absl::Status Benchmark::MeasureSize(const std::vector<Contestant>& contestants,
                                    const Topology& topology, int64_t bytes) {
  const int64_t count = bytes / static_cast<int64_t>(sizeof(float));
  std::vector<int> calls;
  for (const Contestant& contestant : contestants) {
    BRIGADE_ASSIGN_OR_RETURN(calls.emplace_back(), self_.CallsOfTurn([&] {
      return contestant.run(input_.data(), output_.data(), count);
    }));
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

void Print(const Row& row) {
  std::cout << absl::StrFormat("%9d  %-18s %10.1f %10.1f %9.2f %14.2f %8.2f%s\n", row.bytes,
                               row.name, row.seconds * 1e6, row.predicted * 1e6,
                               row.seconds / row.predicted, row.of_interleaved, row.of_best,
                               row.chosen ? "  *" : "");
}

absl::Status Benchmark::Run() {
  BRIGADE_ASSIGN_OR_RETURN(auto topology,
                           MeasureTopology(self_.world, self_.host, self_.context, self_.stream));
  const int place = self_.world.rank() % (kRanks / kHosts);
  BRIGADE_ASSIGN_OR_RETURN(auto dealt, self_.world.Split(0, place * kHosts + self_.host));
  BRIGADE_RETURN_IF_ERROR(self_.world.SetTopology(topology));

  std::vector<Contestant> contestants;
  const auto add = [&](std::string name, std::optional<Algorithm> algorithm, Communicator& group) {
    const ReduceOptions options = PerHop(algorithm.value_or(Algorithm::kRing));
    contestants.push_back(
        {std::move(name), algorithm,
         [&group, options, this](const float* input, float* output, int64_t count) {
           return group.AllReduce(input, output, count, precision::DType::kFloat32, options,
                                  self_.stream);
         }});
  };
  for (const Algorithm algorithm : collectives::kModelledAlgorithms) {
    add(std::string(Name(algorithm)), algorithm, self_.world);
  }
  add("interleaved_ring", std::nullopt, *dealt);

  const bool prints = self_.prints();
  if (prints) {
    std::cout << DescribeTwoHosts("all_reduce of fp32", topology)
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

}  // namespace
}  // namespace brigade::benchmarks

int main(int argc, char** argv) {
  using namespace brigade::benchmarks;
  NcclTestsArguments arguments(argc, argv);
  SetDefaultSizes(1 << 10, 512 << 10, 2);
  return RunMain(arguments.argc(), arguments.argv(), "all-reduces between two hosts", [] {
    return RunOnTwoHosts([](const HostRank& self) { return Benchmark(self).Run(); });
  });
}
