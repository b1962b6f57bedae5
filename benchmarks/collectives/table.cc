// The table of nccl-tests for collectives between ranks of this host.
// benchmarks/collectives/README.md says how to read it. BRIGADE_BENCHMARK_KIND is the operation.

#include <algorithm>
#include <cstdio>
#include <iostream>
#include <string>
#include <thread>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "brigade/benchmarks/collectives/arrays.h"
#include "brigade/benchmarks/collectives/contestants.h"
#include "brigade/benchmarks/collectives/sizes.h"
#include "brigade/benchmarks/common/figures.h"
#include "brigade/benchmarks/common/interleave.h"
#include "brigade/benchmarks/common/run_main.h"
#include "brigade/device/context.h"
#include "brigade/device/status_macros.h"
#include "brigade/kernels/nontemporal_store.h"
#include "brigade/precision/dtype_names.h"

ABSL_FLAG(int, ranks, 2, "how many ranks");
ABSL_FLAG(std::vector<std::string>, contestants,
          (std::vector<std::string>{"threads/direct", "threads/ring", "threads/fp16_wire",
                                    "gloo/ring", "gloo/fp16_wire", "gloo::allreduce",
                                    "MPI_Allreduce"}),
          "who takes part: "
          "<threads|gloo>/"
          "<auto|direct|ring|bidirectional_ring|halving_doubling|hierarchical|double_tree|"
          "parameter_server|fp16_wire>, "
          "Gloo's own gloo::allreduce, MPI_Allreduce");
ABSL_FLAG(int, rounds, 9, "each contestant's turns for a size; the median counts");
ABSL_FLAG(brigade::precision::DType, dtype, brigade::precision::DType::kFloat32,
          "fp32, fp16 or bf16, of those who can");
ABSL_FLAG(std::string, json, "", "also write all rows to this file");

namespace brigade::benchmarks {
namespace {

using collectives::CollectiveKind;

constexpr CollectiveKind kKind = CollectiveKind::BRIGADE_BENCHMARK_KIND;

// As long as a contestant's calls in a row, so that starting the threads does not count.
constexpr double kTurnSeconds = 20e-3;

// Copies with as many threads as there are cores, `times` in a row: what the memory gives, in bytes
// read and written per second.
absl::StatusOr<double> MeasureCopy(Arrays& arrays, int times) {
  const int threads = static_cast<int>(std::thread::hardware_concurrency());
  const int64_t share = arrays.bytes() / threads;
  BRIGADE_ASSIGN_OR_RETURN(auto seconds, TimeOnRanks(threads, [&](int thread) {
                             for (int i = 0; i < times; ++i) {
                               kernels::NontemporalStore(arrays.output(0) + thread * share,
                                                         arrays.input(0) + thread * share, share);
                               kernels::NontemporalStoreFence();
                             }
                             return absl::OkStatus();
                           }));
  return static_cast<double>(2 * share * threads * times) / seconds;
}

// How many calls in a row take so long, if one takes `seconds`.
int TimesInTurn(double seconds) {
  return static_cast<int>(std::clamp(kTurnSeconds / seconds, 1.0, 5000.0));
}

struct Row {
  std::string name;
  int64_t bytes = 0;
  double seconds[2] = {};  // out of place, in place
  int64_t wrong[2] = {};
  double copy = 0;  // bytes/s of copies in the same rounds
  // The time that copies take for traffic(), over the time taken: medians of the rounds' ratios.
  double of_copy[2] = {};

