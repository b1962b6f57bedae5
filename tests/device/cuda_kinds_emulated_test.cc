// What only an emulated device shows of events across kinds: a device that fails, a driver without
// waits for words, calls that CUDA refuses, and what is allocated outside of CUDA.

#include <cuda_runtime_api.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "brigade/device/context.h"
#include "brigade/emulator/runtime/control.h"
#include "brigade/emulator/runtime/library.h"
#include "brigade/tests/device/testing.h"
#include "brigade/tests/testing/counted_allocations.h"
#include "brigade/tests/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::device {
namespace {

using ::brigade::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::SizeIs;

std::unique_ptr<Context> CreateGpu(int ordinal) {
  ContextOptions options = CpuOptions();
  options.device = Cuda(ordinal);
  return CreateContext(options);
}

class CudaKindsEmulatedTest : public ::testing::Test {
 protected:
  explicit CudaKindsEmulatedTest(int ordinal = 0) : gpu_(CreateGpu(ordinal)) {}

  std::unique_ptr<Context> gpu_;
  std::unique_ptr<Context> cpu_ = CreateContext(CpuOptions("host 0"));
  std::unique_ptr<Stream> down_ = gpu_->CreateStream("down").value();
  std::unique_ptr<Stream> up_ = gpu_->CreateStream("up").value();
  std::unique_ptr<Stream> lane_ = cpu_->CreateStream("lane").value();
  std::unique_ptr<Event> reduced_ = gpu_->CreateEvent("reduced").value();
  std::unique_ptr<Event> updated_ = cpu_->CreateEvent("updated").value();
};

// A device that has failed stays so; each test has one of its own.
class FailingDeviceTest : public CudaKindsEmulatedTest {
 protected:
  FailingDeviceTest() : CudaKindsEmulatedTest(++last_) {}

  absl::Status Crash(Stream& stream, Gate& gate) {
    return stream.Launch({"crash", {}}, [&gate](void* native) {
      const auto crash = [&gate] {
        gate.Pass();
        return absl::InternalError("crashed");
      };
      return emulator::EnqueueKernel(static_cast<cudaStream_t>(native), "crash", crash) ==
                     cudaSuccess
                 ? absl::OkStatus()
                 : absl::InternalError("refused");
    });
  }

