// Checkpoints of grids: the same bytes from any number of tensor and pipeline ranks, and any grid
// goes on from them.

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "brigade/tests/examples/gpt/grid_job.h"
#include "brigade/tests/examples/gpt/trained.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::gpt {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using testing::StatusIs;

constexpr int kShards = 4;
constexpr int64_t kHalf = 4;

Job JobOf(const GridCase& grid, int stage, const std::string& precision) {
  Job job = JobOf(grid, kShards, stage, precision, kAdamW);
  // Heads that context ranks can share too, whatever their number.
  job.model.heads = 8;
  job.model.width = 32;
  job.model.context = 16;
  job.steps = 2 * kHalf;
  return job;
}

std::map<std::string, std::string> FilesIn(const fs::path& folder) {
  std::map<std::string, std::string> files;
  for (const auto& entry : fs::directory_iterator(folder)) {
    std::ifstream file(entry.path(), std::ios::binary);
    const std::string name = entry.path().filename().string();
    if (name != "manifest.json") {
      files[name] =
          std::string(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
      continue;
    }
    // The norm is a sum in another order (ZeroOptimizer says so), and its last bits are in the
    // manifest, and so in its checksum.
    for (std::string line; std::getline(file, line);) {
      if (line.find("\"grad_norm\"") == std::string::npos && line.find("\"crc32c\": ") != 0) {
        files[name] += line + "\n";
      }
    }
  }
  return files;
}

// Of these files alone: test failures that print megabytes help nobody.
void ExpectTheSame(const fs::path& a, const fs::path& b) {
  const auto files_of_a = FilesIn(a), files_of_b = FilesIn(b);
  ASSERT_FALSE(files_of_a.empty());
  ASSERT_EQ(files_of_a.size(), files_of_b.size());
  for (const auto& [name, text] : files_of_a) {
    ASSERT_EQ(files_of_b.count(name), 1u) << name;
    EXPECT_TRUE(files_of_b.at(name) == text) << name << " in " << a << " and " << b;
  }
}

class GridCheckpointTest : public ::testing::TestWithParam<bool> {
 protected:
  fs::path Folder(const std::string& name) const {
    const fs::path folder =
        fs::path(std::getenv("TEST_TMPDIR")) / absl::StrCat(GetParam() ? "sp-" : "", name);
    fs::create_directories(folder.parent_path());
    return folder;
  }
  // A checkpoint after half of the training.
  fs::path Save(const Job& job, const GridCase& grid, const std::string& name) const {
    Job saved = job;
    saved.steps = kHalf;
    saved.checkpoints.save = Folder(name).string();
    Train(saved, grid.ranks());
    return Folder(name) / "step-00000004";
  }
};
INSTANTIATE_TEST_SUITE_P(All, GridCheckpointTest, ::testing::Bool(), [](const auto& info) {
  return info.param ? "SequenceParallel" : "RowsWhole";
});

TEST_P(GridCheckpointTest, AnyNumberOfTensorAndPipelineRanksSavesTheSameBytes) {
  const GridCase grids[] = {{.tensor = 1, .data = 2},
                            {.tensor = 2, .data = 2},
                            {.tensor = 4, .data = 2},
                            {.tensor = 1, .data = 2, .pipeline = 4},
                            {.tensor = 2, .data = 2, .pipeline = 2, .schedule = "zb-v"}};
  for (const std::string precision : {"fp32", "bf16"}) {
    fs::path first;
    int number = 0;
    for (GridCase grid : grids) {
      grid.sequence_parallel = GetParam();
      for (int stage = 0; stage < zero::kStages; ++stage) {
        SCOPED_TRACE(absl::StrCat(precision, ", ", ToString(grid), ", stage ", stage));
        const std::string name = absl::StrCat(precision, "-", number++);
        const fs::path folder = Save(JobOf(grid, stage, precision), grid, name);
        if (first.empty()) first = folder;
        ExpectTheSame(first, folder);
      }
    }
  }
}

// Saved again at once by every other grid, also of other numbers of data and context ranks, and in
// files of each rank's own: the same bytes. And the training goes on.
TEST_P(GridCheckpointTest, AnyGridReadsWhatAnyHasSaved) {
  const GridCase grids[] = {{.tensor = 1, .data = 2},
                            {.tensor = 4, .data = 2},
                            {.tensor = 2, .context = 2},
                            {.tensor = 4},
                            {.tensor = 1, .context = 2, .data = 2, .ring = true},
                            {.tensor = 2, .data = 2, .pipeline = 2, .schedule = "zb-h1"},
                            {.tensor = 1, .data = 2, .pipeline = 4}};
  int stage = 0;
  for (const GridCase& from : grids) {
    // By turns, and with shared rows the other way round.
    const bool pieces = (stage + (GetParam() ? 1 : 0)) % 2 == 1;
    GridCase saves = from;
    saves.sequence_parallel = GetParam();
    Job job = JobOf(saves, ++stage % zero::kStages, "fp16");
    if (pieces) job.config.write_mode = checkpoint::WriteMode::kPieceFiles;
    const std::string name = absl::StrCat(stage);
    const fs::path folder = Save(job, saves, name);
    fs::path again;
    for (const GridCase& to : grids) {
      SCOPED_TRACE(
          absl::StrCat(ToString(from), " to ", ToString(to), pieces ? ", piece files" : ""));
      GridCase loads = to;
      loads.sequence_parallel = GetParam();
      Job resumed = JobOf(loads, (stage + to.tensor) % zero::kStages, "fp16");
      resumed.checkpoints.resume = folder.string();
      // The batch and what follows of it, as the positions that the model has.
      resumed.checkpoints.may_differ = {"train_batch_size"};
      Job saved_again = resumed;
      saved_again.steps = kHalf;
      saved_again.checkpoints.save =
          Folder(absl::StrCat(name, "-", to.tensor, to.context, to.data, to.pipeline)).string();
      Train(saved_again, loads.ranks());
      const fs::path copy = fs::path(saved_again.checkpoints.save) / "step-00000004";
      if (!pieces && from.data * from.context == to.data * to.context && from.data == to.data) {
        ExpectTheSame(folder, copy);
      }
      // Manifests have the batch of who saves.
      if (to.data != 2) continue;
      if (again.empty()) again = copy;
      ExpectTheSame(again, copy);
      if (from.ranks() != 2) continue;
      const Trained whole = Train(JobOf(loads, 0, "fp16"), loads.ranks());
      const Trained rest = Train(resumed, loads.ranks());
      ASSERT_EQ(rest.losses.size(), static_cast<size_t>(kHalf));
      if (to.context == 1) {
        EXPECT_EQ(rest.losses,
                  (std::vector<double>{whole.losses.begin() + kHalf, whole.losses.end()}));
        EXPECT_EQ(rest.held_out, whole.held_out);
      }
    }
  }
}

TEST_P(GridCheckpointTest, ADifferentNumberOfShardsIsAnError) {
  const GridCase grid = {.tensor = 2, .sequence_parallel = GetParam()};
  const fs::path folder = Save(JobOf(grid, 1, "fp32"), grid, "shards");
  Job job = JobOf(grid, 1, "fp32");
  job.config.tensor_shards = job.model.tensor_shards = 2;
  job.checkpoints.resume = folder.string();
  train::History history;
  const std::atomic<bool> stop = false;
  EXPECT_THAT(TrainOnThreads(job, 2, {&history, nullptr, &stop}).status(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("tensor_shards")));
  // It is the same model: with other shards the training goes on, with other bits.
  job.checkpoints.may_differ = {"tensor_shards"};
  const Trained rest = Train(job, 2);
  const Trained whole = Train(JobOf(grid, 1, "fp32"), 2);
  ASSERT_EQ(rest.losses.size(), static_cast<size_t>(kHalf));
  for (size_t step = 0; step < rest.losses.size(); ++step) {
    EXPECT_NEAR(rest.losses[step], whole.losses[kHalf + step], 1e-4);
  }
}

}  // namespace
}  // namespace brigade::gpt
