// Streams, events and memory while CUDA captures streams into a graph: nothing that the library
// does beside a capture may make it invalid.

#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>
#include <string>
#include <thread>

#include "brigade/device/context.h"
#include "brigade/device/tracing/tracer.h"
#include "brigade/tests/device/testing.h"
#include "brigade/tests/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::device {
namespace {

using ::brigade::testing::StatusIs;
using ::testing::HasSubstr;
using ::testing::SizeIs;

constexpr int64_t kBytes = 1 << 12;

class CudaCaptureTest : public ::testing::TestWithParam<cudaStreamCaptureMode> {
 protected:
  void SetUp() override {
    ContextOptions options = CpuOptions();
    options.device = Cuda();
    options.tracer = &tracer_;
    context_ = CreateContext(options);
    for (cudaStream_t* raw : {&raw_, &other_raw_}) {
      ASSERT_EQ(cudaStreamCreateWithFlags(raw, cudaStreamNonBlocking), cudaSuccess);
    }
    stream_ = context_->BorrowStream(raw_, "captured").value();
    joined_ = context_->BorrowStream(other_raw_, "joined").value();
    ready_ = context_->CreateEvent("ready").value();
    done_ = context_->CreateEvent("done").value();
    memory_ = context_->Allocate(kBytes, Purpose::kScratch).value();
  }

  void TearDown() override {
    stream_.reset();
    joined_.reset();
    for (cudaStream_t raw : {raw_, other_raw_}) EXPECT_EQ(cudaStreamDestroy(raw), cudaSuccess);
  }

  void Begin() { ASSERT_EQ(cudaStreamBeginCapture(raw_, GetParam()), cudaSuccess); }

  // Ends the capture and launches what it made.
  void EndAndLaunch() {
    cudaGraph_t graph = nullptr;
    ASSERT_EQ(cudaStreamEndCapture(raw_, &graph), cudaSuccess);
    cudaGraphExec_t executable = nullptr;
    ASSERT_EQ(cudaGraphInstantiate(&executable, graph, 0), cudaSuccess);
    ASSERT_EQ(cudaGraphLaunch(executable, raw_), cudaSuccess);
    ASSERT_EQ(cudaStreamSynchronize(raw_), cudaSuccess);
    EXPECT_EQ(cudaGraphExecDestroy(executable), cudaSuccess);
    EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
  }

