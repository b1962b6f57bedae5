// How communicators of the stand-in for NCCL end, and what calls they take on the way.

#include <chrono>
#include <thread>

#include "brigade/tests/emulator/nccl/emulated_ranks.h"

namespace brigade::emulator {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class EndTest : public EmulatedNcclTest {
 protected:
  // Until the function has been called once.
  static void AwaitCalls(const std::string& function) {
    while (EmulatedNccl::Calls(function) == 0) std::this_thread::yield();
  }

  const std::vector<float> one_ = {1}, two_ = {2};
  std::vector<float> first_ = {0}, second_ = {0};
};

TEST_F(EndTest, FinalizeIsInProgressUntilTheKernelsHaveEnded) {
  Connect(2);
  Add(0, one_, first_);
  EXPECT_EQ(api_.comm_finalize(comms_[0]), NcclResult::kInProgress);
  ExpectStaysInProgress(comms_[0]);
  EXPECT_EQ(api_.comm_destroy(comms_[0]), NcclResult::kInvalidArgument);
  EXPECT_THAT(EmulatedNccl::Misuses(), ElementsAre("ncclCommDestroy while a call is in progress"));
  Add(1, two_, second_);
  Enqueued(NcclResult::kInProgress, comms_[0]);
  // It was written when the poll said that the communicator was ready.
  EXPECT_THAT(first_, ElementsAre(3));
  EXPECT_EQ(api_.comm_destroy(comms_[0]), NcclResult::kSuccess);
  comms_.erase(comms_.begin());
}

TEST_F(EndTest, FinalizeWithoutKernelsNeedsAPollToo) {
  Connect(1);
  EXPECT_EQ(api_.comm_finalize(nullptr), NcclResult::kSuccess);
  EXPECT_EQ(api_.comm_finalize(comms_[0]), NcclResult::kInProgress);
  EXPECT_EQ(Poll(comms_[0]), NcclResult::kInProgress);
  AwaitReady(comms_[0]);
  EXPECT_THAT(EmulatedNccl::Misuses(), IsEmpty());
  EXPECT_EQ(api_.all_reduce(one_.data(), first_.data(), 1, NcclType::kFloat32, NcclOp::kSum,
                            comms_[0], StreamOf(0)),
            NcclResult::kInvalidUsage);
  EXPECT_EQ(Misuse(), "ncclAllReduce after ncclCommFinalize");
}

TEST_F(EndTest, ASecondFinalizeIsRefusedAndTheErrorStays) {
  Connect(1);
  Enqueued(api_.comm_finalize(comms_[0]), comms_[0]);
  EXPECT_EQ(api_.comm_finalize(comms_[0]), NcclResult::kInvalidArgument);
  EXPECT_EQ(Misuse(), "ncclCommFinalize a second time");
  EXPECT_EQ(api_.comm_destroy(comms_[0]), NcclResult::kInvalidArgument);
}

TEST_F(EndTest, DestroyWaitsForKernels) {
  Connect(2);
  Add(0, one_, first_);
  std::thread other([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    Add(1, two_, second_);
  });
  EXPECT_EQ(api_.comm_destroy(comms_[0]), NcclResult::kSuccess);
  EXPECT_THAT(first_, ElementsAre(3));
  other.join();
  comms_.erase(comms_.begin());
  EXPECT_THAT(EmulatedNccl::Misuses(), IsEmpty());
}

TEST_F(EndTest, AThreadInACommunicatorThatAnotherOneIsInIsFound) {
  Connect(2);
  Add(0, one_, first_);
  std::thread waits([&] { EXPECT_EQ(api_.comm_destroy(comms_[0]), NcclResult::kSuccess); });
  int size = 0;
  // A call that has been counted is inside.
  AwaitCalls("ncclCommDestroy");
  EXPECT_EQ(api_.comm_count(comms_[0], &size), NcclResult::kSuccess);
  // The intruder has not let the first thread's mark go.
  EXPECT_EQ(api_.comm_count(comms_[0], &size), NcclResult::kSuccess);
  Add(1, two_, second_);
  waits.join();
  comms_.erase(comms_.begin());
  EXPECT_THAT(EmulatedNccl::Misuses(),
              ElementsAre("ncclCommCount while another thread is in NCCL",
                          "ncclCommCount while another thread is in NCCL"));
}

TEST_F(EndTest, AnAbortEndsADestroyThatWaitsInAnotherThread) {
  Connect(2);
  Add(0, one_, first_);
  std::thread waits([&] { EXPECT_EQ(api_.comm_destroy(comms_[0]), NcclResult::kSuccess); });
  AwaitCalls("ncclCommDestroy");
  EXPECT_EQ(api_.comm_abort(comms_[0]), NcclResult::kSuccess);
  waits.join();
  comms_.erase(comms_.begin());
  EXPECT_THAT(EmulatedNccl::Misuses(),
              ElementsAre("ncclCommAbort while another thread is in NCCL"));
}

TEST_F(EndTest, AnAbortEndsKernelsAndNobodyReachesTheirArrays) {
  Connect(2);
  Add(0, one_, first_);
  // Time for the kernel to wait.
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_EQ(api_.comm_abort(comms_[0]), NcclResult::kSuccess);
  EXPECT_OK(streams_[0]->Synchronize());
  Add(1, two_, second_);
  EXPECT_EQ(api_.comm_finalize(comms_[1]), NcclResult::kInProgress);
  ExpectStaysInProgress(comms_[1]);
  EXPECT_EQ(api_.comm_abort(comms_[1]), NcclResult::kSuccess);
  EXPECT_OK(streams_[1]->Synchronize());
  EXPECT_THAT(first_, ElementsAre(0));
  EXPECT_THAT(second_, ElementsAre(0));
  comms_.clear();
  EXPECT_THAT(EmulatedNccl::Misuses(), IsEmpty());
}

TEST_F(EndTest, AnAbortTakesBackWhatHasNotBeenReceived) {
  Connect(2);
  Enqueued(api_.send(one_.data(), 1, NcclType::kFloat32, 1, comms_[0], StreamOf(0)), comms_[0]);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_EQ(api_.comm_abort(comms_[0]), NcclResult::kSuccess);
  Enqueued(api_.receive(second_.data(), 1, NcclType::kFloat32, 0, comms_[1], StreamOf(1)),
           comms_[1]);
  EXPECT_EQ(api_.comm_finalize(comms_[1]), NcclResult::kInProgress);
  ExpectStaysInProgress(comms_[1]);
  EXPECT_EQ(api_.comm_abort(comms_[1]), NcclResult::kSuccess);
  EXPECT_OK(streams_[1]->Synchronize());
  EXPECT_THAT(second_, ElementsAre(0));
  comms_.clear();
}

TEST_F(EndTest, ARevokedCommunicatorIsOnlyDestroyed) {
  Connect(2);
  Add(0, one_, first_);
  EXPECT_EQ(api_.comm_revoke(nullptr, 0), NcclResult::kSuccess);
  EXPECT_EQ(api_.comm_revoke(comms_[0], 1), NcclResult::kInvalidArgument);
  EXPECT_EQ(api_.comm_revoke(comms_[0], 0), NcclResult::kInProgress);
  Enqueued(NcclResult::kInProgress, comms_[0]);
  EXPECT_OK(streams_[0]->Synchronize());
  EXPECT_THAT(first_, ElementsAre(0));
  EXPECT_EQ(api_.comm_revoke(comms_[0], 0), NcclResult::kInvalidArgument);
  EXPECT_EQ(api_.comm_destroy(comms_[0]), NcclResult::kSuccess);
  EXPECT_EQ(api_.comm_revoke(comms_[1], 0), NcclResult::kInProgress);
  EXPECT_EQ(api_.all_reduce(one_.data(), first_.data(), 1, NcclType::kFloat32, NcclOp::kSum,
                            comms_[1], StreamOf(1)),
            NcclResult::kInvalidUsage);
  EXPECT_THAT(EmulatedNccl::Misuses(),
              ElementsAre("ncclCommRevoke with flags 1", "ncclCommRevoke a second time",
                          "ncclAllReduce after ncclCommRevoke"));
  Enqueued(NcclResult::kInProgress, comms_[1]);
  EXPECT_EQ(api_.comm_destroy(comms_[1]), NcclResult::kSuccess);
  comms_.clear();
}

TEST_F(EndTest, AnErrorStaysUntilTheAbort) {
  Connect(1);
  EmulatedNccl::Inject({"ncclAllReduce", 0, EmulatedNccl::Effect::kReturns});
  const auto add = [&] {
    return api_.all_reduce(one_.data(), first_.data(), 1, NcclType::kFloat32, NcclOp::kSum,
                           comms_[0], StreamOf(0));
  };
  EXPECT_EQ(add(), NcclResult::kSystemError);
  EXPECT_EQ(Poll(comms_[0]), NcclResult::kSystemError);
  EXPECT_EQ(add(), NcclResult::kSystemError);
  int size = 0;
  EXPECT_EQ(api_.comm_count(comms_[0], &size), NcclResult::kSystemError);
  EXPECT_EQ(api_.comm_finalize(comms_[0]), NcclResult::kSystemError);
  EXPECT_EQ(api_.comm_destroy(comms_[0]), NcclResult::kSystemError);
  EXPECT_EQ(EmulatedNccl::LiveComms(), 1);
  EXPECT_EQ(api_.comm_abort(comms_[0]), NcclResult::kSuccess);
  comms_.clear();
  EXPECT_THAT(EmulatedNccl::Misuses(), IsEmpty());
}

TEST_F(EndTest, AHandleIsNeverAnotherCommunicators) {
  Connect(1);
  const NcclComm gone = comms_[0];
  EXPECT_EQ(api_.comm_abort(gone), NcclResult::kSuccess);
  comms_.clear();
  ASSERT_EQ(api_.get_unique_id(&id_), NcclResult::kSuccess);
  Connect(1);
  EXPECT_NE(comms_[0], gone);
  int size = 0;
  EXPECT_EQ(api_.comm_count(gone, &size), NcclResult::kInvalidArgument);
  EXPECT_EQ(api_.comm_destroy(gone), NcclResult::kInvalidArgument);
  EXPECT_THAT(EmulatedNccl::Misuses(),
              ElementsAre("ncclCommCount on a communicator that is gone",
                          "ncclCommDestroy on a communicator that is gone"));
}

TEST_F(EndTest, BuffersAreDeregisteredWhileFinalizeIsInProgressAndAfterAnError) {
  Connect(1);
  float array[4] = {};
  void* handle = nullptr;
  EXPECT_EQ(api_.comm_register(comms_[0], array, 16, &handle), NcclResult::kSuccess);
  EXPECT_EQ(api_.comm_register(comms_[0], array, 16, &handle), NcclResult::kSuccess);
  EXPECT_EQ(api_.comm_finalize(comms_[0]), NcclResult::kInProgress);
  EXPECT_EQ(api_.comm_deregister(comms_[0], handle), NcclResult::kSuccess);
  AwaitReady(comms_[0]);
  EXPECT_EQ(api_.comm_finalize(comms_[0]), NcclResult::kInvalidArgument);
  EXPECT_EQ(api_.comm_deregister(comms_[0], handle), NcclResult::kSuccess);
  EXPECT_THAT(EmulatedNccl::Misuses(), ElementsAre("ncclCommFinalize a second time"));
}

TEST_F(EndTest, RegistrationsAreOfOneCommunicatorAndEndBeforeIt) {
  Connect(1);
  ASSERT_EQ(api_.get_unique_id(&id_), NcclResult::kSuccess);
  comms_.push_back(Begin(0, 1));
  AwaitReady(comms_[1]);
  float array[4] = {};
  void* handles[2] = {};
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(api_.comm_register(comms_[i], array, 16, &handles[i]), NcclResult::kSuccess);
  }
  EXPECT_EQ(EmulatedNccl::LiveRegistrations(), 2);
  EXPECT_EQ(api_.comm_deregister(comms_[0], handles[0]), NcclResult::kSuccess);
  EXPECT_EQ(EmulatedNccl::LiveRegistrations(), 1);
  EXPECT_EQ(api_.comm_deregister(comms_[0], nullptr), NcclResult::kSuccess);
  EXPECT_THAT(EmulatedNccl::Misuses(), IsEmpty());
  EXPECT_EQ(api_.comm_deregister(comms_[0], handles[0]), NcclResult::kInvalidUsage);
  EXPECT_EQ(api_.comm_destroy(comms_[1]), NcclResult::kSuccess);
  EXPECT_EQ(api_.comm_destroy(comms_[0]), NcclResult::kSuccess);
  EXPECT_THAT(EmulatedNccl::Misuses(), ElementsAre("ncclCommDeregister of what is not registered",
                                                   "ncclCommDestroy with 1 registrations"));
  comms_.clear();
}

}  // namespace
}  // namespace brigade::emulator
