// Digests of trainings: the same files in every stage, on grids; and a bit that flips in a rank's
// memory, which the others find.

#include <atomic>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "brigade/device/files.h"
#include "brigade/digests/digest_file.h"
#include "brigade/digests/first_difference.h"
#include "brigade/examples/gpt/task.h"
#include "brigade/tests/collectives/ranks.h"
#include "brigade/tests/examples/gpt/grid_job.h"
#include "brigade/tests/examples/gpt/trained.h"
#include "brigade/tests/testing/status_matchers.h"
#include "brigade/train/observers/history.h"
#include "brigade/train/rank_trainer.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::train {

class RankTrainerTestPeer {
 public:
  static zero::ZeroOptimizer& Zero(RankTrainer& trainer) { return *trainer.zero_; }
};

}  // namespace brigade::train

namespace brigade::gpt {
namespace {

using ::brigade::testing::StatusIs;
using collectives::Rank;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int64_t kDigestedSteps = 6;

std::string PathOf(const std::string& name) { return ::testing::TempDir() + "/" + name; }

Job DigestedJob(const GridCase& grid, int shards, int stage, const std::string& name) {
  Job job = JobOf(grid, shards, stage, "bf16", kAdamW);
  job.steps = kDigestedSteps;
  job.digests = {.file = PathOf(name), .every = 2};
  // Where there is something to compare.
  if (stage < 3 && grid.ranks() > 1) job.digests.verify_every = 1;
  return job;
}

digests::DigestLog Digested(const GridCase& grid, int shards, int stage) {
  SCOPED_TRACE(absl::StrCat(ToString(grid), ", stage ", stage));
  const Job job = DigestedJob(grid, shards, stage, "digested");
  ExpectModelledMemoryAndTraffic(Train(job, grid.ranks()), job.steps);
  auto log = digests::ReadDigests(job.digests.file);
  EXPECT_OK(log);
  return log.ok() ? *std::move(log) : digests::DigestLog();
}

void ExpectAlike(const digests::DigestLog& a, const digests::DigestLog& b,
                 const std::string& what) {
  const auto compared = digests::FirstDifference(a, b);
  ASSERT_OK(compared) << what;
  EXPECT_EQ(compared->steps, 3) << what;
  EXPECT_FALSE(compared->difference.has_value())
      << what << ": step " << compared->difference->step << ", " << compared->difference->kind
      << " of " << compared->difference->tensors.size() << " tensors, "
      << compared->difference->tensors[0];
}

TEST(DigestsTrainingTest, AreTheSameInEveryStageAndForAnyTensorRanks) {
  const digests::DigestLog wanted = Digested({.data = 2}, 2, 0);
  for (const int tensor : {1, 2}) {
    for (int stage = 0; stage < zero::kStages; ++stage) {
      if (tensor == 1 && stage == 0) continue;
      ExpectAlike(
          Digested({.tensor = tensor, .data = 2, .sequence_parallel = tensor == 2}, 2, stage),
          Digested({.data = 2, .sequence_parallel = tensor == 2}, 2, 0),
          absl::StrCat("tensor ", tensor, ", stage ", stage));
    }
  }
  EXPECT_EQ(wanted.header.tensors.size(), wanted.steps[0].weights.size());
}

// With the books of memory, of traffic, and of what moves between tiers.
TEST(DigestsTrainingTest, AreTheSameWhereverStateAndWeightsAre) {
  using device::Tier;
  const digests::DigestLog wanted = Digested({.data = 2}, 1, 0);
  struct Place {
    int stage;
    Tier state, weights;
  };
  for (const Place& place : {Place{1, Tier::kHost, Tier::kDevice},
                             {2, Tier::kFile, Tier::kDevice},
                             {3, Tier::kHost, Tier::kDevice},
                             {3, Tier::kHost, Tier::kHost},
                             {3, Tier::kFile, Tier::kHost},
                             {3, Tier::kFile, Tier::kFile}}) {
    const std::string what =
        absl::StrCat("stage ", place.stage, ", state on ", device::ToString(place.state),
                     ", weights on ", device::ToString(place.weights));
    SCOPED_TRACE(what);
    Job job = DigestedJob({.data = 2}, 1, place.stage, "offloaded");
    zero::OffloadOptions& offload = job.config.zero.offload;
    offload.optimizer_state = place.state;
    offload.parameters = place.weights;
    offload.file.directory = ::testing::TempDir();
    ExpectModelledMemoryAndTraffic(Train(job, 2), job.steps);
    const auto log = digests::ReadDigests(job.digests.file);
    ASSERT_OK(log);
    ExpectAlike(*log, wanted, what);
  }
}

// 0/1 Adam's: each rank has weights of its own between two meetings, and shows its slice of them.
TEST(DigestsTrainingTest, OfLocalStepsFindAnotherRunOfTheSameRanks) {
  constexpr char kLocalSteps[] = R"({"train_batch_size": 4, "bf16": {"enabled": true},
      "optimizer": {"type": "ZeroOneAdam", "params": {"lr": 0.001, "var_freeze_step": 2,
                    "local_step_scaler": 1, "local_step_clipper": 2}}})";
  const auto digested = [&](uint64_t seed) {
    Job job = CreateJob(kLocalSteps, 2);
    job.seed = seed;
    job.steps = 2 * kDigestedSteps;
    job.digests = {.file = PathOf("local"), .every = 1};
    Train(job, 2);
    return digests::ReadDigests(job.digests.file).value();
  };
  const digests::DigestLog first = digested(1);
  EXPECT_EQ(first.steps.size(), size_t{2 * kDigestedSteps});
  const auto same = digests::FirstDifference(first, digested(1));
  ASSERT_OK(same);
  EXPECT_FALSE(same->difference.has_value());
  const auto other = digests::FirstDifference(first, digested(2));
  ASSERT_OK(other);
  ASSERT_TRUE(other->difference.has_value());
  EXPECT_EQ(other->difference->step, 1);
  EXPECT_EQ(other->difference->kind, "weights");
}

