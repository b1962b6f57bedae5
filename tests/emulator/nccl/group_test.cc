// Groups of calls of the stand-in for NCCL.

#include "brigade/tests/emulator/nccl/emulated_ranks.h"

namespace brigade::emulator {
namespace {

using ::brigade::testing::StatusIs;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr auto kFloat32 = NcclType::kFloat32;
constexpr auto kSuccess = NcclResult::kSuccess;

class GroupTest : public EmulatedNcclTest {
 protected:
  struct Arrays {
    float sent = 0, received = 0, sum = 0, total = 0;
  };

  NcclResult Send(int rank, const float& value, int peer) {
    return api_.send(&value, 1, kFloat32, peer, comms_[rank], StreamOf(rank));
  }
  NcclResult Receive(int rank, float& value, int peer) {
    return api_.receive(&value, 1, kFloat32, peer, comms_[rank], StreamOf(rank));
  }
  NcclResult AllReduce(int rank, const float& value, float& sum) {
    return api_.all_reduce(&value, &sum, 1, kFloat32, NcclOp::kSum, comms_[rank], StreamOf(rank));
  }
  void Synchronize() {
    for (const auto& stream : streams_) EXPECT_OK(stream->Synchronize());
  }
};

TEST_F(GroupTest, AFaultOfAnInnerEndIsThatOfTheGroup) {
  Connect(1);
  Arrays arrays = {.sent = 1};
  EXPECT_EQ(api_.group_start(), kSuccess);
  EXPECT_EQ(api_.group_start(), kSuccess);
  EXPECT_EQ(AllReduce(0, arrays.sent, arrays.sum), kSuccess);
  EmulatedNccl::Inject({"ncclGroupEnd"});
  EXPECT_EQ(api_.group_end(), NcclResult::kSystemError);
  EXPECT_EQ(api_.group_end(), NcclResult::kSystemError);
  Synchronize();
  EXPECT_EQ(arrays.sum, 0);
}

TEST_F(GroupTest, WhatIsLeftWhenTheCommunicatorIsFinalizedIsRefused) {
  Connect(2);
  Arrays arrays = {.sent = 1};
  EXPECT_EQ(api_.group_start(), kSuccess);
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(AllReduce(rank, arrays.sent, arrays.sum), kSuccess);
  }
  EXPECT_EQ(api_.comm_finalize(comms_[0]), NcclResult::kInProgress);
  EXPECT_EQ(api_.comm_revoke(comms_[1], 0), NcclResult::kInProgress);
  EXPECT_EQ(api_.group_end(), NcclResult::kInvalidUsage);
  EXPECT_THAT(EmulatedNccl::Misuses(), ElementsAre("ncclGroupEnd after ncclCommFinalize",
                                                   "ncclGroupEnd after ncclCommRevoke"));
}

TEST_F(GroupTest, WhatIsNestedIsLaunchedAtTheOuterEnd) {
  Connect(2);
  Arrays arrays[] = {{.sent = 1}, {.sent = 2}};
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(api_.group_start(), kSuccess);
    EXPECT_EQ(Send(rank, arrays[rank].sent, 1 - rank), kSuccess);
    EXPECT_EQ(api_.group_start(), kSuccess);
    EXPECT_EQ(Receive(rank, arrays[rank].received, 1 - rank), kSuccess);
    EXPECT_EQ(api_.group_end(), kSuccess);
    // Nothing has been launched: what is put off would be in progress, what runs has no end.
    EXPECT_EQ(Poll(comms_[rank]), kSuccess);
    EXPECT_OK(streams_[rank]->Synchronize());
    Enqueued(api_.group_end(), comms_[rank]);
  }
  Synchronize();
  EXPECT_EQ(arrays[0].received, 2);
  EXPECT_EQ(arrays[1].received, 1);
  EXPECT_THAT(EmulatedNccl::Misuses(), IsEmpty());
}

