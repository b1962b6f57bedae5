// The table of nccl-tests for collectives between ranks that are threads of this process. benchmarks/README.md says
// how to read it. BRIGADE_BENCHMARK_KIND is the operation.

#include <algorithm>
#include <barrier>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <string>
#include <thread>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/flags/usage.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "brigade/benchmarks/collectives/contestants.h"
#include "brigade/benchmarks/common/interleave.h"
#include "brigade/device/context.h"
#include "brigade/device/status_macros.h"
#include "brigade/kernels/common/stream_out.h"

ABSL_FLAG(int, ranks, 2, "how many ranks");
ABSL_FLAG(std::vector<std::string>, contestants,
          (std::vector<std::string>{"threads/direct", "threads/ring", "gloo/ring",
                                    "gloo::allreduce"}),
          "who takes part: <threads|gloo>/<direct|ring>, and Gloo's own gloo::allreduce");
ABSL_FLAG(int64_t, min_bytes, 8, "smallest size");
ABSL_FLAG(int64_t, max_bytes, int64_t{256} << 20, "largest size");
ABSL_FLAG(int64_t, factor, 4, "from one size to the next");
ABSL_FLAG(int, rounds, 9, "each contestant's turns for a size; the median counts");
ABSL_FLAG(std::string, json, "", "also write all rows to this file");

namespace brigade::benchmarks {
namespace {

using collectives::CallKind;
using Clock = std::chrono::steady_clock;

constexpr CallKind kKind = CallKind::BRIGADE_BENCHMARK_KIND;

// The arrays of the ranks: whole is what nccl-tests calls the size, part its share of a rank.
class Arrays {
 public:
  static absl::StatusOr<Arrays> Create(int ranks, int64_t elements, device::Context& context) {
    Arrays arrays(ranks, elements);
    for (int i = 0; i < 2 * ranks; ++i) {
      BRIGADE_ASSIGN_OR_RETURN(buffer,
                               context.Allocate(elements * 4, device::Purpose::kCommunication));
      (i < ranks ? arrays.input_ : arrays.output_).push_back(buffer.as<float>().data());
      arrays.buffers_.push_back(std::move(buffer));
    }
    return arrays;
  }

  // Sums stay exact, however often an in-place operation runs, if all but rank 0 are zero.
  void Fill(int64_t whole) {
    for (int rank = 0; rank < ranks_; ++rank) {
      for (int64_t i = 0; i < whole; ++i) {
        input_[rank][i] = rank == 0 ? static_cast<float>(i % 128) : 0.0f;
      }
      std::fill_n(output_[rank], whole, -1.0f);
    }
  }

  Round MakeRound(int rank, int64_t whole, bool in_place, int times) {
    const int64_t part = whole / ranks_;
    float* const input = input_[rank];
    float* const output = output_[rank];
    if (kKind == CallKind::kAllReduce) {
      return {kKind, input, in_place ? input : output, whole, times};
    }
    if (kKind == CallKind::kReduceScatter) {
      return {kKind, input, in_place ? input + rank * part : output, part, times};
    }
    return {kKind, in_place ? input + rank * part : input, in_place ? input : output, part, times};
  }

  // After one operation on filled arrays.
  int64_t CountWrong(int64_t whole, bool in_place) const {
    const int64_t part = whole / ranks_;
    int64_t wrong = 0;
    for (int rank = 0; rank < ranks_; ++rank) {
      const float* const result = in_place ? input_[rank] : output_[rank];
      const bool scattered = kKind == CallKind::kReduceScatter;
      const int64_t at = scattered && in_place ? rank * part : 0;
      const int64_t elements = scattered                       ? part
                               : kKind == CallKind::kAllGather ? part * ranks_
                                                               : whole;
      for (int64_t i = 0; i < elements; ++i) {
        float wanted = static_cast<float>(i % 128);
        if (scattered) wanted = static_cast<float>((rank * part + i) % 128);
        if (kKind == CallKind::kAllGather && i >= part) wanted = 0.0f;
        wrong += result[at + i] != wanted;
      }
    }
    return wrong;
  }

  const float* input(int rank) const { return input_[rank]; }
  float* output(int rank) { return output_[rank]; }
  int64_t whole() const { return whole_; }

 private:
  Arrays(int ranks, int64_t elements) : ranks_(ranks), whole_(elements) {}