TEST(DigestsTrainingTest, OfLocalStepsAreNotComparedBetweenRanks) {
  Job job = CreateJob(R"({"train_batch_size": 4, "bf16": {"enabled": true},
      "optimizer": {"type": "ZeroOneAdam", "params": {"lr": 0.001}}})",
                      2);
  job.digests.verify_every = 1;
  const std::atomic<bool> stop = false;
  EXPECT_THAT(TrainOnThreads(job, 2, {nullptr, nullptr, &stop}).status(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("--verify_replicas: with local steps (0/1 Adam)")));
}

TEST(DigestsTrainingTest, AreTheSameForAnyScheduleOfAPipeline) {
  GridCase grid = {.pipeline = 2, .micro_batches = 2};
  const digests::DigestLog wanted = Digested(grid, 1, 0);
  grid.schedule = "zb-h1";
  for (const int stage : {1, 2, 3}) {
    ExpectAlike(Digested(grid, 1, stage), wanted, absl::StrCat("stage ", stage));
  }
}

// What first_difference reads to name an element: whole tensors, whoever has had parts of them.
struct Dumped {
  digests::DigestLog log;
  std::string folder;
  // By path in the folder.
  std::map<std::string, std::string> files;
};

Dumped DumpOf(Job job, const std::string& name) {
  Dumped dumped;
  dumped.folder = PathOf(absl::StrCat("dump_of_", name));
  std::filesystem::remove_all(dumped.folder);
  job.digests = {.file = PathOf(name), .every = 1, .dump = dumped.folder, .dump_step = 3};
  job.steps = 4;
  Train(job, static_cast<int>(job.config.grid.ranks()));
  dumped.log = digests::ReadDigests(job.digests.file).value();
  for (const auto& entry : std::filesystem::recursive_directory_iterator(dumped.folder)) {
    if (!entry.is_regular_file()) continue;
    const std::string path = std::filesystem::relative(entry.path(), dumped.folder).string();
    dumped.files[path] = device::ReadFile(entry.path().string()).value();
  }
  return dumped;
}

TEST(DigestsTrainingTest, ElementsHaveTheSamePlacesOnEveryGridAndAreNamedByThem) {
  struct Pair {
    GridCase grid, plain;
    int shards;
  };
  for (const Pair& pair :
       {Pair{{.tensor = 2, .data = 2}, {.data = 2}, 2},
        Pair{{.pipeline = 2, .micro_batches = 2}, {.micro_batches = 2}, 1},
        Pair{{.tensor = 2, .pipeline = 2, .micro_batches = 2}, {.micro_batches = 2}, 2}}) {
    SCOPED_TRACE(ToString(pair.grid));
    Job job = JobOf(pair.grid, pair.shards, 2, "bf16", kAdamW);
    Job plain = JobOf(pair.plain, pair.shards, 1, "bf16", kAdamW);
    const Dumped on_grid = DumpOf(job, "grid"), alone = DumpOf(plain, "plain");
    ASSERT_EQ(on_grid.files.size(), 2 * on_grid.log.header.tensors.size());
    for (const auto& [path, bytes] : alone.files) {
      ASSERT_TRUE(on_grid.files.contains(path)) << path;
      EXPECT_TRUE(on_grid.files.at(path) == bytes) << path;
    }
    // Another training on the grid: elements are those by which two plain ones differ.
    job.seed = plain.seed = 2;
    const Dumped other_on_grid = DumpOf(job, "other_grid"), other = DumpOf(plain, "other_plain");
    auto compared = digests::FirstDifference(alone.log, other_on_grid.log);
    ASSERT_OK(compared);
    // Of which there are dumps.
    compared->difference->step = 3;
    const auto found = digests::CompareDumps(*compared->difference, {alone.log, other_on_grid.log},
                                             {alone.folder, other_on_grid.folder}, 5);
    const auto wanted = digests::CompareDumps(*compared->difference, {alone.log, other.log},
                                              {alone.folder, other.folder}, 5);
    ASSERT_OK(found);
    ASSERT_OK(wanted);
    EXPECT_EQ(found->differing, wanted->differing);
    EXPECT_GT(found->differing, 0);
    ASSERT_EQ(found->first.size(), wanted->first.size());
    for (size_t i = 0; i < found->first.size(); ++i) {
      EXPECT_EQ(found->first[i].at, wanted->first[i].at);
      EXPECT_EQ(found->first[i].bits[1], wanted->first[i].bits[1]);
    }
  }
}