  double algbw(int place) const { return static_cast<double>(bytes) / seconds[place] * 1e-9; }
  double busbw(int place, int ranks) const {
    const double share = static_cast<double>(ranks - 1) / ranks;
    return algbw(place) * share * (kKind == CollectiveKind::kAllReduce ? 2 : 1);
  }
  // Memory that ranks who reach each other's must read and write.
  double traffic(int ranks) const {
    return static_cast<double>(bytes) *
           (kKind == CollectiveKind::kAllReduce ? 2 * ranks : ranks + 1);
  }
};

absl::Status MeasureSize(int64_t bytes, absl::Span<const std::unique_ptr<Contestant>> contestants,
                         int iterations, precision::DType dtype, Arrays& arrays,
                         std::vector<Row>& rows) {
  const int64_t elements = bytes / precision::SizeOf(dtype);
  std::vector<Row> measured;
  std::vector<std::vector<double>> seconds(2 * contestants.size());
  std::vector<double> copies;
  for (const auto& contestant : contestants) measured.push_back({contestant->name(), bytes});
  std::vector<int> times(contestants.size(), std::max(iterations, 1));
  for (size_t i = 0; i < contestants.size(); ++i) {
    if (!contestants[i]->can(kKind, dtype)) continue;
    for (const bool in_place : {false, true}) {
      const Turn first = {kKind, elements, in_place, 1, true, dtype};
      BRIGADE_ASSIGN_OR_RETURN(auto outcome, contestants[i]->Run(first, arrays));
      measured[i].wrong[in_place] = outcome.wrong;
    }
    // As many in a row as make 20 ms, so that starting the ranks and the last wait do not count.
    for (const int more : {0, 1, 2}) {
      const Turn turn = {kKind, elements, more % 2 == 0, times[i], false, dtype};
      BRIGADE_ASSIGN_OR_RETURN(auto outcome, contestants[i]->Run(turn, arrays));
      if (iterations > 0) continue;
      times[i] = TimesInTurn(outcome.seconds / times[i]);
    }
  }
  BRIGADE_ASSIGN_OR_RETURN(const double once, MeasureCopy(arrays, 1));
  const int copy_times = TimesInTurn(static_cast<double>(2 * arrays.bytes()) / once);
  for (int round = 0; round < absl::GetFlag(FLAGS_rounds); ++round) {
    for (size_t i = 0; i < contestants.size(); ++i) {
      if (!contestants[i]->can(kKind, dtype)) continue;
      for (const bool in_place : {false, true}) {
        const Turn turn = {kKind, elements, in_place, times[i], false, dtype};
        BRIGADE_ASSIGN_OR_RETURN(auto outcome, contestants[i]->Run(turn, arrays));
        seconds[2 * i + in_place].push_back(outcome.seconds / times[i]);
      }
    }
    BRIGADE_ASSIGN_OR_RETURN(auto copy, MeasureCopy(arrays, copy_times));
    copies.push_back(copy);
  }
  for (size_t i = 0; i < contestants.size(); ++i) {
    if (!contestants[i]->can(kKind, dtype)) continue;
    for (const size_t place : {0, 1}) {
      const std::vector<double>& taken = seconds[2 * i + place];
      measured[i].seconds[place] = Median(taken);
      std::vector<double> shares;
      for (size_t round = 0; round < copies.size(); ++round) {
        const double traffic = measured[i].traffic(arrays.ranks());
        shares.push_back(traffic / copies[round] / taken[round]);
      }
      measured[i].of_copy[place] = Median(shares);
    }
    measured[i].copy = Median(copies);
    rows.push_back(measured[i]);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Contestant>> CreateContestant(const std::string& name,
                                                             int64_t most_bytes) {
  const int ranks = absl::GetFlag(FLAGS_ranks);
  if (name == "gloo::allreduce") return CreateGlooRing(ranks);
  if (name == "MPI_Allreduce") return CreateMpi(ranks);
  const std::pair<std::string, std::string> parts = absl::StrSplit(name, absl::MaxSplits('/', 1));
  const int64_t elements = std::max<int64_t>(most_bytes / 4, ranks);
  return CreateBrigade(parts.first, parts.second, ranks, elements);
}

absl::Status WriteJson(absl::Span<const Row> rows) {
  const int ranks = absl::GetFlag(FLAGS_ranks);
  std::vector<std::string> lines;
  for (const Row& row : rows) {
    lines.push_back(absl::StrFormat(
        R"(  {"operation": "%s", "contestant": "%s", "ranks": %d, "bytes": %d, "type": "%s", )"
        R"("seconds": [%.9g, %.9g], "wrong": [%d, %d], "copy_bytes_per_second": %.6g, )"
        R"("of_copy": [%.6g, %.6g]})",
        collectives::Name(kKind), row.name, ranks, row.bytes,
        precision::ShortName(absl::GetFlag(FLAGS_dtype)), row.seconds[0], row.seconds[1],
        row.wrong[0], row.wrong[1], row.copy, row.of_copy[0], row.of_copy[1]));
  }
  return WriteRows(lines, absl::GetFlag(FLAGS_json));
}

absl::Status Main() {
  const int ranks = absl::GetFlag(FLAGS_ranks);
  BRIGADE_ASSIGN_OR_RETURN(const std::vector<int64_t> sizes, SizesOfFlags());
  BRIGADE_ASSIGN_OR_RETURN(const int iterations, IterationsOfFlags());
  const precision::DType dtype = absl::GetFlag(FLAGS_dtype);
  std::vector<std::unique_ptr<Contestant>> contestants;
  for (const std::string& name : absl::GetFlag(FLAGS_contestants)) {
    auto contestant = CreateContestant(name, sizes.back());
    if (absl::IsNotFound(contestant.status())) {
      std::cout << "# " << name << " is left out: " << contestant.status().message() << "\n";
      continue;
    }
    BRIGADE_RETURN_IF_ERROR(contestant.status());
    contestants.push_back(*std::move(contestant));
  }
  if (contestants.empty()) return absl::InvalidArgumentError("--contestants names none");
  // Copies are measured on at least 64 MiB, whatever the sizes.
  const int64_t bytes_of_array = std::max(sizes.back(), int64_t{64} << 20);
  BRIGADE_ASSIGN_OR_RETURN(auto context, device::Context::Create({}));
  BRIGADE_ASSIGN_OR_RETURN(auto arrays, Arrays::Create(ranks, bytes_of_array, *context));
  arrays.Fill(arrays.bytes() / precision::SizeOf(dtype), dtype);
  std::cout << absl::StrFormat("# %s of %s between %d ranks; times are medians of %d rounds\n",
                               collectives::Name(kKind), precision::ShortName(dtype), ranks,
                               absl::GetFlag(FLAGS_rounds));
  std::cout << "#                                               out of place"
               "                             in place\n";
  std::cout << absl::StrFormat("%12s  %-15s %-18s %8s %7s %7s %7s %6s  %8s %7s %7s %7s %6s\n",
                               "bytes", "engine", "algorithm", "us", "algbw", "busbw", "of_copy",
                               "#wrong", "us", "algbw", "busbw", "of_copy", "#wrong");
  std::vector<Row> rows;
  int64_t wrong = 0;
  const int64_t step = precision::SizeOf(dtype) * ranks;
  for (const int64_t bytes : sizes) {
    const size_t before = rows.size();
    BRIGADE_RETURN_IF_ERROR(MeasureSize(std::max(step, bytes / step * step), contestants,
                                        iterations, dtype, arrays, rows));
    for (size_t i = before; i < rows.size(); ++i) {
      const Row& row = rows[i];
      // A rival has its own.
      const std::pair<std::string, std::string> parts = absl::StrSplit(row.name, '/');
      std::cout << absl::StrFormat("%12d  %-15s %-18s", row.bytes, parts.first,
                                   parts.second.empty() ? "its own" : parts.second);
      for (const int place : {0, 1}) {
        std::cout << absl::StrFormat(" %8.1f %7.2f %7.2f %7.2f %6d ", row.seconds[place] * 1e6,
                                     row.algbw(place), row.busbw(place, ranks), row.of_copy[place],
                                     row.wrong[place]);
        wrong += row.wrong[place];
      }
      std::cout << std::endl;
    }
  }
  BRIGADE_RETURN_IF_ERROR(WriteJson(rows));
  return wrong == 0 ? absl::OkStatus()
                    : absl::DataLossError(absl::StrCat(wrong, " elements wrong"));
}

}  // namespace
}  // namespace brigade::benchmarks

int main(int argc, char** argv) {
  using namespace brigade::benchmarks;
  NcclTestsArguments arguments(argc, argv);
  SetDefaultSizes(8, int64_t{256} << 20, 4);
  return RunMain(arguments.argc(), arguments.argv(), "collectives", Main);
}
