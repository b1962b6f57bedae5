// What loading refuses, and what it takes.

#include "brigade/checkpoint/loader.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "brigade/checkpoint/checkpoint_folder.h"
#include "brigade/checkpoint/durable_file.h"
#include "brigade/checkpoint/saver.h"
#include "brigade/device/file/crc32c.h"
#include "brigade/optim/step_controller.h"
#include "brigade/tests/checkpoint/crash_file_system.h"
#include "brigade/tests/checkpoint/other_system_calls.h"
#include "brigade/tests/checkpoint/toy_training.h"
#include "brigade/tests/collectives/ranks.h"
#include "brigade/tests/testing/status_matchers.h"
#include "brigade/tests/zero/captured_state.h"
#include "brigade/tests/zero/toy_model.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::checkpoint {
namespace {

using ::brigade::testing::StatusIs;
using collectives::OnThreads;
using collectives::Rank;
using precision::DType;
using ::testing::AllOf;
using testing::CrashFileSystem;
using ::testing::HasSubstr;
using testing::kRoot;
using testing::ToRoot;
using testing::ToyOptions;
using testing::TrainingFields;
using zero::Capture;
using zero::ModelSpec;
using zero::ZeroOptimizer;
using zero::ZeroOptions;

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
constexpr auto kDataLoss = absl::StatusCode::kDataLoss;

std::string Folder(int64_t step = 3) { return CheckpointPath(kRoot, step); }

void Replace(device::SystemCalls& system, const std::string& path, const std::string& content) {
  system.Unlink(path);
  auto file = WritableFile::Create(system, path, 0);
  ASSERT_OK(file);
  ASSERT_OK(file->Write(content, 0));
  ASSERT_OK(file->Finish());
}

void Save(ZeroOptimizer& zero, Rank& self, device::SystemCalls& disk,
          const SaverOptions& options = ToRoot(), const Fields& training = TrainingFields()) {
  auto saver = Saver::Create(options, zero, *self.communicator, *self.context, disk);
  ASSERT_OK(saver);
  ASSERT_OK((*saver)->Begin(training));
  const auto report = (*saver)->Wait();
  ASSERT_OK(report);
  EXPECT_OK(report->older_removed);
}

std::unique_ptr<ZeroOptimizer> Create(Rank& self, const ZeroOptions& options = ToyOptions(2),
                                      const ModelSpec& model = zero::ToyModel()) {
  auto zero = CreateZero(model, options, self);
  EXPECT_OK(zero);
  EXPECT_OK(InitializeToy(**zero));
  return *std::move(zero);
}

void TrainSteps(ZeroOptimizer& zero, Rank& self, int first, int last) {
  zero::ToyTrainer trainer(zero, self);
  trainer.step = first;
  while (trainer.step < last) ASSERT_OK(trainer.Step());
  ASSERT_OK(self.stream->Synchronize());
}

// With two groups, and a schedule.
ZeroOptions GroupedOptions() {
  ZeroOptions options = ToyOptions(2);
  options.optimizer.groups.resize(2);
  options.optimizer.groups[1].lr = 0.25;
  options.optimizer.groups[1].schedule = optim::WarmupLR{.warmup_num_steps = 10};
  return options;
}

// Step 3 of two ranks.
void SaveGrouped(CrashFileSystem& disk) {
  OnThreads({.size = 2}, [&](Rank& self) {
    auto zero = Create(self, GroupedOptions());
    TrainSteps(*zero, self, 0, 3);
    Save(*zero, self, disk);
  });
}

struct Other {
  std::string difference;
  std::function<void(ModelSpec&, ZeroOptions&, Fields&)> change;
};

std::vector<Other> Others() {
  using M = ModelSpec;
  using O = ZeroOptions;
  using F = Fields;
  return {
      {"ln is [65] float16, group 0 in the checkpoint, and not known here",
       [](M& model, O&, F&) { model[4].parameters[0].name = "norm"; }},
      {"wpe is [37] float16, group 0 in the checkpoint, [38] float16, group 0 here",
       [](M& model, O&, F&) { model[0].parameters[1].size = 38; }},
      {"h.0.frozen is [50] float16, frozen in the checkpoint, [50] float16, group 0 here",
       [](M& model, O&, F&) { model[1].parameters[2].trainable = true; }},
      {"h.0.b is [3] float16, group 0 in the checkpoint, [3] float16, frozen here",
       [](M& model, O&, F&) { model[1].parameters[1].trainable = false; }},
      {"ln is [65] float16, group 0 in the checkpoint, [65] float32, group 0 here",
       [](M& model, O&, F&) { model[4].parameters[0].dtype = DType::kFloat32; }},
      {"ln is [65] float16, group 0 in the checkpoint, [65] float16, group 1 here",
       [](M& model, O&, F&) { model[4].parameters[0].group = 1; }},
      {"h.0.w is [1500] float16, group 0 in the checkpoint, [30, 50] float16, group 0 here",
       [](M& model, O&, F&) {
         model[1].parameters[0].shape = {30, 50};
       }},
      {"tensor 0 of master-",
       [](M& model, O&, F&) { std::swap(model[0].parameters[0], model[0].parameters[1]); }},
      {"dtype is float16 in the checkpoint, bfloat16 here",
       [](M&, O& options, F&) {
         options.dtype = DType::kBFloat16;
         options.loss_scaler = {};
       }},
      {"optimizer is AdamW in the checkpoint, Adam here",
       [](M&, O& options, F&) { options.optimizer.kind = optim::OptimizerKind::kAdam; }},
      {"groups[0].lr is 0.001 in the checkpoint, 0.5 here",
       [](M&, O& options, F&) { options.optimizer.groups[0].lr = 0.5; }},
      {"groups[1].schedule is WarmupLR in the checkpoint, ConstantLR here",
       [](M&, O& options, F&) { options.optimizer.groups[1].schedule = optim::ConstantLR(); }},
      {"groups[1].schedule.warmup_num_steps is 10 in the checkpoint, 11 here",
       [](M&, O& options, F&) {
         std::get<optim::WarmupLR>(options.optimizer.groups[1].schedule).warmup_num_steps = 11;
       }},
      {"groups[0].beta1 is 0.9 in the checkpoint, 0.5 here",
       [](M&, O& options, F&) { options.optimizer.groups[0].beta1 = 0.5; }},
      {"groups[1].beta2 is 0.999 in the checkpoint, 0.5 here",
       [](M&, O& options, F&) { options.optimizer.groups[1].beta2 = 0.5; }},
      {"groups[1].beta1 is 0.9 in the checkpoint, and not known here",
       [](M&, O& options, F&) { options.optimizer.groups.resize(1); }},
      {"groups[2].beta1 is not in the checkpoint, 0.9 here",
       [](M&, O& options, F&) { options.optimizer.groups.resize(3); }},
      {"loss_scaler.loss_scale_window is 3 in the checkpoint, 4 here",
       [](M&, O& options, F&) { options.loss_scaler.loss_scale_window = 4; }},
      {"seed is 1 in the checkpoint, 2 here", [](M&, O&, F& training) { training["seed"] = "2"; }},
      {"more is not in the checkpoint, 1 here",
       [](M&, O&, F& training) { training["more"] = "1"; }},
      {"data is the toy's in the checkpoint, and not known here",
       [](M&, O&, F& training) { training.erase("data"); }},
  };
}

TEST(LoaderTest, NamesTheFirstDifferenceOnAllRanksAndChangesNothing) {
  CrashFileSystem disk;
  SaveGrouped(disk);
  for (const Other& other : Others()) {
    SCOPED_TRACE(other.difference);
    ModelSpec model = zero::ToyModel();
    ZeroOptions options = GroupedOptions();
    Fields training = TrainingFields();
    other.change(model, options, training);
    OnThreads({.size = 2}, [&](Rank& self) {
      auto zero = Create(self, options, model);
      ASSERT_OK(zero->controller().SetLearningRate(0, 0.125, zero->step_stream()));
      const auto before = Capture(*zero, self).value();
      EXPECT_THAT(Load(Folder(), training, *zero, *self.communicator, {}, disk).status(),
                  StatusIs(kInvalid, AllOf(HasSubstr(other.difference), HasSubstr(Folder()))));
      EXPECT_EQ(Capture(*zero, self).value(), before);
      EXPECT_EQ(zero->controller().group(0).lr, 0.125);
    });
    EXPECT_EQ(disk.open_files(), 0);
  }
}

// Of one rank alone: all hear of it.
TEST(LoaderTest, ADifferenceOfOneRankIsOneOfAll) {
  CrashFileSystem disk;
  SaveGrouped(disk);
  OnThreads({.size = 3}, [&](Rank& self) {
    auto zero = Create(self, GroupedOptions());
    const auto before = Capture(*zero, self).value();
    Fields training = TrainingFields();
    if (self.rank == 1) training["seed"] = "2";
    EXPECT_THAT(Load(Folder(), training, *zero, *self.communicator, {}, disk).status(),
                StatusIs(kInvalid, AllOf(HasSubstr(self.rank == 1 ? "" : "rank 1: "),
                                         HasSubstr("seed is 1 in the checkpoint, 2 here"))));
    EXPECT_EQ(Capture(*zero, self).value(), before);
  });
}

TEST(LoaderTest, WhatMayDifferIsAsItIsHere) {
  CrashFileSystem disk;
  OnThreads({.size = 2}, [&](Rank& self) {
    auto zero = Create(self, GroupedOptions());
    // Not what the options say.
    ASSERT_OK(zero->controller().SetLearningRate(0, 0.0625, zero->step_stream()));
    TrainSteps(*zero, self, 0, 3);
    Save(*zero, self, disk);
  });
  struct Case {
    std::function<void(ZeroOptions&)> change;
    double lr;
    std::vector<std::string> may_differ;
  };
  const Case cases[] = {
      // They are the same: the rate of the run goes on.
      {[](ZeroOptions&) {}, 0.0625, {"groups[0].lr", "groups[1]"}},
      {[](ZeroOptions& options) { options.optimizer.groups[0].lr = 0.5; }, 0.5, {"groups[0].lr"}},
      {[](ZeroOptions& options) { options.optimizer.groups[0].lr = 0.5; }, 0.5, {"groups"}},
      {[](ZeroOptions& options) {
         options.optimizer.groups[0].schedule = optim::WarmupLR{.warmup_num_steps = 7};
       },
       0.0625,
       {"groups[0].schedule"}}};
  for (const Case& each : cases) {
    ZeroOptions options = GroupedOptions();
    each.change(options);
    OnThreads({.size = 2}, [&](Rank& self) {
      auto zero = Create(self, options);
      ASSERT_OK(Load(Folder(), TrainingFields(), *zero, *self.communicator,
                     {.may_differ = each.may_differ}, disk));
      const optim::ParameterGroup& group = zero->controller().group(0);
      EXPECT_EQ(group.lr, each.lr);
      EXPECT_EQ(group.schedule.index(), options.optimizer.groups[0].schedule.index());
      EXPECT_EQ(std::get<optim::WarmupLR>(zero->controller().group(1).schedule).warmup_num_steps,
                10);
    });
  }
}

// The same bits as without the interruption.
TEST(LoaderTest, RatesThatTheRunHasChangedAreInForceAgain) {
  CrashFileSystem disk;
  OnThreads({.size = 2}, [&](Rank& self) {
    auto whole = Create(self, GroupedOptions());
    TrainSteps(*whole, self, 0, 2);
    ASSERT_OK(whole->controller().SetLearningRate(0, 0.0625, whole->step_stream()));
    ASSERT_OK(whole->controller().SetSchedule(
        1, 0.125, optim::WarmupLR{.warmup_max_lr = 0.5, .warmup_num_steps = 5},
        whole->step_stream()));
    TrainSteps(*whole, self, 2, 3);
    Save(*whole, self, disk);
    TrainSteps(*whole, self, 3, 6);
    auto resumed = Create(self, GroupedOptions());
    ASSERT_OK(Load(Folder(), TrainingFields(), *resumed, *self.communicator, {}, disk));
    EXPECT_EQ(resumed->controller().group(0).lr, 0.0625);
    TrainSteps(*resumed, self, 3, 6);
    EXPECT_EQ(Capture(*resumed, self).value(), Capture(*whole, self).value());
  });
}

TEST(LoaderTest, ARankThatSeesAnotherManifestIsRefused) {
  CrashFileSystem disks[2];
  for (const int seed : {0, 1}) {
    OnThreads({.size = 2}, [&](Rank& self) {
      auto zero = Create(self);
      TrainSteps(*zero, self, seed, 3 + seed);
      Save(*zero, self, disks[seed]);
    });
  }
  CrashFileSystem none;
  OnThreads({.size = 2}, [&](Rank& self) {
    auto zero = Create(self);
    const auto before = Capture(*zero, self).value();
    EXPECT_THAT(
        Load(Folder(), TrainingFields(), *zero, *self.communicator, {}, disks[self.rank]).status(),
        StatusIs(kInvalid, Folder() + ": rank 1 sees another checkpoint than rank 0"));
    EXPECT_EQ(Capture(*zero, self).value(), before);
    EXPECT_THAT(Load(Folder(), TrainingFields(), *zero, *self.communicator, {},
                     self.rank == 1 ? none : disks[0])
                    .status(),
                StatusIs(absl::StatusCode::kNotFound,
                         HasSubstr("cannot open " + Folder() + "/manifest.json")));
    EXPECT_EQ(Capture(*zero, self).value(), before);
  });
}

// Each with the folder, the manifest and the files of its own rank.
TEST(LoaderTest, HostsWithDisksOfTheirOwnResume) {
  CrashFileSystem disks[3];
  OnThreads({.size = 3}, [&](Rank& self) {
    auto zero = Create(self);
    TrainSteps(*zero, self, 0, 3);
    // Rank 0's is saved.
    Fields training = TrainingFields();
    training["seed"] = absl::StrCat(1 + self.rank);
    Save(*zero, self, disks[self.rank], ToRoot(WriteMode::kPieceFiles), training);
    auto resumed = Create(self);
    const auto latest = FindLatest(kRoot, *self.communicator, 1000, disks[self.rank]);
    ASSERT_OK(latest);
    EXPECT_EQ(*latest, 3);
    ASSERT_OK(Load(Folder(), TrainingFields(), *resumed, *self.communicator, {}, disks[self.rank]));
    EXPECT_EQ(Capture(*resumed, self).value(), Capture(*zero, self).value());
  });
  // The root, its lock, the checkpoint, and two files.
  for (const CrashFileSystem& disk : disks) EXPECT_EQ(disk.All().size(), 5u);
}

// What ends all between the commits of two hosts leaves the newest one on some of them.
TEST(LoaderTest, HostsWithDisksOfTheirOwnGoOnFromWhatAllHave) {
  CrashFileSystem disks[3];
  OnThreads({.size = 3}, [&](Rank& self) {
    CrashFileSystem& disk = disks[self.rank];
    const auto find = [&](int64_t before = 1000) {
      return FindLatest(kRoot, *self.communicator, before, disk);
    };
    int lost = 0;
    const auto remove = [&](int64_t step) {
      EXPECT_EQ(disk.Rename(Folder(step), absl::StrCat(kRoot, "/lost-", ++lost)), 0);
    };
    auto zero = Create(self);
    for (const int step : {1, 2, 3, 4}) {
      TrainSteps(*zero, self, step - 1, step);
      Save(*zero, self, disk, ToRoot(WriteMode::kPieceFiles));
    }
    if (self.rank == 1) remove(4);
    if (self.rank == 2) remove(3);
    auto found = find();
    ASSERT_OK(found);
    EXPECT_EQ(*found, 2);
    auto resumed = Create(self);
    ASSERT_OK(Load(Folder(2), TrainingFields(), *resumed, *self.communicator, {}, disk));
    auto aside = SetAsideLater(kRoot, 2, *self.communicator, disk);
    ASSERT_OK(aside);
    EXPECT_EQ(*aside, 4);
    EXPECT_EQ(ListCheckpoints(disk, kRoot).value(), (std::vector<int64_t>{1, 2}));
    aside = SetAsideLater(kRoot, 2, *self.communicator, disk);
    ASSERT_OK(aside);
    EXPECT_EQ(*aside, std::nullopt);
    // It comes to these steps again.
    TrainSteps(*resumed, self, 2, 4);
    Save(*resumed, self, disk, ToRoot(WriteMode::kPieceFiles));
    found = find();
    ASSERT_OK(found);
    EXPECT_EQ(*found, 4);

    // A disk that is not the one, or an empty one.
    if (self.rank == 1) {
      for (const int step : {1, 2, 4}) remove(step);
    }
    EXPECT_THAT(find(), StatusIs(absl::StatusCode::kNotFound,
                                 "no checkpoint in /checkpoints that all ranks have: rank 1 has no "
                                 "other, or none"));
    found = find(1);
    ASSERT_OK(found);
    EXPECT_EQ(*found, std::nullopt);
  });
}

// All of whom give it the other name.
TEST(LoaderTest, RanksThatSeeOneFolderSetItAsideOnce) {
  for (int run = 0; run < 20; ++run) {
    CrashFileSystem disk;
    OnThreads({.size = 4}, [&](Rank& self) {
      if (self.rank == 0) {
        disk.MakeFolder(kRoot, 0777);
        for (const int step : {1, 2}) {
          disk.MakeFolder(Folder(step), 0777);
          Replace(disk, Folder(step) + "/manifest.json", "");
        }
      }
      self.AwaitOthers();
      const auto aside = SetAsideLater(kRoot, 1, *self.communicator, disk);
      ASSERT_OK(aside);
      EXPECT_EQ(*aside, 2);
    });
    EXPECT_EQ(ListCheckpoints(disk, kRoot).value(), std::vector<int64_t>{1});
    EXPECT_EQ(disk.All().count("/checkpoints/damaged-step-00000002/manifest.json"), 1u);
  }
}

// Nothing is wrong with it.
TEST(LoaderTest, ACheckpointOfALaterVersionIsNotADamagedOne) {
  CrashFileSystem disk;
  OnThreads({.size = 2}, [&](Rank& self) {
    auto zero = Create(self);
    TrainSteps(*zero, self, 0, 2);
    Save(*zero, self, disk);
    if (self.rank == 0) {
      const std::string text = "{\n\"format\": \"brigade checkpoint\",\n\"version\": 2";
      Replace(disk, Folder(2) + "/manifest.json",
              absl::StrCat(text,
                           absl::StrFormat(",\n\"crc32c\": \"%08x\"\n}\n", device::Crc32c(text))));
    }
    self.AwaitOthers();
    EXPECT_THAT(Load(Folder(2), TrainingFields(), *zero, *self.communicator, {}, disk).status(),
                StatusIs(absl::StatusCode::kUnimplemented,
                         HasSubstr("manifest.json: version 2 is not known; 1 is")));
  });
}

// Each rank reads what it owns, and of the rest the manifest and some headers.
TEST(LoaderTest, EachOfMRanksReadsAnMth) {
  class Counting final : public testing::OtherSystemCalls {
   public:
    using OtherSystemCalls::OtherSystemCalls;
    ssize_t ReadAt(int fd, void* to, size_t bytes, off_t offset) override {
      const ssize_t count = OtherSystemCalls::ReadAt(fd, to, bytes, offset);
      read += std::max<ssize_t>(count, 0);
      return count;
    }
    int64_t read = 0;
  };
  const ModelSpec model = {{"one", {{"a", 40000}, {"b", 3}}}, {"two", {{"c", 60000}}}};
  constexpr int64_t kStateBytes = 3 * 4 * 100003;
  for (const WriteMode mode : {WriteMode::kInPlace, WriteMode::kPieceFiles}) {
    CrashFileSystem disk;
    const SaverOptions options = {.root = kRoot, .mode = mode};
    OnThreads({.size = 2}, [&](Rank& self) {
      auto zero = Create(self, ToyOptions(1), model);
      Save(*zero, self, disk, options);
    });
    for (const int ranks : {1, 2, 4}) {
      std::vector<int64_t> read(static_cast<size_t>(ranks));
      OnThreads({.size = ranks}, [&](Rank& self) {
        auto zero = Create(self, ToyOptions(0), model);
        Counting counting(&disk);
        ASSERT_OK(Load(Folder(0), TrainingFields(), *zero, *self.communicator, {}, counting));
        read[static_cast<size_t>(self.rank)] = counting.read;
      });
      // Of the manifest, headers and what slices are padded by.
      constexpr int64_t kMore = 40000;
      int64_t sum = 0;
      for (const int64_t each : read) {
        EXPECT_LE(each, kStateBytes / ranks + kMore) << ranks;
        sum += each;
      }
      EXPECT_GE(sum, kStateBytes);
    }
  }
}

TEST(LoaderTest, DamageIsDataLossNamingTheFileOnAllRanks) {
  for (const WriteMode mode : {WriteMode::kInPlace, WriteMode::kPieceFiles}) {
    CrashFileSystem whole;
    OnThreads({.size = 2}, [&](Rank& self) {
      auto zero = Create(self);
      TrainSteps(*zero, self, 0, 3);
      Save(*zero, self, whole, ToRoot(mode));
    });
    for (const auto& [path, bytes] : testing::FilesOf(whole, 3)) {
      if (absl::EndsWith(path, "/") || absl::EndsWith(path, ".index.json")) continue;
      const bool is_manifest = absl::EndsWith(path, "manifest.json");
      std::string flipped = bytes;
      flipped[bytes.size() - 2] ^= 4;
      struct Damage {
        const char* name;
        std::optional<std::string> content;
      };
      const Damage damages[] = {{"missing", {}},
                                {"empty", ""},
                                {"short", bytes.substr(0, bytes.size() - 1)},
                                {"long", bytes + "x"},
                                {"flipped", flipped}};
      for (const Damage& damage : damages) {
        SCOPED_TRACE(absl::StrCat(path, " ", damage.name));
        auto disk = whole.AfterCrash(CrashFileSystem::Data::kAll, CrashFileSystem::Names::kAll);
        if (damage.content.has_value()) {
          Replace(*disk, path, *damage.content);
        } else {
          ASSERT_EQ(disk->Unlink(path), 0);
        }
        const bool is_flipped = std::string(damage.name) == "flipped";
        // In a piece file it is a tensor of a file of the manifest.
        const bool names_tensor = is_flipped && !is_manifest;
        const std::string file = names_tensor && mode == WriteMode::kPieceFiles ? Folder() : path;
        OnThreads({.size = 3}, [&](Rank& self) {
          auto zero = Create(self);
          const absl::Status status =
              Load(Folder(), TrainingFields(), *zero, *self.communicator, {}, *disk).status();
          EXPECT_THAT(
              status,
              StatusIs(is_manifest && !damage.content.has_value() ? absl::StatusCode::kNotFound
                                                                  : kDataLoss,
                       AllOf(HasSubstr(file), HasSubstr(names_tensor ? "tensor \"" : ""))));
        });
        EXPECT_EQ(disk->open_files(), 0);
      }
    }
  }
}

TEST(LoaderTest, FindsTheNewestAndNothingElse) {
  CrashFileSystem disk;
  OnThreads({.size = 2}, [&](Rank& self) {
    const auto find = [&](int64_t before = 1000) {
      const auto found = FindLatest(kRoot, *self.communicator, before, disk);
      EXPECT_OK(found);
      return found.value_or(std::nullopt);
    };
    // There is no such folder.
    EXPECT_EQ(find(), std::nullopt);
    auto zero = Create(self);
    for (const int step : {2, 4}) {
      TrainSteps(*zero, self, step - 2, step);
      Save(*zero, self, disk);
    }
    if (self.rank == 0) {
      for (const char* name : {"/.step-00000005.part-0123456789abcdef", "/.trash-step-00000006",
                               "/step-00000007", "/damaged-step-00000008", "/step-9"}) {
        disk.MakeFolder(kRoot + std::string(name), 0777);
        if (absl::EndsWith(name, "7")) continue;
        Replace(disk, absl::StrCat(kRoot, name, "/manifest.json"), "");
      }
      Replace(disk, absl::StrCat(kRoot, "/step-00000010"), "a file");
    }
    self.AwaitOthers();
    EXPECT_EQ(find(), 4);
    EXPECT_EQ(find(4), 2);
    EXPECT_EQ(find(2), std::nullopt);
    // The newest is damaged.
    self.AwaitOthers();
    if (self.rank == 0) Replace(disk, Folder(4) + "/manifest.json", "{}");
    self.AwaitOthers();
    ASSERT_EQ(find(), 4);
    EXPECT_THAT(Load(Folder(4), TrainingFields(), *zero, *self.communicator, {}, disk).status(),
                StatusIs(kDataLoss, HasSubstr(Folder(4) + "/manifest.json: ")));
    EXPECT_OK(Load(Folder(2), TrainingFields(), *zero, *self.communicator, {}, disk));
    EXPECT_EQ(zero->controller().SaveState(zero->step_stream()).value().iteration, 2);
    // One that cannot be read.
    self.AwaitOthers();
    if (self.rank == 0) {
      disk.set_fault(
          [](const std::string& call, const std::string&) { return call == "open" ? EACCES : 0; });
    }
    self.AwaitOthers();
    EXPECT_THAT(FindLatest(kRoot, *self.communicator, 1000, disk).status(),
                StatusIs(absl::StatusCode::kPermissionDenied, HasSubstr("step-0000000")));
  });
}

}  // namespace
}  // namespace brigade::checkpoint