// Three times, since every third launch is put off.
TEST_F(GroupTest, CollectivesAndSendsOfAGroupRunOnce) {
  Connect(2);
  for (int i = 0; i < 3; ++i) {
    Arrays arrays[] = {{.sent = 1, .total = 10}, {.sent = 2, .total = 20}};
    for (int rank = 0; rank < 2; ++rank) {
      Arrays& mine = arrays[rank];
      EXPECT_EQ(api_.group_start(), kSuccess);
      EXPECT_EQ(Send(rank, mine.sent, 1 - rank), kSuccess);
      EXPECT_EQ(AllReduce(rank, mine.sent, mine.sum), kSuccess);
      EXPECT_EQ(Receive(rank, mine.received, 1 - rank), kSuccess);
      // In place: twice would be another sum.
      EXPECT_EQ(AllReduce(rank, mine.total, mine.total), kSuccess);
      Enqueued(api_.group_end(), comms_[rank]);
    }
    Synchronize();
    for (const Arrays& mine : arrays) {
      EXPECT_EQ(mine.received, 3 - mine.sent);
      EXPECT_EQ(mine.sum, 3);
      EXPECT_EQ(mine.total, 30);
    }
  }
  EXPECT_THAT(EmulatedNccl::Misuses(), IsEmpty());
}

TEST_F(GroupTest, OneThreadCallsForAllRanks) {
  Connect(3);
  for (int i = 0; i < 3; ++i) {
    Arrays arrays[] = {{.sent = 1}, {.sent = 2}, {.sent = 4}};
    EXPECT_EQ(api_.group_start(), kSuccess);
    for (int rank = 0; rank < 3; ++rank) {
      EXPECT_EQ(AllReduce(rank, arrays[rank].sent, arrays[rank].sum), kSuccess);
    }
    const NcclResult ended = api_.group_end();
    for (const NcclComm comm : comms_) Enqueued(ended, comm);
    Synchronize();
    for (const Arrays& mine : arrays) EXPECT_EQ(mine.sum, 7);
  }
  EXPECT_THAT(EmulatedNccl::Misuses(), IsEmpty());
}

TEST_F(GroupTest, AnEndNeedsAStart) {
  EXPECT_EQ(api_.group_end(), NcclResult::kInvalidUsage);
  EXPECT_THAT(EmulatedNccl::Misuses(), ElementsAre("ncclGroupEnd without ncclGroupStart"));
  EXPECT_EQ(api_.group_start(), kSuccess);
  EXPECT_EQ(api_.group_end(), kSuccess);
}

TEST_F(GroupTest, ACallThatFailedIsTheGroupsErrorAndNothingIsLaunched) {
  Connect(2);
  Arrays mine = {.sent = 1};
  EXPECT_EQ(api_.group_start(), kSuccess);
  EXPECT_EQ(AllReduce(0, mine.sent, mine.sum), kSuccess);
  EXPECT_EQ(Send(0, mine.sent, 5), NcclResult::kInvalidArgument);
  EXPECT_EQ(Receive(0, mine.received, 1), NcclResult::kInvalidArgument);
  EXPECT_EQ(api_.group_end(), NcclResult::kInvalidArgument);
  EXPECT_OK(streams_[0]->Synchronize());
  EXPECT_THAT(EmulatedNccl::Misuses(), ElementsAre("ncclSend with peer 5 of 2 ranks"));
  // The next group of the thread begins anew.
  EXPECT_EQ(api_.group_start(), kSuccess);
  EXPECT_EQ(api_.group_end(), kSuccess);
}

TEST_F(GroupTest, TwoStreamsOfACommunicatorAreRefused) {
  Connect(1);
  streams_.push_back(context_->CreateStream("other").value());
  Arrays mine = {.sent = 1};
  EXPECT_EQ(api_.group_start(), kSuccess);
  EXPECT_EQ(AllReduce(0, mine.sent, mine.sum), kSuccess);
  EXPECT_EQ(
      api_.all_reduce(&mine.sent, &mine.sum, 1, kFloat32, NcclOp::kSum, comms_[0], StreamOf(1)),
      NcclResult::kInvalidUsage);
  EXPECT_EQ(api_.group_end(), NcclResult::kInvalidUsage);
  EXPECT_THAT(EmulatedNccl::Misuses(), Each(HasSubstr("not supported here")));
}

TEST_F(GroupTest, AGroupHasAMostOfSendsToARank) {
  Connect(2);
  const float value = 1;
  EXPECT_EQ(api_.group_start(), kSuccess);
  for (int i = 0; i < 257; ++i) EXPECT_EQ(Send(0, value, 1), kSuccess);
  Enqueued(api_.group_end(), comms_[0]);
  EXPECT_THAT(streams_[0]->Synchronize(),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("more than 256 sends")));
}

}  // namespace
}  // namespace brigade::emulator
