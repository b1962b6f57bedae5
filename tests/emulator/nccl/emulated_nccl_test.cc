// What the stand-in for NCCL refuses, and when it gives out a child: as NCCL does.

#include "brigade/emulator/nccl/emulated_nccl.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::emulator {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class EmulatedNcclTest : public ::testing::Test {
 protected:
  void SetUp() override {
    EmulatedNccl::Reset();
    ASSERT_EQ(api_.get_unique_id(&id_), NcclResult::kSuccess);
  }
  void TearDown() override { EXPECT_EQ(EmulatedNccl::LiveComms(), 0); }

  NcclComm Begin(int rank, int size) {
    NcclComm comm = nullptr;
    NcclConfig config;
    EXPECT_EQ(api_.comm_init_rank_config(&comm, size, id_, rank, &config), NcclResult::kInProgress);
    return comm;
  }

  NcclResult Poll(NcclComm comm) {
    NcclResult result = NcclResult::kInternalError;
    EXPECT_EQ(api_.comm_get_async_error(comm, &result), NcclResult::kSuccess);
    return result;
  }

  void AwaitReady(NcclComm comm) {
    for (int i = 0; i < 10 && Poll(comm) == NcclResult::kInProgress; ++i) {
    }
    EXPECT_EQ(Poll(comm), NcclResult::kSuccess);
  }

  const NcclApi api_ = EmulatedNccl::Api();
  NcclUniqueId id_ = {};
};

TEST_F(EmulatedNcclTest, RefusesQueriesOfACommunicatorThatIsNotReady) {
  const NcclComm first = Begin(0, 2);
  EXPECT_EQ(Poll(first), NcclResult::kInProgress);
  int value = -1;
  EXPECT_EQ(api_.comm_count(first, &value), NcclResult::kInvalidArgument);
  EXPECT_EQ(api_.comm_user_rank(first, &value), NcclResult::kInvalidArgument);
  EXPECT_EQ(api_.comm_finalize(first), NcclResult::kInvalidArgument);
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
    AwaitReady(children[rank]);
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

}  // namespace
}  // namespace brigade::emulator
