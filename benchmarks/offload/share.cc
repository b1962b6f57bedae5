// Memory by tier and the time of a step against the share of the optimizer state that is on the
// host, and with all of it in a file. benchmarks/offload/README.md says how to read it.

#include <algorithm>
#include <chrono>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/str_format.h"
#include "brigade/benchmarks/common/interleave.h"
#include "brigade/benchmarks/common/run_main.h"
#include "brigade/benchmarks/offload/one_rank.h"
#include "brigade/device/status_macros.h"
#include "brigade/zero/plan/memory_model.h"

ABSL_FLAG(int64_t, elements, int64_t{32} << 20, "of the model");
ABSL_FLAG(double, passes, 0.05, "seconds of a step's passes, which take no processor of the host");
ABSL_FLAG(double, link, 8e9, "bytes a second of the link, each way");
ABSL_FLAG(std::string, folder, "", "on a disk: one row more, with the state in a file there");
ABSL_FLAG(int, rounds, 9, "turns of each contestant; medians count");

namespace brigade::benchmarks {
namespace {

constexpr int kUnits = 16, kShares = 8;
// Of a turn.
constexpr int kSteps = 4;

struct Row {
  std::string name;
  std::unique_ptr<OneRank> rank;
  Seconds seconds = {};
};

absl::StatusOr<double> SecondsOfStep(OneRank& rank) {
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < kSteps; ++i) {
    BRIGADE_RETURN_IF_ERROR(rank.Step(absl::GetFlag(FLAGS_passes)));
  }
  BRIGADE_RETURN_IF_ERROR(rank.Finish());
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() / kSteps;
}

absl::Status Main() {
  const UnitModel model = {.units = kUnits, .elements = absl::GetFlag(FLAGS_elements)};
  const double link = absl::GetFlag(FLAGS_link);
  std::vector<Row> rows;
  for (int part = 0; part <= kShares; ++part) {
    zero::OffloadOptions offload;
    const double share = static_cast<double>(part) / kShares;
    if (part > 0) {
      offload.optimizer_state = device::Tier::kHost;
      offload.host_share = share;
    }
    BRIGADE_ASSIGN_OR_RETURN(auto rank, OneRank::Create(model, offload, link));
    rows.push_back({absl::StrFormat("%.3f", share), std::move(rank)});
  }
  if (const std::string folder = absl::GetFlag(FLAGS_folder); !folder.empty()) {
    zero::OffloadOptions offload;
    offload.optimizer_state = device::Tier::kFile;
    offload.file.directory = folder;
    // A unit has less than a chunk, unless the model is large.
    BRIGADE_ASSIGN_OR_RETURN(auto rank, OneRank::Create(model, offload, link));
    rows.push_back({"file", std::move(rank)});
  }
  for (int round = -1; round < absl::GetFlag(FLAGS_rounds); ++round) {
    for (size_t i = 0; i < rows.size(); ++i) {
      Row& row = rows[round % 2 == 0 ? i : rows.size() - 1 - i];
      BRIGADE_ASSIGN_OR_RETURN(const double seconds, SecondsOfStep(*row.rank));
      if (round >= 0) row.seconds.push_back(seconds);
    }
  }
  std::cout << absl::StrFormat(
      "# %d elements, passes of %.0f ms, a link of %.1f GB/s; bytes an element\n%-8s %9s %9s %9s "
      "%11s\n",
      model.elements, absl::GetFlag(FLAGS_passes) * 1e3, link * 1e-9, "share", "device", "host",
      "file", "ms a step");
  for (const Row& row : rows) {
    BRIGADE_ASSIGN_OR_RETURN(const auto terms,
                             zero::MemoryOf(row.rank->zero().plan(), row.rank->zero().options(),
                                            row.rank->communicator()));
    std::cout << absl::StrFormat("%-8s", row.name);
    for (const auto tier : {device::Tier::kDevice, device::Tier::kHost, device::Tier::kFile}) {
      std::cout << absl::StrFormat(" %9.2f", static_cast<double>(zero::Total(terms, tier)) /
                                                 static_cast<double>(model.elements));
    }
    std::cout << absl::StrFormat(" %11.1f\n", Median(row.seconds) * 1e3);
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace brigade::benchmarks

int main(int argc, char** argv) {
  return brigade::benchmarks::RunMain(argc, argv, "steps with shares of the state on the host",
                                      brigade::benchmarks::Main);
}
