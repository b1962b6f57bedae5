#ifndef BRIGADE_TESTS_EMULATOR_NCCL_EMULATED_RANKS_H_
#define BRIGADE_TESTS_EMULATOR_NCCL_EMULATED_RANKS_H_

// Ranks of one thread on EmulatedNccl, each with a CPU stream.

#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "brigade/device/context.h"
#include "brigade/device/stream.h"
#include "brigade/emulator/nccl/emulated_nccl.h"
#include "brigade/tests/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::emulator {

class EmulatedNcclTest : public ::testing::Test {
 protected:
  void SetUp() override {
    EmulatedNccl::Reset();
    ASSERT_EQ(api_.get_unique_id(&id_), NcclResult::kSuccess);
  }
  // Ends what the test has not ended and taken from comms_.
  void TearDown() override {
    for (const NcclComm comm : comms_) api_.comm_abort(comm);
    streams_.clear();
    EXPECT_EQ(EmulatedNccl::LiveComms(), 0);
  }

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

  // Fills comms_ and streams_, by rank.
  void Connect(int size) {
    for (int rank = 0; rank < size; ++rank) {
      comms_.push_back(Begin(rank, size));
      streams_.push_back(context_->CreateStream("rank").value());
    }
    for (const NcclComm comm : comms_) AwaitReady(comm);
  }

  NcclStream StreamOf(int rank) { return reinterpret_cast<NcclStream>(streams_[rank].get()); }

  // Until it is enqueued.
  void Enqueued(NcclResult result, NcclComm comm) {
    while (result == NcclResult::kInProgress) result = Poll(comm);
    EXPECT_EQ(result, NcclResult::kSuccess);
  }

  // For a while in which kernels that can end do.
  void ExpectStaysInProgress(NcclComm comm) {
    for (int i = 0; i < 20; ++i) {
      EXPECT_EQ(Poll(comm), NcclResult::kInProgress);
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }

  void Add(int rank, const std::vector<float>& input, std::vector<float>& output) {
    Enqueued(api_.all_reduce(input.data(), output.data(), input.size(), NcclType::kFloat32,
                             NcclOp::kSum, comms_[rank], StreamOf(rank)),
             comms_[rank]);
  }

  // The last one.
  std::string Misuse() {
    const std::vector<std::string> all = EmulatedNccl::Misuses();
    return all.empty() ? "" : all.back();
  }

  const NcclApi api_ = EmulatedNccl::Api();
  NcclUniqueId id_ = {};
  const std::unique_ptr<device::Context> context_ = device::Context::Create({}).value();
  std::vector<NcclComm> comms_;
  std::vector<std::unique_ptr<device::Stream>> streams_;
};

}  // namespace brigade::emulator

#endif  // BRIGADE_TESTS_EMULATOR_NCCL_EMULATED_RANKS_H_