TEST(DigestsTrainingTest, FindAnotherSeed) {
  Job job = DigestedJob({.data = 2}, 1, 1, "seed");
  Train(job, 2);
  const auto first = digests::ReadDigests(job.digests.file);
  job.seed = 2;
  Train(job, 2);
  const auto second = digests::ReadDigests(job.digests.file);
  const auto compared = digests::FirstDifference(*first, *second);
  ASSERT_OK(compared);
  ASSERT_TRUE(compared->difference.has_value());
  EXPECT_EQ(compared->difference->step, 2);
  EXPECT_EQ(compared->difference->alike, 0);
}

TEST(DigestsTrainingTest, WaitForNothing) {
  std::vector<int64_t> waits;
  for (const bool has_digests : {false, true}) {
    Job job = DigestedJob({.data = 2}, 1, 2, "waits");
    job.digests.every = 1;
    if (!has_digests) job.digests = {};
    collectives::OnThreads({.size = 2}, [&](Rank& self) {
      train::Recorder recorder(nullptr);
      const auto grid = parallel::Grid::Create(job.config.grid, *self.communicator).value();
      const Task task(job);
      auto trainer =
          train::RankTrainer::Create(job, task, *grid, *self.context, *self.stream, recorder);
      ASSERT_OK(trainer);
      const int64_t before = self.context->host_waits();
      ASSERT_OK((*trainer)->Train(nullptr, std::atomic<bool>(false)));
      if (self.rank == 0) waits.push_back(self.context->host_waits() - before);
      self.AwaitOthers();
    });
  }
  ASSERT_EQ(waits.size(), 2u);
  EXPECT_EQ(waits[0], waits[1]);
}

TEST(DigestsTrainingTest, RefuseToCompareWhatHasNoCopy) {
  for (const int ranks : {1, 2}) {
    Job job = DigestedJob({.data = ranks}, 1, 3, "alone");
    job.digests.verify_every = 1;
    const std::atomic<bool> stop = false;
    train::History history;
    EXPECT_THAT(TrainOnThreads(job, ranks, {&history, nullptr, &stop}).status(),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         AllOf(HasSubstr("--verify_replicas is 1"),
                               HasSubstr(ranks == 1 ? "there is one rank" : "--shard_ranks"))));
  }
}

// Flips a bit of the token embedding on its rank, between two steps of its compute stream.
class Flips final : public train::Observer {
 public:
  explicit Flips(Rank& self) : self_(self) {}

  absl::Status OnStep(const train::StepMetrics& metrics) override {
    if (metrics.step != 1) return absl::OkStatus();
    zero::ZeroOptimizer& zero = train::RankTrainerTestPeer::Zero(*trainer);
    zero::UnitScope unit(zero, 0, zero::Pass::kForward);
    auto* const weight = static_cast<char*>(const_cast<void*>(unit.weights(0)));
    BRIGADE_RETURN_IF_ERROR(unit.status());
    // Behind the digests of the steps before.
    BRIGADE_RETURN_IF_ERROR(zero.step_stream().Record(*digested_));
    BRIGADE_RETURN_IF_ERROR(self_.stream->Wait(*digested_));
    BRIGADE_RETURN_IF_ERROR(self_.stream->Enqueue({"flip a bit", {device::Writes(weight, 2)}},
                                                  [weight](device::ThreadPool&) {
                                                    *weight ^= 1;
                                                    return absl::OkStatus();
                                                  }));
    return unit.Release();
  }
  absl::Status OnEvaluation(const train::Evaluation&) override { return absl::OkStatus(); }

