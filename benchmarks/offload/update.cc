// The update of a step with the optimizer state on the device, on the host and in a file, beside
// plain loops over the bytes of the file. benchmarks/offload/README.md says how to read it.

#include <algorithm>
#include <chrono>
#include <functional>
#include <iostream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/str_format.h"
#include "brigade/benchmarks/common/figures.h"
#include "brigade/benchmarks/common/interleave.h"
#include "brigade/benchmarks/common/run_main.h"
#include "brigade/benchmarks/offload/one_rank.h"
#include "brigade/benchmarks/offload/plain_loops.h"
#include "brigade/device/file/file_store.h"
#include "brigade/device/status_macros.h"
#include "brigade/zero/plan/movement.h"

ABSL_FLAG(std::string, folder, "", "on the disk to measure; the files have no names");
ABSL_FLAG(int64_t, elements, int64_t{32} << 20, "of the model");
ABSL_FLAG(int64_t, chunk_elements, brigade::zero::OffloadOptions().chunk_elements,
          "OffloadOptions::chunk_elements");
ABSL_FLAG(int, rounds, 9, "turns of each contestant; medians count");
ABSL_FLAG(std::string, json, "", "also write the figures to this file");

namespace brigade::benchmarks {
namespace {

absl::StatusOr<std::unique_ptr<OneRank>> Create(device::Tier state) {
  zero::OffloadOptions offload;
  offload.optimizer_state = state;
  offload.file.directory = absl::GetFlag(FLAGS_folder);
  offload.chunk_elements = absl::GetFlag(FLAGS_chunk_elements);
  BRIGADE_ASSIGN_OR_RETURN(auto rank,
                           OneRank::Create({.elements = absl::GetFlag(FLAGS_elements)}, offload));
  if (rank->zero().file() != nullptr) {
    std::cout << "# " << rank->zero().file()->description() << "\n";
  }
  return rank;
}

// A step, to the end of its update.
absl::Status Run(OneRank& rank) {
  BRIGADE_RETURN_IF_ERROR(rank.Update());
  return rank.Finish();
}

absl::Status Main() {
  if (absl::GetFlag(FLAGS_folder).empty()) {
    return absl::InvalidArgumentError("--folder names none");
  }
  BRIGADE_ASSIGN_OR_RETURN(const auto device, Create(device::Tier::kDevice));
  BRIGADE_ASSIGN_OR_RETURN(const auto host, Create(device::Tier::kHost));
  BRIGADE_ASSIGN_OR_RETURN(const auto file, Create(device::Tier::kFile));
  // Both slots have been written before the first turn.
  for (OneRank* const rank : {device.get(), host.get(), file.get()}) {
    for (int i = 0; i < 2; ++i) BRIGADE_RETURN_IF_ERROR(Run(*rank));
  }
  const device::FileStore& store = *file->zero().file();
  // As the store does it, and a whole chunk at a time.
  PlainLoopsOptions plain = {.folder = absl::GetFlag(FLAGS_folder),
                             .chunk_bytes = store.chunk_bytes(0),
                             .chunks = static_cast<int>(store.chunks()),
                             .direct = store.direct(),
                             .bytes_at_once = store.chunk_bytes(0)};
  BRIGADE_ASSIGN_OR_RETURN(const auto chunks, PlainLoops::Create(plain));
  const device::FileOptions& options = file->zero().options().offload.file;
  plain.threads = options.queue_depth;
  plain.bytes_at_once = options.block_bytes;
  BRIGADE_ASSIGN_OR_RETURN(const auto blocks, PlainLoops::Create(plain));

  struct Entry {
    const char* name;
    std::function<absl::Status()> run;
    Seconds seconds;
  };
  Entry entries[] = {{"state on the device", [&] { return Run(*device); }, {}},
                     {"state on the host", [&] { return Run(*host); }, {}},
                     {"state in a file", [&] { return Run(*file); }, {}},
                     {"plain chunks", [&] { return chunks->Run(true, true); }, {}},
                     {"plain blocks", [&] { return blocks->Run(true, true); }, {}}};
  for (int round = 0; round < absl::GetFlag(FLAGS_rounds); ++round) {
    for (size_t i = 0; i < std::size(entries); ++i) {
      Entry& entry = entries[round % 2 == 0 ? i : std::size(entries) - 1 - i];
      const auto begin = std::chrono::steady_clock::now();
      BRIGADE_RETURN_IF_ERROR(entry.run());
      entry.seconds.push_back(
          std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
    }
  }
  const zero::Movement moved = zero::MovementOfStep(file->zero().plan(), file->zero().options());
  const auto file_bytes = static_cast<double>(moved.file_read + moved.file_written);
  std::cout << absl::StrFormat("# %d elements; %.3f GB cross the disk in a step\n%-20s %9s %9s\n",
                               absl::GetFlag(FLAGS_elements), file_bytes * 1e-9, "", "ms",
                               "disk GB/s");
  for (const Entry& entry : entries) {
    const double seconds = Median(entry.seconds);
    const bool has_file = &entry >= &entries[2];
    std::cout << absl::StrFormat("%-20s %9.1f", entry.name, seconds * 1e3)
              << (has_file ? absl::StrFormat(" %9.2f", file_bytes * 1e-9 / seconds) : "") << "\n";
  }
  // Of each round, beside the faster plain loop.
  const Seconds& plain_seconds = Median(entries[3].seconds) <= Median(entries[4].seconds)
                                     ? entries[3].seconds
                                     : entries[4].seconds;
  Seconds longest;
  for (size_t r = 0; r < plain_seconds.size(); ++r) {
    longest.push_back(std::max(plain_seconds[r], entries[1].seconds[r]));
  }
  const double of_longest = MedianRatio(entries[2].seconds, longest);
  const double host_of_device = MedianRatio(entries[1].seconds, entries[0].seconds);
  std::cout << absl::StrFormat(
      "in a file: %.3f of the longer of the plain loop and the update on the host\n"
      "on the host: %.3f of the update on the device\n",
      of_longest, host_of_device);
  Figures figures;
  figures.Add("file_of_longest", of_longest);
  figures.Add("host_of_device", host_of_device);
  return figures.Write(absl::GetFlag(FLAGS_json));
}

}  // namespace
}  // namespace brigade::benchmarks

int main(int argc, char** argv) {
  return brigade::benchmarks::RunMain(argc, argv, "updates beside plain loops",
                                      brigade::benchmarks::Main);
}
