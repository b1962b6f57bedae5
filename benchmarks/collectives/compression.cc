// Collectives of fp16 arrays as they are and as codes, between two hosts of two ranks with a slow
// link between them: how long each takes, beside what SelectCodec's model says and what the codecs
// take alone. The hosts are network namespaces of this machine; needs root.

#include <algorithm>
#include <functional>
#include <iostream>
#include <memory>
#include <string>
#include <utility>
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
#include "brigade/collectives/compressed/node_groups.h"
#include "brigade/collectives/compressed/one_bit_all_reduce.h"
#include "brigade/collectives/compressed/quantized_all_gather.h"
#include "brigade/collectives/compressed/quantized_reduce_scatter.h"
#include "brigade/collectives/measurement/measure.h"
#include "brigade/collectives/tuning/codec_cost.h"
#include "brigade/device/status_macros.h"
#include "brigade/precision/dtype.h"
#include "brigade/precision/float16.h"

ABSL_FLAG(int, rounds, 5, "each contestant's turns for a size; medians count");
ABSL_FLAG(std::string, json, "", "also write all rows to this file");

namespace brigade::benchmarks {
namespace {

using collectives::Codec;
using collectives::CollectiveKind;
using collectives::Communicator;
using precision::Half;

constexpr auto kType = precision::DType::kFloat16;
constexpr CollectiveKind kOperations[] = {
    CollectiveKind::kAllReduce, CollectiveKind::kReduceScatter, CollectiveKind::kAllGather};
constexpr std::pair<Codec, kernels::QuantFormat> kFormats[] = {
    {Codec::kInt8, kernels::QuantFormat::kInt8}, {Codec::kInt4, kernels::QuantFormat::kInt4}};

struct Contestant {
  CollectiveKind operation;
  Codec codec;
  // Of an array of so many elements of ones, a multiple of kRanks: what all its results must be.
  float result;
  std::function<absl::Status(int64_t elements)> run;
  // The codecs of that without a wire; null without codecs.
  std::function<absl::Status(int64_t elements)> alone = nullptr;
};

struct Row {
  int64_t bytes;
  const Contestant* contestant;
  double seconds, predicted, alone;
  double times_as_fast;  // as the fp16 wire; the median of rounds
  double of_best;        // its time over the best of the operation
  bool chosen;           // by SelectCodec
};

// What collectives and codecs read and write, and their objects over one communicator.
struct Arrays {
  // [elements] each.
  std::vector<Half> input, output;
  std::vector<float> local_errors, sum_errors;

  explicit Arrays(int64_t elements)
      : input(static_cast<size_t>(elements), Half(1.0f)),
        output(input.size()),
        local_errors(input.size()),
        sum_errors(input.size()) {}
};

class Compressed {
 public:
  static absl::StatusOr<std::unique_ptr<Compressed>> Create(
      Communicator& group, const collectives::NodeCommunicators& nodes, const HostRank& self,
      Arrays& arrays) {
    auto made = std::unique_ptr<Compressed>(new Compressed(self, arrays));
    const auto elements = static_cast<int64_t>(arrays.input.size());
    made->ranks_ = group.size();
    BRIGADE_ASSIGN_OR_RETURN(
        made->one_bit_, collectives::OneBitAllReduce::Create(group, self.context, elements, nodes));
    for (size_t f = 0; f < std::size(kFormats); ++f) {
      const int64_t part = elements / group.size();
      BRIGADE_ASSIGN_OR_RETURN(
          made->gathers_[f],
          collectives::QuantizedAllGather::Create(group, self.context, part, kFormats[f].second));
      BRIGADE_ASSIGN_OR_RETURN(made->scatters_[f],
                               collectives::QuantizedReduceScatter::Create(
                                   group, nodes, self.context, part, kFormats[f].second));
    }
    return made;
  }

  absl::Status OneBit(int64_t elements) {
    return one_bit_->AllReduce(arrays_.input.data(), arrays_.output.data(), elements, kType,
                               {arrays_.local_errors.data(), arrays_.sum_errors.data()},
                               /*state=*/nullptr, {}, self_.stream);
  }
  absl::Status Scatter(size_t format, int64_t elements) {
    return scatters_[format]->ReduceScatter(arrays_.input.data(), arrays_.output.data(),
                                            elements / ranks_, kType, /*factor=*/1, self_.stream);
  }
  absl::Status Gather(size_t format, int64_t elements) {
    return gathers_[format]->AllGather(arrays_.input.data(), arrays_.output.data(),
                                       elements / ranks_, kType, {}, self_.stream);
  }

 private:
  Compressed(const HostRank& self, Arrays& arrays) : self_(self), arrays_(arrays) {}

