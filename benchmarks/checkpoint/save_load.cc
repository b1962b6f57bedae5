// Saving and loading a state beside plain loops over as many bytes, and what a save takes from the
// step that follows. benchmarks/checkpoint/README.md says how to read it.

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "brigade/benchmarks/checkpoint/plain_files.h"
#include "brigade/benchmarks/checkpoint/trainings.h"
#include "brigade/benchmarks/common/figures.h"
#include "brigade/benchmarks/common/interleave.h"
#include "brigade/benchmarks/common/run_main.h"
#include "brigade/checkpoint/checkpoint_folder.h"
#include "brigade/checkpoint/loader.h"
#include "brigade/checkpoint/saver.h"
#include "brigade/device/file/crc32c.h"
#include "brigade/device/status_macros.h"

ABSL_FLAG(std::string, folder, "",
          "on the disk to measure; a new folder in it is made and removed");
ABSL_FLAG(int, ranks, 1, "how many ranks, as threads");
ABSL_FLAG(int, units, 22, "units of the model");
ABSL_FLAG(int64_t, unit_elements, 1 << 22, "elements of a unit; 12 bytes of state each");
ABSL_FLAG(int, rounds, 9, "turns of each contestant; medians count");
ABSL_FLAG(std::string, json, "", "also write the figures to this file");

namespace brigade::benchmarks {
namespace {

using checkpoint::Saver;
using checkpoint::WriteMode;

const checkpoint::Fields& What() {
  static const auto* const fields = new checkpoint::Fields{{"what", "a benchmark"}};
  return *fields;
}

// Of the defaults: what a saver and a loader take at once.
constexpr int64_t kChunkBytes = int64_t{4} << 20;
// What is summed at once.
constexpr int64_t kBlockBytes = int64_t{256} << 10;

int64_t Bytes(const Memory& memory) {
  int64_t bytes = 0;
  for (const auto& part : memory) bytes += static_cast<int64_t>(part.size());
  return bytes;
}

// A rank's contestants in writing. Those that save begin without a checkpoint.
class Writers {
 public:
  enum : size_t { kPlain, kInPlace, kPieces, kCopies, kSums, kStep, kStalled };

  Writers(Training& training, const std::string& folder)
      : training_(training), folder_(folder), own_(training.Own()) {}

  absl::Status Create() {
    const auto create = [&](const char* root, WriteMode mode, int64_t staging_bytes,
                            std::unique_ptr<Saver>& saver) -> absl::Status {
      checkpoint::SaverOptions options;
      options.root = absl::StrCat(folder_, "/", root);
      options.mode = mode;
      options.staging_bytes = staging_bytes;
      BRIGADE_ASSIGN_OR_RETURN(saver, Saver::Create(options, training_.zero(),
                                                    training_.communicator(), training_.context()));
      return absl::OkStatus();
    };
    const int64_t ring_bytes = checkpoint::SaverOptions{}.staging_bytes;
    ring_.resize(static_cast<size_t>(ring_bytes));
    BRIGADE_RETURN_IF_ERROR(create("in_place", WriteMode::kInPlace, ring_bytes, in_place_));
    BRIGADE_RETURN_IF_ERROR(create("pieces", WriteMode::kPieceFiles, ring_bytes, pieces_));
    return create("beside", WriteMode::kInPlace, Bytes(own_), beside_);
  }

  std::vector<Turn> Turns() {
    return {
        {"plain", [this] { return Plain(); }, [this] { return Clear(PlainNames()); }},
        {"in place", [this] { return Save(*in_place_); }, [this] { return Clear({"in_place"}); }},
        {"piece files", [this] { return Save(*pieces_); }, [this] { return Clear({"pieces"}); }},
        {"copy", [this] { return Copy(/*sum=*/false); }},
        {"sum and copy", [this] { return Copy(/*sum=*/true); }},
        {"step", [this] { return Step(); }},
        {"save beside a step", [this] { return SaveBesideStep(); },
         [this] { return Clear({"beside"}); }, [this] { return beside_->Wait().status(); }}};
  }

 private:
  absl::Status Clear(const std::vector<std::string>& names) {
    return training_.rank() == 0 ? RemoveAndSync(folder_, names) : absl::OkStatus();
  }
  static std::string PlainName(int rank) { return absl::StrCat("plain", rank); }
  std::vector<std::string> PlainNames() const {
    std::vector<std::string> names;
    for (int rank = 0; rank < training_.ranks(); ++rank) names.push_back(PlainName(rank));
    return names;
  }