  Tracer tracer_;
  std::unique_ptr<Context> context_;
  cudaStream_t raw_ = nullptr, other_raw_ = nullptr;
  std::unique_ptr<Stream> stream_, joined_;
  std::unique_ptr<Event> ready_, done_;
  Buffer memory_;
};

INSTANTIATE_TEST_SUITE_P(Modes, CudaCaptureTest,
                         ::testing::Values(cudaStreamCaptureModeGlobal,
                                           cudaStreamCaptureModeThreadLocal,
                                           cudaStreamCaptureModeRelaxed),
                         [](const auto& info) -> std::string {
                           if (info.param == cudaStreamCaptureModeGlobal) return "Global";
                           return info.param == cudaStreamCaptureModeRelaxed ? "Relaxed"
                                                                             : "ThreadLocal";
                         });

TEST_P(CudaCaptureTest, MemoryComesAndGoesMeanwhile) {
  Buffer freed = context_->Allocate(kBytes, Purpose::kScratch).value();
  Begin();
  ASSERT_OK(stream_->FillBytes(memory_.data(), 1, kBytes));
  freed = Buffer();
  // Not yet: its streams cannot be waited for.
  EXPECT_EQ(context_->memory_stats().current_bytes(), 2 * kBytes);
  EXPECT_OK(context_->Allocate(kBytes, Purpose::kScratch));
  EXPECT_OK(context_->AllocateHost(kBytes, Purpose::kScratch, "host"));
  std::thread([&] { EXPECT_OK(context_->Allocate(kBytes, Purpose::kScratch)); }).join();
  EndAndLaunch();
  EXPECT_OK(context_->Allocate(kBytes, Purpose::kScratch));
  EXPECT_EQ(context_->memory_stats().current_bytes(), kBytes);
}

TEST_P(CudaCaptureTest, OtherEventsMayBeAskedByAnyThread) {
  ASSERT_OK(joined_->FillBytes(memory_.data(), 1, kBytes));
  ASSERT_OK(joined_->Record(*ready_));
  Begin();
  ASSERT_OK(stream_->FillBytes(memory_.data(), 2, kBytes));
  EXPECT_OK(ready_->Query());
  EXPECT_OK(ready_->Synchronize());
  EXPECT_OK(joined_->Synchronize());
  std::thread([&] {
    EXPECT_OK(ready_->Query());
    EXPECT_OK(ready_->Synchronize());
    EXPECT_OK(joined_->Synchronize());
  }).join();
  EndAndLaunch();
}

TEST_P(CudaCaptureTest, WhatCannotBeCapturedIsRefusedAndHarmsNothing) {
  ASSERT_OK(joined_->Record(*ready_));
  Begin();
  EXPECT_NE(stream_->capture_id(), 0u);
  EXPECT_EQ(joined_->capture_id(), 0u);
  ASSERT_OK(stream_->FillBytes(memory_.data(), 1, kBytes));
  constexpr auto kWrongMoment = absl::StatusCode::kFailedPrecondition;
  EXPECT_THAT(stream_->Synchronize(), StatusIs(kWrongMoment, HasSubstr("\"captured\"")));
  EXPECT_THAT(stream_->Wait(*ready_),
              StatusIs(kWrongMoment, HasSubstr("\"ready\", which was recorded outside")));
  ASSERT_OK(stream_->Record(*done_));
  EXPECT_THAT(done_->Query(), StatusIs(kWrongMoment, HasSubstr("CUDA graph")));
  EXPECT_THAT(done_->Synchronize(), StatusIs(kWrongMoment));
  EndAndLaunch();
  EXPECT_EQ(stream_->capture_id(), 0u);
  EXPECT_OK(stream_->Synchronize());
}

// Neither can a stream of the CPU be in the graph.
TEST_P(CudaCaptureTest, EventsAcrossKindsAreRefusedAndHarmNothing) {
  const auto cpu = CreateContext(CpuOptions("host 0"));
  const auto lane = cpu->CreateStream("lane").value();
  const auto updated = cpu->CreateEvent("updated").value();
  ASSERT_OK(lane->Record(*updated));
  ASSERT_OK(joined_->Record(*ready_));
  Begin();
  ASSERT_OK(stream_->FillBytes(memory_.data(), 1, kBytes));
  constexpr auto kWrongMoment = absl::StatusCode::kFailedPrecondition;
  EXPECT_THAT(stream_->Wait(*updated),
              StatusIs(kWrongMoment, HasSubstr("\"updated\", which was recorded outside")));
  ASSERT_OK(stream_->Record(*done_));
  EXPECT_THAT(lane->Wait(*done_), StatusIs(kWrongMoment, HasSubstr("CUDA graph")));
  // What is outside of the capture waits as ever, also for a device's first time.
  ASSERT_OK(lane->Wait(*ready_));
  ASSERT_OK(lane->Record(*updated));
  ASSERT_OK(joined_->Wait(*updated));
  EXPECT_OK(joined_->Synchronize());
  EXPECT_OK(lane->Synchronize());
  EXPECT_OK(context_->CreateStream("made meanwhile"));
  EndAndLaunch();
  EXPECT_OK(stream_->Wait(*updated));
  EXPECT_OK(stream_->Synchronize());
  // Of a capture that has ended, too.
  EXPECT_THAT(lane->Wait(*done_), StatusIs(kWrongMoment));
}

TEST_P(CudaCaptureTest, AStreamJoinsByAWaitAndIsTracedAfterwards) {
  Begin();
  ASSERT_OK(stream_->FillBytes(memory_.data(), 1, kBytes / 2));
  ASSERT_OK(stream_->Record(*ready_));
  ASSERT_OK(joined_->Wait(*ready_));
  EXPECT_EQ(joined_->capture_id(), stream_->capture_id());
  ASSERT_OK(joined_->FillBytes(memory_.data(), 2, kBytes / 2));
  ASSERT_OK(joined_->Record(*done_));
  ASSERT_OK(stream_->Wait(*done_));
  EndAndLaunch();
  tracer_.Take();
  for (int i = 0; i < 2; ++i) {
    ASSERT_OK(joined_->FillBytes(memory_.data(), 3, kBytes));
    ASSERT_OK(joined_->Synchronize());
  }
  for (const TracedStream& traced : tracer_.Take()) {
    if (traced.stream == "joined") {
      EXPECT_THAT(traced.operations, SizeIs(2));
    }
  }
}

}  // namespace
}  // namespace brigade::device
