// What the stand-in for NCCL refuses, and when it gives out a child: as NCCL does.

#include "brigade/tests/emulator/nccl/emulated_ranks.h"

namespace brigade::emulator {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST_F(EmulatedNcclTest, RefusesQueriesOfACommunicatorThatIsNotReady) {
  const NcclComm first = Begin(0, 2);
  EXPECT_EQ(Poll(first), NcclResult::kInProgress);
  int value = -1;
  EXPECT_EQ(api_.comm_count(first, &value), NcclResult::kInvalidArgument);
  EXPECT_EQ(api_.comm_user_rank(first, &value), NcclResult::kInvalidArgument);
  EXPECT_EQ(api_.comm_finalize(first), NcclResult::kInvalidArgument);
  // NCCL forgets this error when what is in progress ends.
  EXPECT_EQ(Poll(first), NcclResult::kInProgress);
  EXPECT_EQ(value, -1);
  EXPECT_THAT(EmulatedNccl::Misuses(), ElementsAre("ncclCommCount while a call is in progress",
                                                   "ncclCommUserRank while a call is in progress",
                                                   "ncclCommFinalize while a call is in progress"));
  const NcclComm second = Begin(1, 2);
  AwaitReady(first);
  EXPECT_EQ(api_.comm_count(first, &value), NcclResult::kSuccess);
  EXPECT_EQ(value, 2);
  api_.comm_abort(first);
  api_.comm_abort(second);
}

TEST_F(EmulatedNcclTest, RefusesNullCommunicatorsButToEndThem) {
  int value = 0;
  NcclResult result = NcclResult::kSuccess;
  NcclComm child = nullptr;
  NcclConfig config;
  float array[4] = {};
  EXPECT_EQ(api_.comm_count(nullptr, &value), NcclResult::kInvalidArgument);
  EXPECT_EQ(api_.comm_get_async_error(nullptr, &result), NcclResult::kInvalidArgument);
  EXPECT_EQ(api_.comm_split(nullptr, 0, 0, &child, &config), NcclResult::kInvalidArgument);
  EXPECT_EQ(api_.send(array, 4, NcclType::kFloat32, 0, nullptr, nullptr),
            NcclResult::kInvalidArgument);
  EXPECT_EQ(api_.all_reduce(array, array, 4, NcclType::kFloat32, NcclOp::kSum, nullptr, nullptr),
            NcclResult::kInvalidArgument);
  EXPECT_EQ(EmulatedNccl::Misuses().size(), 5);
  EXPECT_EQ(api_.comm_abort(nullptr), NcclResult::kSuccess);
  EXPECT_EQ(api_.comm_destroy(nullptr), NcclResult::kSuccess);
}

TEST_F(EmulatedNcclTest, ASplitSucceedsWhileItIsInProgressAndFillsTheChildLater) {
  const NcclComm parents[] = {Begin(0, 2), Begin(1, 2)};
  for (const NcclComm comm : parents) AwaitReady(comm);
  NcclComm children[2] = {parents[0], parents[0]};
  NcclConfig config;
  EXPECT_EQ(api_.comm_split(parents[0], 7, /*key=*/1, &children[0], &config), NcclResult::kSuccess);
  EXPECT_EQ(children[0], nullptr);
  EXPECT_EQ(Poll(parents[0]), NcclResult::kInProgress);
  EXPECT_EQ(api_.comm_split(parents[1], 7, /*key=*/0, &children[1], &config), NcclResult::kSuccess);
  while (Poll(parents[0]) == NcclResult::kInProgress) {
    EXPECT_EQ(children[0], nullptr);
    Poll(parents[1]);
  }
  AwaitReady(parents[1]);
  for (int rank = 0; rank < 2; ++rank) {
    ASSERT_NE(children[rank], nullptr);
    // Ready without a poll of its own.
    int new_rank = -1, size = 0;
    EXPECT_EQ(api_.comm_user_rank(children[rank], &new_rank), NcclResult::kSuccess);
    EXPECT_EQ(api_.comm_count(children[rank], &size), NcclResult::kSuccess);
    EXPECT_EQ(new_rank, 1 - rank);
    EXPECT_EQ(size, 2);
    EXPECT_EQ(api_.comm_destroy(children[rank]), NcclResult::kSuccess);
  }
  for (const NcclComm comm : parents) EXPECT_EQ(api_.comm_destroy(comm), NcclResult::kSuccess);
  EXPECT_THAT(EmulatedNccl::Misuses(), IsEmpty());
}

TEST_F(EmulatedNcclTest, RanksThatDoNotFitTogetherAreRefused) {
  const NcclComm first = Begin(0, 2);
  NcclComm comm = first;
  NcclConfig config;
  EXPECT_EQ(api_.comm_init_rank_config(&comm, 3, id_, 2, &config), NcclResult::kInvalidArgument);
  EXPECT_EQ(comm, nullptr);
  EXPECT_EQ(api_.comm_init_rank_config(&comm, 2, id_, 0, &config), NcclResult::kInvalidArgument);
  EXPECT_EQ(api_.comm_init_rank_config(&comm, 2, id_, 2, &config), NcclResult::kInvalidArgument);
  EXPECT_EQ(Poll(first), NcclResult::kInProgress);
  const std::string function = "ncclCommInitRankConfig ";
  EXPECT_THAT(EmulatedNccl::Misuses(), ElementsAre(function + "of 3 ranks, where others have 2",
                                                   function + "as rank 0, which another one is",
                                                   function + "with rank 2 of 2"));
  const NcclComm second = Begin(1, 2);
  AwaitReady(first);
  api_.comm_abort(first);
  api_.comm_abort(second);
}

TEST_F(EmulatedNcclTest, RefusesConfigurationsThatItCannotFollow) {
  NcclComm comm = nullptr, child = nullptr;
  NcclConfig blocking, old;
  blocking.blocking = 1;
  old.magic = 0;
  constexpr auto kInvalid = NcclResult::kInvalidArgument;
  EXPECT_EQ(api_.comm_init_rank_config(&comm, 1, id_, 0, nullptr), kInvalid);
  EXPECT_EQ(api_.comm_init_rank_config(&comm, 1, id_, 0, &blocking), kInvalid);
  EXPECT_EQ(api_.comm_init_rank_config(&comm, 1, id_, 0, &old), kInvalid);
  Connect(1);
  EXPECT_EQ(api_.comm_split(comms_[0], 0, 0, &child, &blocking), kInvalid);
  const std::string what = " for a blocking communicator: not supported here";
  EXPECT_THAT(EmulatedNccl::Misuses(),
              ElementsAre("ncclCommInitRankConfig" + what, "ncclCommInitRankConfig" + what,
                          "ncclCommInitRankConfig with a configuration that was not initialised",
                          "ncclCommSplit" + what));
}

}  // namespace
}  // namespace brigade::emulator
