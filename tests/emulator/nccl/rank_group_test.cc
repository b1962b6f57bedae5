// Ranks of two processes: what fails or dies in one does not leave the other waiting.

#include "brigade/emulator/nccl/rank_group.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "brigade/tests/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::emulator {
namespace {

using ::brigade::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;

class RankGroupTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto group = RankGroup::Open("/brigade-rank-group-test-" + std::to_string(getpid()), 2);
    ASSERT_OK(group);
    group_ = *std::move(group);
    for (const int rank : {0, 1}) ASSERT_OK(group_->Join(rank));
  }

  // Rank 1, in a process that waits in a kernel when this returns, unless it has ended.
  pid_t Fork(const std::function<int()>& body) {
    const pid_t child = fork();
    if (child == 0) _exit(body());
    char state = 'R';
    while (state != 'S' && state != 'Z') {
      std::this_thread::yield();
      state = StateOf(child);
    }
    // It sleeps nowhere else.
    EXPECT_EQ(state, 'S') << "the other rank has ended";
    return child;
  }

  static char StateOf(pid_t process) {
    std::ifstream stat("/proc/" + std::to_string(process) + "/stat");
    std::string number, name;
    char state = 'R';
    stat >> number >> name >> state;
    return state;
  }

  absl::StatusOr<bool> Add(int rank, const void* input, float& output, size_t count = 1) {
    const CollectivePart part = {
        .input = input, .output = &output, .count = count, .type = NcclType::kFloat32};
    return group_->Run(rank, 0, part, aborted_);
  }

  std::shared_ptr<RankGroup> group_;
  std::atomic<bool> aborted_{false};
};

TEST_F(RankGroupTest, AnErrorIsThatOfAllRanks) {
  const float one = 1;
  float sum = 0;
  const pid_t child = Fork([&] {
    // Its input is nowhere.
    const auto ran = Add(1, reinterpret_cast<const void*>(8), sum);
    return absl::IsUnavailable(ran.status()) &&
                   absl::StrContains(ran.status().message(), "in another rank: process_vm_readv")
               ? EXIT_SUCCESS
               : EXIT_FAILURE;
  });
  EXPECT_THAT(Add(0, &one, sum).status(),
              StatusIs(absl::StatusCode::kUnavailable,
                       AllOf(HasSubstr("process_vm_readv of another rank's array"),
                             HasSubstr("Bad address"))));
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == EXIT_SUCCESS) << status;
}

TEST_F(RankGroupTest, ARankThatIsRefusedLeavesTheGroupToTheOthers) {
  const std::string name = "/brigade-rank-group-test-refused-" + std::to_string(getpid());
  const auto first = RankGroup::Open(name, 2).value();
  ASSERT_OK(first->Join(0));
  EXPECT_THAT(RankGroup::Open(name, 2).value()->Join(0),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("as rank 0")));
  EXPECT_THAT(RankGroup::Open(name, 3).status(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("of 3 ranks")));
  ASSERT_OK(RankGroup::Open(name, 2).value()->Join(1));
  EXPECT_TRUE(first->is_complete());
}

TEST_F(RankGroupTest, WhatFailsTakesBackWhatItHasSent) {
  float sent = 1, received = 0;
  const std::vector<TransferPart> sends(257, {true, &sent, sizeof(sent), 1});
  EXPECT_THAT(group_->Run(0, sends, aborted_).status(),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("more than 256 sends")));
  std::thread receiver([&] {
    const TransferPart receive = {false, &received, sizeof(received), 0};
    EXPECT_FALSE(group_->Run(1, absl::MakeConstSpan(&receive, 1), aborted_).value());
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  aborted_ = true;
  group_->Withdraw(1);
  receiver.join();
  EXPECT_EQ(received, 0);
}

// A condition variable of the system would wait for it at its next use but one.
TEST_F(RankGroupTest, ARankThatIsKilledWhileItWaitsIsForgotten) {
  const float one = 1;
  float sum = 0;
  const pid_t child = Fork([&] {
    static_cast<void>(Add(1, &one, sum));
    return EXIT_SUCCESS;
  });
  ASSERT_EQ(kill(child, SIGKILL), 0);
  ASSERT_EQ(waitpid(child, nullptr, 0), child);
  for (int i = 0; i < 3; ++i) {
    std::thread waiter([&] { EXPECT_FALSE(Add(0, nullptr, sum, /*count=*/2).value()); });
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    aborted_ = true;
    group_->Withdraw(0);
    waiter.join();
    aborted_ = false;
  }
}

}  // namespace
}  // namespace brigade::emulator
