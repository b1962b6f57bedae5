// docs/device.md, rules 30 to 32, on a GPU.

#include <cuda_runtime_api.h>

#include <chrono>
#include <thread>

#include "brigade/device/context.h"
#include "brigade/device/cuda/cuda_status.h"
#include "brigade/device/tracing/tracer.h"
#include "brigade/tests/device/testing.h"
#include "brigade/tests/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::device {
namespace {

using ::testing::SizeIs;

// Keeps the stream busy for 30 ms.
absl::Status Delay(Stream& stream) {
  return stream.Launch({"delay", {}}, [](void* native) {
    return CudaStatus(
        cudaLaunchHostFunc(
            static_cast<cudaStream_t>(native),
            [](void*) { std::this_thread::sleep_for(std::chrono::milliseconds(30)); }, nullptr),
        "cudaLaunchHostFunc");
  });
}

class CudaTracerTest : public ::testing::Test {
 protected:
  static std::unique_ptr<Context> CreateTracedContext(Tracer& tracer) {
    ContextOptions options = CpuOptions();
    options.device = Cuda(0);
    options.tracer = &tracer;
    return CreateContext(options);
  }

  static int64_t NowNs() {
    return std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count();
  }

  Tracer tracer_;
  std::unique_ptr<Context> context_ = CreateTracedContext(tracer_);
  std::unique_ptr<Stream> compute_ = context_->CreateStream("compute").value();
  std::unique_ptr<Stream> communication_ = context_->CreateStream("communication").value();
};

TEST_F(CudaTracerTest, TimesWorkAndWaitsOnTheHostsClock) {
  auto written = context_->CreateEvent("written").value();
  auto memory = context_->Allocate(64, Purpose::kScratch).value();
  const int64_t before = NowNs();
  ASSERT_OK(Delay(*compute_));
  ASSERT_OK(compute_->Record(*written));
  ASSERT_OK(communication_->Wait(*written));
  ASSERT_OK(communication_->FillBytes(memory.data(), 0, 64));
  EXPECT_THAT(tracer_.Take()[0].operations, SizeIs(0));  // nothing has ended
  ASSERT_OK(communication_->Synchronize());
  ASSERT_OK(compute_->Synchronize());
  const int64_t after = NowNs();

  const std::vector<TracedStream> traced = tracer_.Take();
  ASSERT_THAT(traced, SizeIs(2));
  ASSERT_THAT(traced[0].operations, SizeIs(1));
  ASSERT_THAT(traced[1].operations, SizeIs(2));
  const TracedOperation& delay = traced[0].operations[0];
  const TracedOperation& wait = traced[1].operations[0];
  const TracedOperation& fill = traced[1].operations[1];
  EXPECT_EQ(delay.name, "delay");
  EXPECT_EQ(wait.name, "written");
  EXPECT_EQ(wait.kind, TracedOperation::Kind::kWait);
  EXPECT_EQ(fill.name, "fill_bytes");
  EXPECT_EQ(fill.kind, TracedOperation::Kind::kWork);
  EXPECT_EQ(fill.bytes, 64);
  EXPECT_EQ(wait.bytes, 0);
  constexpr int64_t kMillisecond =
      1'000'000;  // clocks agree far better, except in a test that is disturbed
  EXPECT_GE(delay.end_ns - delay.begin_ns, 29 * kMillisecond);
  EXPECT_GE(delay.begin_ns, before - kMillisecond);
  EXPECT_GE(fill.begin_ns, delay.end_ns - kMillisecond);
  EXPECT_LE(fill.end_ns, after + kMillisecond);
}

TEST_F(CudaTracerTest, CountsWhatGoesIntoAGraphAsDropped) {
  auto memory = context_->Allocate(64, Purpose::kScratch).value();
  cudaStream_t native = nullptr;
  ASSERT_OK(compute_->Launch({"look"}, [&](void* stream) {
    native = static_cast<cudaStream_t>(stream);
    return absl::OkStatus();
  }));
  ASSERT_OK(CudaStatus(cudaStreamBeginCapture(native, cudaStreamCaptureModeThreadLocal), "begin"));
  ASSERT_OK(compute_->FillBytes(memory.data(), 0, 64));
  cudaGraph_t graph = nullptr;
  ASSERT_OK(CudaStatus(cudaStreamEndCapture(native, &graph), "end"));
  ASSERT_OK(CudaStatus(cudaGraphDestroy(graph), "destroy"));
  ASSERT_OK(compute_->Synchronize());
  const TracedStream traced = tracer_.Take()[0];
  EXPECT_THAT(traced.operations, SizeIs(1));  // "look"
  EXPECT_EQ(traced.dropped, 1);
}

}  // namespace
}  // namespace brigade::device