  static inline int last_ = 0;
  Gate gate_;
};

TEST_F(FailingDeviceTest, EndsTheWaitOfTheCpuWithAnError) {
  ASSERT_OK(Crash(*down_, gate_));
  ASSERT_OK(down_->Record(*reduced_));
  ASSERT_OK(lane_->Wait(*reduced_));
  ASSERT_OK(lane_->Record(*updated_));
  gate_.AwaitArrival();
  EXPECT_EQ(updated_->Query().value(), false);
  gate_.Open();
  EXPECT_THAT(lane_->Synchronize(),
              StatusIs(absl::StatusCode::kInternal,
                       "the device has failed: CUDA error 700; reached stream \"lane\" of "
                       "\"host 0\" through event \"reduced\""));
  EXPECT_THAT(emulator::TakeReports(), SizeIs(1));
  // A wait that CUDA no longer accepts.
  ASSERT_OK(lane_->Reset());
  ASSERT_OK(lane_->Wait(*reduced_));
  EXPECT_THAT(lane_->Synchronize(),
              StatusIs(absl::StatusCode::kInternal,
                       AllOf(HasSubstr("cudaErrorIllegalAddress"), HasSubstr("\"reduced\""))));
  // Nor can a stream be made for another lane to follow it.
  auto second = cpu_->CreateStream("second lane").value();
  ASSERT_OK(second->Wait(*reduced_));
  EXPECT_THAT(second->Synchronize(), StatusIs(absl::StatusCode::kInternal));
}

// The record carries what the CPU has not said yet; the device's error does not wait for it.
TEST_F(FailingDeviceTest, EndsWaitsThatTheCpuHasNotEnded) {
  Gate held;
  auto second = cpu_->CreateStream("second lane").value();
  ASSERT_OK(Block(*second, held));
  ASSERT_OK(second->Record(*updated_));
  ASSERT_OK(up_->Wait(*updated_));
  ASSERT_OK(up_->Record(*reduced_));
  ASSERT_OK(lane_->Wait(*reduced_));
  ASSERT_OK(Crash(*down_, gate_));
  gate_.AwaitArrival();
  gate_.Open();
  EXPECT_THAT(lane_->Synchronize(), StatusIs(absl::StatusCode::kInternal));
  EXPECT_THAT(up_->Synchronize(), StatusIs(absl::StatusCode::kInternal));
  EXPECT_THAT(reduced_->Query(), StatusIs(absl::StatusCode::kInternal));
  EXPECT_THAT(reduced_->Synchronize(), StatusIs(absl::StatusCode::kInternal));
  EXPECT_THAT(emulator::TakeReports(), SizeIs(1));
  held.Open();
  EXPECT_OK(second->Synchronize());
}

TEST_F(CudaKindsEmulatedTest, AWaitThatCudaRefusesFailsTheStream) {
  Gate gate;
  ASSERT_OK(Block(*lane_, gate));
  ASSERT_OK(lane_->Record(*updated_));
  emulator::Inject({"cuStreamWaitValue32", 1, cudaErrorLaunchFailure});
  EXPECT_THAT(up_->Wait(*updated_),
              StatusIs(absl::StatusCode::kInternal,
                       HasSubstr("\"wait\" on stream \"up\" of \"rank 0\": cuStreamWaitValue32")));
  gate.Open();
  EXPECT_THAT(up_->Synchronize(), StatusIs(absl::StatusCode::kInternal));
  ASSERT_OK(up_->Reset());
  ASSERT_OK(lane_->Record(*updated_));
  ASSERT_OK(up_->Wait(*updated_));
  EXPECT_OK(up_->Synchronize());
  // The other way the CPU's stream fails, in its order.
  for (const char* function : {"cudaStreamWaitEvent", "cudaStreamAddCallback"}) {
    ASSERT_OK(down_->Record(*reduced_));
    emulator::Inject({function, 1, cudaErrorLaunchFailure});
    ASSERT_OK(lane_->Wait(*reduced_));
    EXPECT_THAT(lane_->Synchronize(),
                StatusIs(absl::StatusCode::kInternal,
                         AllOf(HasSubstr(function), HasSubstr("reached stream \"lane\""))));
    ASSERT_OK(lane_->Reset());
  }
}

TEST_F(CudaKindsEmulatedTest, WithoutWaitsForWordsTheHostWaits) {
  emulator::Inject({"cuStreamWaitValue32", 1, cudaErrorNotSupported});
  auto old = gpu_->CreateStream("old").value();
  ASSERT_OK(lane_->Record(*updated_));
  ASSERT_OK(old->Wait(*updated_));
  EXPECT_EQ(gpu_->host_waits(), 1);
  bool ran = false;
  ASSERT_OK(lane_->Enqueue({"slow", {}}, [&ran](ThreadPool&) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    ran = true;
    return absl::OkStatus();
  }));
  ASSERT_OK(lane_->Record(*updated_));
  ASSERT_OK(old->Wait(*updated_));
  EXPECT_TRUE(ran);
  EXPECT_EQ(gpu_->host_waits(), 2);
  // Of its own kind it waits as ever.
  ASSERT_OK(down_->Record(*reduced_));
  ASSERT_OK(old->Wait(*reduced_));
  EXPECT_EQ(gpu_->host_waits(), 2);
  // Work must not wait.
  absl::Status refused;
  ASSERT_OK(lane_->Enqueue({"waits", {}}, [&](ThreadPool&) {
    refused = old->Wait(*updated_);
    return absl::OkStatus();
  }));
  ASSERT_OK(lane_->Synchronize());
  EXPECT_THAT(refused, StatusIs(absl::StatusCode::kFailedPrecondition,
                                HasSubstr("must not wait for a device on the host")));
  // An error comes along.
  ASSERT_OK(Fail(*lane_, "disk on fire"));
  ASSERT_OK(lane_->Record(*updated_));
  ASSERT_OK(old->Wait(*updated_));
  EXPECT_THAT(old->status(), StatusIs(absl::StatusCode::kDataLoss,
                                      HasSubstr("reached stream \"old\" of \"rank 0\"")));
}

TEST_F(CudaKindsEmulatedTest, AllocatesNothingInSteadyState) {
  const Buffer device = gpu_->Allocate(64, Purpose::kScratch).value();
  const Buffer host = gpu_->AllocateHost(64, Purpose::kScratch).value();
  auto uploaded = gpu_->CreateEvent("uploaded").value();
  ASSERT_OK(up_->Record(*uploaded));
  bool ok = true;
  const auto step = [&] {
    ok &= down_->Wait(*uploaded).ok() && down_->Copy(host.data(), device.data(), 64).ok() &&
          down_->Record(*reduced_).ok() && lane_->Wait(*reduced_).ok() &&
          lane_->FillBytes(host.data(), 1, 64).ok() && lane_->Record(*updated_).ok() &&
          up_->Wait(*updated_).ok() && up_->Copy(device.data(), host.data(), 64).ok() &&
          up_->Record(*uploaded).ok();
  };
  // Warm up with the queues at their deepest.
  Gate gate;
  ASSERT_OK(Block(*lane_, gate));
  for (int i = 0; i < 100; ++i) step();
  gate.Open();
  ASSERT_OK(up_->Synchronize());
  const int64_t waits_before = gpu_->host_waits() + cpu_->host_waits();
  int64_t waits = 0, inside = 0, outside = 0;
  {
    // Without gtest's macros, which allocate.
    const brigade::testing::AllocationsByLibrary allocations("libcudart");
    for (int i = 0; i < 50; ++i) step();
    waits = gpu_->host_waits() + cpu_->host_waits();
    ok &= up_->Synchronize().ok();
    inside = allocations.inside();
    outside = allocations.outside();
  }
  EXPECT_TRUE(ok);
  EXPECT_EQ(waits, waits_before);
  EXPECT_EQ(outside, 0);
  EXPECT_GT(inside, 0);  // the emulator's own
}

}  // namespace
}  // namespace brigade::device