  const HostRank& self_;
  Arrays& arrays_;
  int ranks_ = 0;
  std::unique_ptr<collectives::OneBitAllReduce> one_bit_;
  std::unique_ptr<collectives::QuantizedAllGather> gathers_[std::size(kFormats)];
  std::unique_ptr<collectives::QuantizedReduceScatter> scatters_[std::size(kFormats)];
};

std::vector<Contestant> ListContestants(const HostRank& self, Arrays& arrays, Compressed& wire,
                                        Compressed& alone) {
  const collectives::ReduceOptions per_hop = {.reduction = collectives::Reduction::kRoundedPerHop};
  std::vector<Contestant> list = {
      {CollectiveKind::kAllReduce, Codec::kNone, kRanks,
       [&self, &arrays, per_hop](int64_t elements) {
         return self.world.AllReduce(arrays.input.data(), arrays.output.data(), elements, kType,
                                     per_hop, self.stream);
       }},
      {CollectiveKind::kAllReduce, Codec::kOneBit, 1,
       [&wire](int64_t elements) { return wire.OneBit(elements); },
       [&alone](int64_t elements) { return alone.OneBit(elements); }},
      {CollectiveKind::kReduceScatter, Codec::kNone, kRanks,
       [&self, &arrays, per_hop](int64_t elements) {
         return self.world.ReduceScatter(arrays.input.data(), arrays.output.data(),
                                         elements / kRanks, kType, per_hop, self.stream);
       }},
      {CollectiveKind::kAllGather, Codec::kNone, 1, [&self, &arrays](int64_t elements) {
         return self.world.AllGather(arrays.input.data(), arrays.output.data(), elements / kRanks,
                                     kType, {}, self.stream);
       }}};
  for (size_t f = 0; f < std::size(kFormats); ++f) {
    list.push_back({CollectiveKind::kReduceScatter, kFormats[f].first, kRanks,
                    [&wire, f](int64_t elements) { return wire.Scatter(f, elements); },
                    [&alone, f](int64_t elements) { return alone.Scatter(f, elements); }});
    list.push_back({CollectiveKind::kAllGather, kFormats[f].first, 1,
                    [&wire, f](int64_t elements) { return wire.Gather(f, elements); },
                    [&alone, f](int64_t elements) { return alone.Gather(f, elements); }});
  }
  return list;
}

// One rank's part.
class Benchmark {
 public:
  explicit Benchmark(const HostRank& self) : self_(self) {}

  absl::Status Run();

 private:
  absl::StatusOr<double> Turn(const Contestant& contestant, int64_t elements, int calls);
  absl::Status Measure(CollectiveKind operation, int64_t bytes);