  int ranks_;
  int64_t whole_;
  std::vector<float*> input_, output_;
  std::vector<device::Buffer> buffers_;
};

// Seconds from when all ranks begin fn(rank) to when the last has ended.
template <typename Fn>
absl::Status Time(int ranks, const Fn& fn, double& seconds) {
  std::barrier<> begin(ranks);
  std::vector<Clock::time_point> from(ranks), to(ranks);
  BRIGADE_RETURN_IF_ERROR(OnRanks(ranks, [&](int rank) {
    begin.arrive_and_wait();
    from[rank] = Clock::now();
    absl::Status status = fn(rank);
    to[rank] = Clock::now();
    return status;
  }));
  const auto first = *std::min_element(from.begin(), from.end());
  const auto last = *std::max_element(to.begin(), to.end());
  seconds = std::chrono::duration<double>(last - first).count();
  return absl::OkStatus();
}

// Copies with as many threads as there are cores: what the memory gives, in bytes read and written per second.
absl::Status MeasureCopy(Arrays& arrays, double& bytes_per_second) {
  const int threads = static_cast<int>(std::thread::hardware_concurrency());
  const int64_t share = arrays.whole() / threads;
  double seconds = 0;
  BRIGADE_RETURN_IF_ERROR(Time(
      threads,
      [&](int thread) {
        kernels::StreamOut(arrays.output(0) + thread * share, arrays.input(0) + thread * share,
                           share * 4);
        kernels::StreamOutFence();
        return absl::OkStatus();
      },
      seconds));
  bytes_per_second = static_cast<double>(2 * share * threads * 4) / seconds;
  return absl::OkStatus();
}

struct Row {
  std::string name;
  int64_t bytes = 0;
  double seconds[2] = {};  // out of place, in place
  int64_t wrong[2] = {};
  double copy = 0;  // bytes/s of copies in the same rounds

