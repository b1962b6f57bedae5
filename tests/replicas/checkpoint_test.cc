// Outer weights and momentum in checkpoints: saved by replicas of two ranks, loaded by replicas of
// one, in another stage. And the errors of exchanges, which are each replica's own.

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "brigade/checkpoint/checkpoint_folder.h"
#include "brigade/checkpoint/loader.h"
#include "brigade/checkpoint/saver.h"
#include "brigade/device/files.h"
#include "brigade/tests/collectives/ranks.h"
#include "brigade/tests/replicas/replica_job.h"
#include "brigade/tests/testing/status_matchers.h"
#include "brigade/tests/zero/test_peer.h"
#include "brigade/tests/zero/toy_model.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::replicas {
namespace {

using collectives::OnThreads;
using collectives::Rank;

constexpr OuterOptions kOptions = {.period = 3};

std::string FolderOf(int replica) {
  return ::testing::TempDir() + "/replica" + std::to_string(replica);
}

float GradientOf(int replica) { return replica == 0 ? 1.0f : 3.0f; }

TEST(ReplicaCheckpointTest, OtherRanksGoOnInTheMiddleOfAPeriod) {
  std::vector<float> wanted;
  OnThreads({.size = 4}, [&](Rank& self) {
    auto member = CreateMember(Lines(2, 300), Plain(2, 0.25), kOptions, 2, self);
    ASSERT_OK(member);
    ASSERT_OK(SetAll(*member, 1.0f));
    auto saver = checkpoint::Saver::Create({.root = FolderOf(member->replica)}, *member->zero,
                                           *member->groups.inside, *self.context);
    ASSERT_OK(saver);
    ASSERT_OK(member->outer->Join(*member->groups.between));
    for (int step = 1; step <= 9; ++step) {
      ASSERT_OK(StepAlong(*member, self, GradientOf(member->replica)));
      ASSERT_OK(member->outer->Step());
      if (step != 4) continue;
      ASSERT_OK((*saver)->Begin({}));
      ASSERT_OK((*saver)->Wait());
    }
    const std::vector<float> now = Masters(*member->zero).value();
    if (self.rank == 0) wanted = now;
    self.AwaitOthers();
    EXPECT_EQ(now, wanted);
  });
  OnThreads({.size = 2}, [&](Rank& self) {
    auto member = CreateMember(Lines(2, 300), Plain(3, 0.25), kOptions, 2, self);
    ASSERT_OK(member);
    const auto latest = checkpoint::FindLatest(FolderOf(self.rank), *member->groups.inside);
    ASSERT_OK(latest);
    ASSERT_EQ(**latest, 4);
    const auto state = checkpoint::Load(checkpoint::CheckpointPath(FolderOf(self.rank), 4), {},
                                        *member->zero, *member->groups.inside);
    ASSERT_OK(state);
    member->outer->Resume(state->iteration);
    ASSERT_OK(member->outer->Join(*member->groups.between));
    for (int step = 5; step <= 9; ++step) {
      ASSERT_OK(StepAlong(*member, self, GradientOf(self.rank)));
      ASSERT_OK(member->outer->Step());
    }
    EXPECT_EQ(Masters(*member->zero).value(), wanted);
    self.AwaitOthers();
  });
}

zero::ZeroOptions Exchanging(int stage, zero::GradientCompression method) {
  zero::ZeroOptions options;
  options.stage = stage;
  options.dtype = precision::DType::kBFloat16;
  options.bucket_elements = 1000;
  options.gradient_compression = {.method = method, .rank = 2, .density = 0.03};
  return options;
}

// By name, of the files of a checkpoint.
std::map<std::string, std::string> FilesOf(const std::string& folder) {
  std::map<std::string, std::string> files;
  for (const auto& each : std::filesystem::directory_iterator(folder)) {
    files[each.path().filename().string()] = device::ReadFile(each.path().string()).value();
  }
  return files;
}

// Replicas of four ranks save, replicas of two load, in another stage, and save what they have: the
// same bytes. What one replica's messages have left out is none of another's.
TEST(ReplicaCheckpointTest, ErrorsOfExchangesGoFromFourRanksToTwo) {
  constexpr int kSteps = 5;
  for (const auto method : zero::kGradientCompressions) {
    SCOPED_TRACE(zero::Name(method));
    const auto folder = [&](const char* run, int replica) {
      return absl::StrCat(::testing::TempDir(), "/", zero::Name(method), run, replica);
    };
    OnThreads({.size = 8}, [&](Rank& self) {
      auto member = CreateMember(zero::ToyMatrices(), Exchanging(1, method), kOptions, 2, self);
      ASSERT_OK(member);
      ASSERT_OK(zero::InitializeToy(*member->zero));
      auto saver = checkpoint::Saver::Create({.root = folder("_saved", member->replica)},
                                             *member->zero, *member->groups.inside, *self.context);
      ASSERT_OK(saver);
      ASSERT_OK(member->outer->Join(*member->groups.between));
      zero::ToyTrainer trainer(*member->zero, self);
      for (int step = 0; step < kSteps; ++step) {
        ASSERT_OK(trainer.Step());
        ASSERT_OK(member->outer->Step());
      }
      ASSERT_OK(member->zero->ShareErrors());
      ASSERT_OK((*saver)->Begin({}));
      ASSERT_OK((*saver)->Wait());
      self.AwaitOthers();
    });
    OnThreads({.size = 4}, [&](Rank& self) {
      auto member = CreateMember(zero::ToyMatrices(), Exchanging(2, method), kOptions, 2, self);
      ASSERT_OK(member);
      auto saver = checkpoint::Saver::Create({.root = folder("_again", member->replica)},
                                             *member->zero, *member->groups.inside, *self.context);
      ASSERT_OK(saver);
      const auto state =
          checkpoint::Load(checkpoint::CheckpointPath(folder("_saved", member->replica), kSteps),
                           {}, *member->zero, *member->groups.inside);
      ASSERT_OK(state);
      member->outer->Resume(state->iteration);
      ASSERT_OK(member->outer->Join(*member->groups.between));
      const std::string left_out = zero::LeftOut(*member->zero);
      EXPECT_TRUE(left_out != std::string(left_out.size(), '\0'));
      ASSERT_OK(member->zero->ShareErrors());
      ASSERT_OK((*saver)->Begin({}));
      ASSERT_OK((*saver)->Wait());
      // They go on.
      zero::ToyTrainer trainer(*member->zero, self);
      for (int step = 0; step < 4; ++step) {
        ASSERT_OK(trainer.Step());
        ASSERT_OK(member->outer->Step());
      }
      ASSERT_OK(self.stream->Synchronize());
      EXPECT_EQ(member->outer->rounds(), 2);
      EXPECT_TRUE(zero::LeftOut(*member->zero) != left_out);
      self.AwaitOthers();
    });
    std::vector<std::map<std::string, std::string>> saved;
    for (const int replica : {0, 1}) {
      saved.push_back(FilesOf(checkpoint::CheckpointPath(folder("_saved", replica), kSteps)));
      const auto again = FilesOf(checkpoint::CheckpointPath(folder("_again", replica), kSteps));
      ASSERT_EQ(again.size(), saved.back().size());
      for (const auto& [name, bytes] : again) EXPECT_TRUE(saved.back()[name] == bytes) << name;
    }
    int differ = 0;
    for (const auto& [name, bytes] : saved[0]) {
      const bool are_same = saved[1].at(name) == bytes;
      // Behind two moments w0 and v, which all replicas have, and then own errors.
      if (absl::StartsWith(name, "moment3") || absl::StartsWith(name, "moment4")) {
        EXPECT_TRUE(are_same) << name;
      }
      if (absl::StartsWith(name, "moment5")) differ += are_same ? 0 : 1;
    }
    EXPECT_GT(differ, 0);
  }
}

TEST(ReplicaCheckpointTest, ReplicasThatResumeAtDifferentStepsAreAnErrorOnAll) {
  OnThreads({.size = 2}, [&](Rank& self) {
    auto member = CreateMember(Lines(2, 300), Plain(1, 0.25), kOptions, 2, self);
    ASSERT_OK(member);
    ASSERT_OK(SetAll(*member, 1.0f));
    member->outer->Resume(4 + self.rank);
    EXPECT_THAT(member->outer->Join(*member->groups.between),
                ::brigade::testing::StatusIs(
                    absl::StatusCode::kInvalidArgument,
                    "replicas: replica 0 comes after step 4, replica 1 after step 5"));
    self.AwaitOthers();
  });
}

}  // namespace
}  // namespace brigade::replicas