  absl::Status Plain() {
    return WritePlain(absl::StrCat(folder_, "/", PlainName(training_.rank())), own_, kChunkBytes);
  }
  absl::Status Save(Saver& saver) {
    BRIGADE_RETURN_IF_ERROR(saver.Begin(What()));
    return saver.Wait().status();
  }
  absl::Status Copy(bool sum) {
    char* to = ring_.data();
    for (const auto& part : own_) {
      for (size_t at = 0; at < part.size();) {
        const size_t bytes = std::min(part.size() - at, static_cast<size_t>(kChunkBytes));
        if (to + bytes > ring_.data() + ring_.size()) to = ring_.data();
        std::memcpy(to, part.data() + at, bytes);
        at += bytes;
        // As the file takes it: block after block, from where it lies.
        for (const char* const end = to + bytes; to < end;) {
          const auto block = std::min(static_cast<size_t>(end - to), cached_.size());
          if (sum) sum_ = device::Crc32c({to, block}, sum_);
          std::memcpy(cached_.data(), to, block);
          to += block;
        }
      }
    }
    return absl::OkStatus();
  }
  absl::Status Step() {
    BRIGADE_RETURN_IF_ERROR(training_.Step());
    return training_.Synchronize();
  }
  absl::Status SaveBesideStep() {
    BRIGADE_RETURN_IF_ERROR(beside_->Begin(What()));
    return Step();
  }

  Training& training_;
  const std::string folder_;
  const Memory own_;
  std::vector<char> ring_;
  // A block of the page cache.
  std::vector<char> cached_ = std::vector<char>(kBlockBytes);
  uint32_t sum_ = 0;
  std::unique_ptr<Saver> in_place_, pieces_, beside_;
};

// A rank's contestants in reading what Writers have left.
class Readers {
 public:
  // The same again for warm.
  enum : size_t { kPlain, kPlainSums, kLoad, kPieces, kAll };

  Readers(Training& training, const std::string& folder) : training_(training), folder_(folder) {}

  absl::Status Create() {
    // A rank's shares of the files.
    buffer_.resize(static_cast<size_t>(Bytes(training_.Own())) + (size_t{1} << 20));
    return absl::OkStatus();
  }

  std::vector<Turn> Turns() {
    std::vector<Turn> turns;
    for (const bool cold : {true, false}) {
      const std::string how = cold ? ", cold" : ", warm";
      const auto before = [this, cold](const char* root) {
        return [this, cold, root] { return cold ? Drop(root) : Read(root); };
      };
      turns.push_back({"plain" + how, [this] { return Read("in_place"); }, before("in_place")});
      turns.push_back(
          {"plain, summed" + how, [this] { return Read("in_place", &sum_); }, before("in_place")});
      turns.push_back({"in place" + how, [this] { return Load("in_place"); }, before("in_place")});
      turns.push_back({"piece files" + how, [this] { return Load("pieces"); }, before("pieces")});
    }
    return turns;
  }

 private:
  absl::StatusOr<std::string> Checkpoint(const char* root) {
    const std::string path = absl::StrCat(folder_, "/", root);
    BRIGADE_ASSIGN_OR_RETURN(const auto steps,
                             checkpoint::ListCheckpoints(device::SystemCalls::Real(), path));
    if (steps.empty()) return absl::NotFoundError(absl::StrCat("no checkpoint in ", path));
    return checkpoint::CheckpointPath(path, steps.back());
  }
  absl::Status Drop(const char* root) {
    if (training_.rank() != 0) return absl::OkStatus();
    BRIGADE_ASSIGN_OR_RETURN(const std::string path, Checkpoint(root));
    return DropFromCache(FilesOf(path));
  }
  absl::Status Read(const char* root, uint32_t* sum = nullptr) {
    BRIGADE_ASSIGN_OR_RETURN(const std::string path, Checkpoint(root));
    return ReadPlain(FilesOf(path), training_.rank(), training_.ranks(),
                     sum == nullptr ? kChunkBytes : kBlockBytes, absl::MakeSpan(buffer_), sum);
  }
  absl::Status Load(const char* root) {
    BRIGADE_ASSIGN_OR_RETURN(const std::string path, Checkpoint(root));
    return checkpoint::Load(path, What(), training_.zero(), training_.communicator()).status();
  }