  train::RankTrainer* trainer = nullptr;

 private:
  Rank& self_;
  const std::unique_ptr<device::Event> digested_ = self_.context->CreateEvent("digested").value();
};

// What each rank's training ends with.
std::vector<absl::Status> TrainWithAFlip(const GridCase& grid, int stage, int rank,
                                         device::Tier state = device::Tier::kDevice) {
  std::vector<absl::Status> ends(static_cast<size_t>(grid.ranks()));
  Job job = DigestedJob(grid, grid.tensor, stage, "flipped");
  job.config.zero.offload.optimizer_state = state;
  job.config.zero.offload.file.directory = ::testing::TempDir();
  collectives::OnThreads({.size = grid.ranks()}, [&](Rank& self) {
    train::Recorder recorder(nullptr);
    const auto made = parallel::Grid::Create(job.config.grid, *self.communicator).value();
    const Task task(job);
    auto trainer =
        train::RankTrainer::Create(job, task, *made, *self.context, *self.stream, recorder);
    ASSERT_OK(trainer);
    Flips flips(self);
    flips.trainer = trainer->get();
    const auto trained =
        (*trainer)->Train(self.rank == rank ? &flips : nullptr, std::atomic<bool>(false));
    absl::Status& end = ends[static_cast<size_t>(self.rank)];
    end = trained.status();
    // As the program does.
    if (!end.ok()) made->Abort(end).IgnoreError();
    self.AwaitOthers();
  });
  return ends;
}

TEST(DigestsTrainingTest, ABitThatFlipsEndsTheTrainingAndNamesTheRank) {
  for (int stage = 0; stage < 3; ++stage) {
    SCOPED_TRACE(stage);
    for (const absl::Status& end : TrainWithAFlip({.data = 3}, stage, 1)) {
      // Two steps are on their way when the metrics of step 1 are there.
      EXPECT_THAT(end, StatusIs(absl::StatusCode::kDataLoss,
                                AllOf(HasSubstr("step 3, unit \"embedding\""),
                                      HasSubstr("rank 1 is alone with others than rank 0 and "
                                                "rank 2"))));
    }
  }
}

TEST(DigestsTrainingTest, ABitThatFlipsIsFoundOnGrids) {
  // The embedding is cut: ranks 1, 3 and 5 have the second shard.
  for (const absl::Status& end : TrainWithAFlip({.tensor = 2, .data = 3}, 1, 3)) {
    EXPECT_THAT(end, StatusIs(absl::StatusCode::kDataLoss,
                              HasSubstr("rank 3 is alone with others than rank 1 and rank 5")));
  }
  for (const absl::Status& end :
       TrainWithAFlip({.data = 3, .pipeline = 2, .micro_batches = 2}, 2, 2)) {
    EXPECT_THAT(end, StatusIs(absl::StatusCode::kDataLoss, HasSubstr("rank 2 is alone")));
  }
}

// Of every rank that has the embedding, in three copies or more; with the state in each place.
TEST(DigestsTrainingSoakTest, ABitThatFlipsIsFoundOnEveryGridInEveryStageAndPlace) {
  using device::Tier;
  int cases = 0;
  for (const GridCase& grid :
       {GridCase{.data = 3}, GridCase{.tensor = 2, .data = 3, .sequence_parallel = true},
        GridCase{.context = 2, .data = 2}, GridCase{.context = 2, .data = 2, .ring = true},
        GridCase{.data = 3, .pipeline = 2, .micro_batches = 2},
        GridCase{.tensor = 2, .data = 3, .pipeline = 2, .micro_batches = 2}}) {
    for (int stage = 0; stage < 3; ++stage) {
      for (const Tier state : {Tier::kDevice, Tier::kHost, Tier::kFile}) {
        if (stage == 0 && state != Tier::kDevice) continue;
        // Ranks of one stage of a pipeline are side by side.
        const int rank = cases++ % (grid.ranks() / grid.pipeline);
        SCOPED_TRACE(absl::StrCat(ToString(grid), ", stage ", stage, ", state on ",
                                  device::ToString(state), ", rank ", rank));
        for (const absl::Status& end : TrainWithAFlip(grid, stage, rank, state)) {
          EXPECT_THAT(end, StatusIs(absl::StatusCode::kDataLoss,
                                    AllOf(HasSubstr("step 3, unit \"embedding\""),
                                          HasSubstr(absl::StrCat("rank ", rank, " is alone")))));
        }
        if (HasFailure()) return;
      }
    }
  }
  EXPECT_EQ(cases, 6 * 7);
}

}  // namespace
}  // namespace brigade::gpt