  double algbw(int place) const { return static_cast<double>(bytes) / seconds[place] * 1e-9; }
  double busbw(int place, int ranks) const {
    const double share = static_cast<double>(ranks - 1) / ranks;
    return algbw(place) * share * (kKind == CallKind::kAllReduce ? 2 : 1);
  }
  // Memory that ranks who reach each other's must read and write, over the speed of copies and the time.
  double of_copy(int place, int ranks) const {
    const double traffic =
        static_cast<double>(bytes) * (kKind == CallKind::kAllReduce ? 2 * ranks : ranks + 1);
    return traffic / copy / seconds[place];
  }
};

absl::Status MeasureSize(int64_t bytes, absl::Span<const std::unique_ptr<Contestant>> contestants,
                         Arrays& arrays, std::vector<Row>& rows) {
  const int ranks = absl::GetFlag(FLAGS_ranks);
  const int64_t whole = bytes / 4;
  std::vector<Row> measured;
  std::vector<std::vector<double>> seconds(2 * contestants.size());
  std::vector<double> copies;
  for (const auto& contestant : contestants) measured.push_back({contestant->name(), bytes});
  std::vector<int> times(contestants.size(), 1);
  const auto run = [&](size_t i, bool in_place, int turns, double& taken) {
    return Time(
        ranks,
        [&](int rank) {
          return contestants[i]->Run(rank, arrays.MakeRound(rank, whole, in_place, turns));
        },
        taken);
  };
  for (size_t i = 0; i < contestants.size(); ++i) {
    if (!contestants[i]->can(kKind)) continue;
    double taken = 0;
    for (const bool in_place : {false, true}) {
      arrays.Fill(whole);
      BRIGADE_RETURN_IF_ERROR(run(i, in_place, 1, taken));
      measured[i].wrong[in_place] = arrays.CountWrong(whole, in_place);
    }
    // As many in a row as make 20 ms, so that starting the ranks and the last wait do not count.
    for (const int more : {0, 1, 2}) {
      BRIGADE_RETURN_IF_ERROR(run(i, more % 2 == 0, times[i], taken));
      times[i] = static_cast<int>(std::clamp(20e-3 / (taken / times[i]), 1.0, 5000.0));
    }
  }
  for (int round = 0; round < absl::GetFlag(FLAGS_rounds); ++round) {
    for (size_t i = 0; i < contestants.size(); ++i) {
      if (!contestants[i]->can(kKind)) continue;
      for (const bool in_place : {false, true}) {
        if (in_place) arrays.Fill(whole);
        double taken = 0;
        BRIGADE_RETURN_IF_ERROR(run(i, in_place, times[i], taken));
        seconds[2 * i + in_place].push_back(taken / times[i]);
      }
    }
    copies.emplace_back();
    BRIGADE_RETURN_IF_ERROR(MeasureCopy(arrays, copies.back()));
  }
  for (size_t i = 0; i < contestants.size(); ++i) {
    if (!contestants[i]->can(kKind)) continue;
    for (const int place : {0, 1}) measured[i].seconds[place] = Median(seconds[2 * i + place]);
    measured[i].copy = Median(copies);
    rows.push_back(measured[i]);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Contestant>> NewContestant(const std::string& name) {
  const int ranks = absl::GetFlag(FLAGS_ranks);
  if (name == "gloo::allreduce") return NewGlooRing(ranks);
  const std::vector<std::string> parts = absl::StrSplit(name, '/');
  const bool known = parts.size() == 2 && (parts[0] == "threads" || parts[0] == "gloo") &&
                     (parts[1] == "direct" || parts[1] == "ring");
  if (!known) return absl::InvalidArgumentError(absl::StrCat("unknown contestant ", name));
  const auto algorithm =
      parts[1] == "ring" ? collectives::Algorithm::kRing : collectives::Algorithm::kDirect;
  return NewBrigade(parts[0], {ranks, algorithm});
}

void WriteJson(absl::Span<const Row> rows, const std::string& path) {
  const int ranks = absl::GetFlag(FLAGS_ranks);
  std::vector<std::string> lines;
  for (const Row& row : rows) {
    lines.push_back(absl::StrFormat(
        R"(  {"operation": "%s", "contestant": "%s", "ranks": %d, "bytes": %d, "type": "float32", )"
        R"("seconds": [%.9g, %.9g], "wrong": [%d, %d], "copy_bytes_per_second": %.6g})",
        collectives::Name(kKind), row.name, ranks, row.bytes, row.seconds[0], row.seconds[1],
        row.wrong[0], row.wrong[1], row.copy));
  }
  std::ofstream(path) << "[\n" << absl::StrJoin(lines, ",\n") << "\n]\n";
}

absl::Status Main() {
  const int ranks = absl::GetFlag(FLAGS_ranks);
  std::vector<std::unique_ptr<Contestant>> contestants;
  for (const std::string& name : absl::GetFlag(FLAGS_contestants)) {
    BRIGADE_ASSIGN_OR_RETURN(contestant, NewContestant(name));
    contestants.push_back(std::move(contestant));
  }
  // Copies are measured on at least 64 MiB, whatever the sizes.
  const int64_t elements = std::max(absl::GetFlag(FLAGS_max_bytes), int64_t{64} << 20) / 4;
  BRIGADE_ASSIGN_OR_RETURN(context, device::Context::Create({}));
  BRIGADE_ASSIGN_OR_RETURN(arrays, Arrays::Create(ranks, elements, *context));
  arrays.Fill(arrays.whole());
  std::cout << absl::StrFormat("# %s of float32 between %d ranks; times are medians of %d rounds\n",
                               collectives::Name(kKind), ranks, absl::GetFlag(FLAGS_rounds));
  std::cout
      << "#                               out of place                             in place\n";
  std::cout << absl::StrFormat("%12s  %-16s %10s %7s %7s %7s %6s  %10s %7s %7s %7s %6s\n", "bytes",
                               "contestant", "us", "algbw", "busbw", "of_copy", "#wrong", "us",
                               "algbw", "busbw", "of_copy", "#wrong");
  std::vector<Row> rows;
  int64_t wrong = 0;
  const int64_t step = int64_t{4} * ranks;
  for (int64_t bytes = absl::GetFlag(FLAGS_min_bytes); bytes <= absl::GetFlag(FLAGS_max_bytes);
       bytes *= absl::GetFlag(FLAGS_factor)) {
    const size_t before = rows.size();
    BRIGADE_RETURN_IF_ERROR(
        MeasureSize(std::max(step, bytes / step * step), contestants, arrays, rows));
    for (size_t i = before; i < rows.size(); ++i) {
      const Row& row = rows[i];
      std::cout << absl::StrFormat("%12d  %-16s", row.bytes, row.name);
      for (const int place : {0, 1}) {
        std::cout << absl::StrFormat(" %10.1f %7.2f %7.2f %7.2f %6d ", row.seconds[place] * 1e6,
                                     row.algbw(place), row.busbw(place, ranks),
                                     row.of_copy(place, ranks), row.wrong[place]);
        wrong += row.wrong[place];
      }
      std::cout << std::endl;
    }
  }
  if (!absl::GetFlag(FLAGS_json).empty()) WriteJson(rows, absl::GetFlag(FLAGS_json));
  return wrong == 0 ? absl::OkStatus()
                    : absl::DataLossError(absl::StrCat(wrong, " elements wrong"));
}

}  // namespace
}  // namespace brigade::benchmarks

int main(int argc, char** argv) {
  absl::SetProgramUsageMessage(
      "Times collectives; benchmarks/README.md says how to read the table.");
  absl::ParseCommandLine(argc, argv);
  const absl::Status status = brigade::benchmarks::Main();
  if (!status.ok()) std::cerr << status << "\n";
  return status.ok() ? 0 : 1;
}