  const HostRank& self_;
  collectives::Topology topology_;
  std::unique_ptr<Arrays> arrays_;
  std::vector<Contestant> contestants_;
  std::vector<Row> rows_;
};

absl::StatusOr<double> Benchmark::Turn(const Contestant& contestant, int64_t elements, int calls) {
  const bool is_part = contestant.operation == CollectiveKind::kReduceScatter;
  const auto begin = arrays_->output.begin(),
             end = begin + (is_part ? elements / kRanks : elements);
  std::fill(begin, end, Half(0.0f));
  BRIGADE_ASSIGN_OR_RETURN(const double seconds,
                           self_.SecondsOf(calls, [&] { return contestant.run(elements); }));
  const bool right = std::all_of(
      begin, end, [&](Half each) { return static_cast<float>(each) == contestant.result; });
  if (right) return seconds;
  return absl::DataLossError(
      absl::StrCat("wrong results of ", Name(contestant.operation), ", ", Name(contestant.codec)));
}

absl::Status Benchmark::Measure(CollectiveKind operation, int64_t bytes) {
  const int64_t elements = bytes / static_cast<int64_t>(sizeof(Half)) / kRanks * kRanks;
  std::vector<const Contestant*> rivals;
  std::vector<int> calls;
  for (const Contestant& contestant : contestants_) {
    if (contestant.operation != operation) continue;
    rivals.push_back(&contestant);
    BRIGADE_ASSIGN_OR_RETURN(calls.emplace_back(),
                             self_.CallsOfTurn([&] { return contestant.run(elements); }));
  }
  std::vector<Seconds> seconds(rivals.size()), alone(rivals.size());
  for (int round = 0; round < absl::GetFlag(FLAGS_rounds); ++round) {
    for (size_t turn = 0; turn < rivals.size(); ++turn) {
      const size_t i = round % 2 == 0 ? turn : rivals.size() - 1 - turn;
      BRIGADE_ASSIGN_OR_RETURN(seconds[i].emplace_back(), Turn(*rivals[i], elements, calls[i]));
      if (rivals[i]->alone == nullptr) continue;
      BRIGADE_ASSIGN_OR_RETURN(alone[i].emplace_back(), self_.SecondsOf(calls[i], [&] {
        return rivals[i]->alone(elements);
      }));
    }
  }
  BRIGADE_ASSIGN_OR_RETURN(const auto choice,
                           collectives::SelectCodec(topology_, operation, elements, kType));
  const auto faster = [](const Seconds& a, const Seconds& b) { return Median(a) < Median(b); };
  const Seconds& best = *std::min_element(seconds.begin(), seconds.end(), faster);
  for (size_t i = 0; i < rivals.size(); ++i) {
    BRIGADE_ASSIGN_OR_RETURN(const auto cost, collectives::CodecCostOf(topology_, rivals[i]->codec,
                                                                       operation, elements, kType));
    rows_.push_back({bytes, rivals[i], Median(seconds[i]), SecondsOf(topology_, cost),
                     alone[i].empty() ? 0 : Median(alone[i]), MedianRatio(seconds[0], seconds[i]),
                     MedianRatio(seconds[i], best), rivals[i]->codec == choice.codec});
  }
  return absl::OkStatus();
}

void Print(const Row& row) {
  std::cout << absl::StrFormat("%9d  %-14s %-8s %10.1f %10.1f %9.2f %12.1f %13.2f %8.2f%s\n",
                               row.bytes, Name(row.contestant->operation),
                               Name(row.contestant->codec), row.seconds * 1e6, row.predicted * 1e6,
                               row.seconds / row.predicted, row.alone * 1e6, row.times_as_fast,
                               row.of_best, row.chosen ? "  *" : "");
}

absl::Status Benchmark::Run() {
  BRIGADE_ASSIGN_OR_RETURN(topology_,
                           MeasureTopology(self_.world, self_.host, self_.context, self_.stream));
  BRIGADE_RETURN_IF_ERROR(self_.world.SetTopology(topology_));
  BRIGADE_ASSIGN_OR_RETURN(const auto nodes, collectives::NodeGroups::Create(self_.world));
  BRIGADE_ASSIGN_OR_RETURN(const auto single, self_.world.Split(self_.world.rank(), 0));
  BRIGADE_ASSIGN_OR_RETURN(const std::vector<int64_t> sizes, SizesOfFlags());
  arrays_ = std::make_unique<Arrays>(sizes.back() / static_cast<int64_t>(sizeof(Half)));
  BRIGADE_ASSIGN_OR_RETURN(const auto wire,
                           Compressed::Create(self_.world, nodes.communicators(), self_, *arrays_));
  BRIGADE_ASSIGN_OR_RETURN(const auto alone, Compressed::Create(*single, {}, self_, *arrays_));
  contestants_ = ListContestants(self_, *arrays_, *wire, *alone);

  const bool prints = self_.prints();
  if (prints) {
    std::cout << DescribeTwoHosts("collectives of fp16", topology_)
              << "#   bytes  operation      codec            us  predicted  of model  "
                 "codecs alone  times as fast  of best  * chosen\n";
  }
  for (const CollectiveKind operation : kOperations) {
    for (const int64_t bytes : sizes) {
      const auto before = static_cast<int64_t>(rows_.size());
      BRIGADE_RETURN_IF_ERROR(Measure(operation, bytes));
      if (prints) std::for_each(rows_.begin() + before, rows_.end(), Print);
      std::cout << std::flush;
    }
  }
  if (!prints) return absl::OkStatus();
  std::vector<std::string> lines;
  for (const Row& row : rows_) {
    lines.push_back(absl::StrFormat(
        R"(  {"bytes": %d, "operation": "%s", "codec": "%s", "seconds": %.9g, "predicted": %.9g, )"
        R"("alone": %.9g, "times_as_fast": %.6g, "of_best": %.6g, "chosen": %s})",
        row.bytes, Name(row.contestant->operation), Name(row.contestant->codec), row.seconds,
        row.predicted, row.alone, row.times_as_fast, row.of_best, row.chosen ? "true" : "false"));
  }
  return WriteRows(lines, absl::GetFlag(FLAGS_json));
}

}  // namespace
}  // namespace brigade::benchmarks

int main(int argc, char** argv) {
  using namespace brigade::benchmarks;
  NcclTestsArguments arguments(argc, argv);
  SetDefaultSizes(64 << 10, 1 << 20, 2);
  return RunMain(arguments.argc(), arguments.argv(), "collectives of codes between two hosts", [] {
    return RunOnTwoHosts([](const HostRank& self) { return Benchmark(self).Run(); });
  });
}