  Training& training_;
  const std::string folder_;
  std::vector<char> buffer_;
  uint32_t sum_ = 0;
};

Figures figures;

void PrintRow(const std::string& name, const TurnTimes& times, const TurnTimes& of, double bytes) {
  std::cout << absl::StrFormat("%-28s %9.1f %9.3f %9.3f %12.1f\n", name, Median(times.wall) * 1e3,
                               bytes * 1e-9 / Median(times.wall), MedianRatio(of.wall, times.wall),
                               Median(times.processor) * 1e3);
}

// Contestants live as long as their turns.
template <typename Contestants>
absl::StatusOr<std::vector<Turn>> CreateTurns(Training& training, const std::string& folder) {
  auto contestants = std::make_shared<Contestants>(training, folder);
  BRIGADE_RETURN_IF_ERROR(contestants->Create());
  std::vector<Turn> turns = contestants->Turns();
  turns.front().keep = contestants;
  return turns;
}

absl::Status Measure(const std::string& folder) {
  const int ranks = absl::GetFlag(FLAGS_ranks);
  SyntheticModel model;
  model.units = absl::GetFlag(FLAGS_units);
  model.unit_elements = absl::GetFlag(FLAGS_unit_elements);
  const double bytes = 12.0 * static_cast<double>(model.elements());
  std::cout << absl::StrFormat("# %d ranks, %.1f MB of state\n", ranks, bytes * 1e-6);
  std::cout << absl::StrFormat("%-28s %9s %9s %9s %12s\n", "", "ms", "GB/s", "of plain",
                               "processor ms");
  const int rounds = absl::GetFlag(FLAGS_rounds);
  BRIGADE_ASSIGN_OR_RETURN(const auto w, TakeTurns(ranks, model, rounds, [&](Training& training) {
                             return CreateTurns<Writers>(training, folder);
                           }));
  const TurnTimes& plain = w[Writers::kPlain];
  const TurnTimes& in_place = w[Writers::kInPlace];
  PrintRow("write: plain", plain, plain, bytes);
  PrintRow("write: in place", in_place, plain, bytes);
  PrintRow("write: piece files", w[Writers::kPieces], plain, bytes);
  PrintRow("two copies alone", w[Writers::kCopies], plain, bytes);
  PrintRow("the same with sums", w[Writers::kSums], plain, bytes);
  figures.Add("in_place_seconds", Median(in_place.wall));
  figures.Add("in_place_of_plain", MedianRatio(plain.wall, in_place.wall));
  figures.Add("pieces_of_plain", MedianRatio(plain.wall, w[Writers::kPieces].wall));
  // Of a rank's thread.
  const double both = MedianRatio(w[Writers::kSums].processor, in_place.wall) / ranks;
  const double copies = MedianRatio(w[Writers::kCopies].processor, in_place.wall) / ranks;
  figures.Add("sums_of_write", both - copies);
  Seconds stall;
  for (size_t i = 0; i < plain.wall.size(); ++i) {
    stall.push_back(w[Writers::kStalled].wall[i] - w[Writers::kStep].wall[i]);
  }
  std::cout << absl::StrFormat("a step: %.1f ms; with a save begun before it %.1f ms longer\n",
                               Median(w[Writers::kStep].wall) * 1e3, Median(stall) * 1e3);
  figures.Add("stall_seconds", Median(stall));

  BRIGADE_ASSIGN_OR_RETURN(const auto r, TakeTurns(ranks, model, rounds, [&](Training& training) {
                             return CreateTurns<Readers>(training, folder);
                           }));
  for (const bool cold : {true, false}) {
    const std::string how = cold ? "cold" : "warm";
    const size_t first = cold ? size_t{0} : Readers::kAll;
    const TurnTimes& read = r[first + Readers::kPlain];
    const TurnTimes& summed = r[first + Readers::kPlainSums];
    const TurnTimes& load = r[first + Readers::kLoad];
    const TurnTimes& pieces = r[first + Readers::kPieces];
    PrintRow("read, " + how + ": plain", read, read, bytes);
    PrintRow("read, " + how + ": plain, summed", summed, read, bytes);
    PrintRow("load, " + how + ": in place", load, read, bytes);
    PrintRow("load, " + how + ": piece files", pieces, read, bytes);
    figures.Add("read_" + how + "_summed_of_plain", MedianRatio(read.wall, summed.wall));
    figures.Add("load_" + how + "_of_plain", MedianRatio(read.wall, load.wall));
    figures.Add("load_pieces_" + how + "_of_plain", MedianRatio(read.wall, pieces.wall));
    figures.Add("load_" + how + "_of_summed", MedianRatio(summed.wall, load.wall));
  }
  return absl::OkStatus();
}

absl::Status Main() {
  std::string folder = absl::GetFlag(FLAGS_folder);
  if (folder.empty()) return absl::InvalidArgumentError("--folder names none");
  absl::StrAppend(&folder, "/brigade-checkpoints-XXXXXX");
  if (mkdtemp(folder.data()) == nullptr) return absl::ErrnoToStatus(errno, folder);
  const absl::Status status = Measure(folder);
  std::error_code none;
  std::filesystem::remove_all(folder, none);
  BRIGADE_RETURN_IF_ERROR(status);
  return figures.Write(absl::GetFlag(FLAGS_json));
}

}  // namespace
}  // namespace brigade::benchmarks

int main(int argc, char** argv) {
  return brigade::benchmarks::RunMain(argc, argv, "saving and loading beside plain loops",
                                      brigade::benchmarks::Main);
}
