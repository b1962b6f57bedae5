// The order of calls on several streams, inside of captures and outside.

#include <cuda_runtime_api.h>

#include <memory>
#include <vector>

#include "brigade/collectives/engines/call_order.h"
#include "brigade/device/context.h"
#include "brigade/tests/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::collectives {
namespace {

using ::testing::Each;

constexpr int64_t kBytes = 1 << 16;

class CallOrderGpuTest : public ::testing::Test {
 protected:
  void SetUp() override {
    device::ContextOptions options;
    options.device = device::Cuda();
    context_ = device::Context::Create(options).value();
    for (size_t i = 0; i < 3; ++i) {
      ASSERT_EQ(cudaStreamCreateWithFlags(&raw_[i], cudaStreamNonBlocking), cudaSuccess);
      streams_[i] = context_->BorrowStream(raw_[i], "stream").value();
    }
    memory_ = context_->Allocate(kBytes, device::Purpose::kScratch).value();
    event_ = context_->CreateEvent("joins").value();
  }

  void TearDown() override {
    for (size_t i = 0; i < 3; ++i) {
      streams_[i].reset();
      EXPECT_EQ(cudaStreamDestroy(raw_[i]), cudaSuccess);
    }
  }

  // A call that sets the memory.
  void Call(CallOrder& order, size_t stream, uint8_t value) {
    ASSERT_OK(order.Begin(*streams_[stream]));
    ASSERT_OK(streams_[stream]->FillBytes(memory_.data(), value, kBytes));
    ASSERT_OK(order.End(*streams_[stream]));
  }

  void Join(size_t from, size_t to) {
    ASSERT_OK(streams_[from]->Record(*event_));
    ASSERT_OK(streams_[to]->Wait(*event_));
  }

  void ExpectMemory(size_t after, uint8_t value) {
    std::vector<uint8_t> host(kBytes);
    ASSERT_OK(streams_[after]->Copy(host.data(), memory_.data(), kBytes));
    ASSERT_OK(streams_[after]->Synchronize());
    EXPECT_THAT(host, Each(value));
  }

  std::unique_ptr<device::Context> context_;
  cudaStream_t raw_[3] = {};
  std::unique_ptr<device::Stream> streams_[3];
  std::unique_ptr<device::Event> event_;
  device::Buffer memory_;
};

TEST_F(CallOrderGpuTest, CallsOfACaptureFollowEachOtherAndThoseOutsideToo) {
  CallOrder order = CallOrder::Create(*context_, "last").value();
  for (int round = 0; round < 20; ++round) {
    Call(order, 0, 1);
    // Not a wait for the call outside of it, which CUDA would refuse.
    ASSERT_EQ(cudaStreamBeginCapture(raw_[1], cudaStreamCaptureModeThreadLocal), cudaSuccess);
    Join(1, 2);
    Call(order, 1, 2);
    Call(order, 2, 3);
    Join(2, 1);
    cudaGraph_t graph = nullptr;
    ASSERT_EQ(cudaStreamEndCapture(raw_[1], &graph), cudaSuccess);
    // Not a wait for a call in the capture, but one for that before it.
    Call(order, 2, 4);
    ExpectMemory(2, 4);
    cudaGraphExec_t executable = nullptr;
    ASSERT_EQ(cudaGraphInstantiate(&executable, graph, 0), cudaSuccess);
    ASSERT_EQ(cudaGraphLaunch(executable, raw_[2]), cudaSuccess);
    ExpectMemory(2, 3);
    EXPECT_EQ(cudaGraphExecDestroy(executable), cudaSuccess);
    EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
    Join(2, 0);
  }
}

}  // namespace
}  // namespace brigade::collectives
