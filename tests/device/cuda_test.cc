// The contract of docs/device.md on a GPU: what the CPU's tests say, for CUDA.

#include <cuda_runtime_api.h>

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "brigade/device/address_registry.h"
#include "brigade/device/context.h"
#include "brigade/device/cuda/cuda_status.h"
#include "brigade/device/device_memory.h"
#include "brigade/tests/device/testing.h"
#include "brigade/tests/testing/emulated.h"
#include "brigade/tests/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::device {
namespace {

using ::brigade::testing::StatusIs;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr int64_t kBytes = int64_t{4} << 20;

// Keeps the GPU's stream busy for a while, so that a missing order would be seen.
absl::Status Delay(Stream& stream) {
  return stream.Launch({"delay", {}}, [](void* native) {
    return CudaStatus(
        cudaLaunchHostFunc(
            static_cast<cudaStream_t>(native),
            [](void*) { std::this_thread::sleep_for(std::chrono::milliseconds(30)); }, nullptr),
        "cudaLaunchHostFunc");
  });
}

absl::Status FailLaunch(Stream& stream) {
  return stream.Launch({"broken", {}}, [](void*) { return absl::DataLossError("disk on fire"); });
}

constexpr char kBroken[] = "\"broken\" on stream \"compute\" of \"rank 0\": disk on fire";

class CudaTest : public ::testing::Test {
 protected:
  std::unique_ptr<Context> CreateNamedContext(const std::string& name, int64_t limit = 0) {
    ContextOptions options = CheckedOptions(checker_, name);
    options.device = Cuda(0);
    options.memory_limit_bytes = limit;
    return CreateContext(options);
  }

  // What `data` holds on the GPU, read without the streams under test.
  static std::vector<uint8_t> Read(const void* data, int64_t bytes) {
    std::vector<uint8_t> host(static_cast<size_t>(bytes));
    EXPECT_OK(
        CudaStatus(cudaMemcpy(host.data(), data, host.size(), cudaMemcpyDefault), "cudaMemcpy"));
    return host;
  }

  RaceChecker checker_;
  std::unique_ptr<Context> context_ = CreateNamedContext("rank 0");
  std::unique_ptr<Stream> compute_ = context_->CreateStream("compute").value();
  std::unique_ptr<Stream> comm_ = context_->CreateStream("comm").value();
  std::unique_ptr<Event> ready_ = context_->CreateEvent("ready").value();
};

TEST_F(CudaTest, MemoryIsPoisonedAlignedAndCounted) {
  const Buffer buffer = context_->Allocate(kBytes, Purpose::kGradients, "grads").value();
  EXPECT_THAT(Read(buffer.data(), kBytes), Each(0xFF));
  EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer.data()) % 256, 0u);
  EXPECT_EQ(context_->memory_stats().current_bytes(Purpose::kGradients), kBytes);
  EXPECT_EQ(AddressRegistry::Global().DeviceOf(buffer.as<char>().data() + kBytes - 1), Cuda(0));
}

TEST_F(CudaTest, WhatIsAllocatedIsNotFree) {
  const auto context = CreateNamedContext("rank 0");
  ASSERT_OK_AND_ASSIGN(const DeviceMemory before, MemoryOf(Cuda(0)));
  EXPECT_GT(before.free, 0);
  EXPECT_LE(before.free, before.total);
  // More than a driver keeps in reserve.
  constexpr int64_t kMany = int64_t{256} << 20;
  const auto memory = context->Allocate(kMany, Purpose::kScratch);
  ASSERT_OK(memory);
  ASSERT_OK_AND_ASSIGN(const DeviceMemory after, MemoryOf(Cuda(0)));
  EXPECT_LE(after.free, before.free - kMany);
  EXPECT_EQ(after.total, before.total);
}

TEST_F(CudaTest, EventsOrderStreams) {
  const Buffer from = context_->Allocate(kBytes, Purpose::kScratch, "from").value();
  const Buffer to = context_->Allocate(kBytes, Purpose::kScratch, "to").value();
  for (uint8_t round = 1; round < 6; ++round) {
    ASSERT_OK(Delay(*compute_));
    ASSERT_OK(compute_->FillBytes(from.data(), round, kBytes));
    ASSERT_OK(compute_->Record(*ready_));
    EXPECT_EQ(ready_->Query().value(), false);
    ASSERT_OK(comm_->Wait(*ready_));
    ASSERT_OK(comm_->Copy(to.data(), from.data(), kBytes));
    ASSERT_OK(comm_->Synchronize());
    EXPECT_EQ(ready_->Query().value(), true);
    EXPECT_THAT(Read(to.data(), kBytes), Each(round));
  }
  EXPECT_THAT(checker_.reports(), IsEmpty());
}

TEST_F(CudaTest, ContextsShareAGpuAndOrderByEvents) {
  auto other = CreateNamedContext("rank 1");
  auto update = other->CreateStream("update").value();
  const Buffer buffer = context_->Allocate(kBytes, Purpose::kScratch, "shared").value();
  ASSERT_OK(Delay(*compute_));
  ASSERT_OK(compute_->FillBytes(buffer.data(), 1, kBytes));
  ASSERT_OK(compute_->Record(*ready_));
  ASSERT_OK(update->Wait(*ready_));
  ASSERT_OK(update->FillBytes(buffer.data(), 2, kBytes));
  ASSERT_OK(update->Synchronize());
  EXPECT_THAT(Read(buffer.data(), kBytes), Each(2));
  EXPECT_EQ(other->memory_stats().current_bytes(), 0);
  EXPECT_THAT(checker_.reports(), IsEmpty());
}

TEST_F(CudaTest, CopiesBetweenHostAndDevice) {
  const Buffer buffer = context_->Allocate(kBytes, Purpose::kScratch, "device").value();
  std::vector<uint8_t> out(static_cast<size_t>(kBytes), 9), in(static_cast<size_t>(kBytes));
  ASSERT_OK(compute_->Copy(buffer.data(), out.data(), kBytes));
  ASSERT_OK(compute_->Copy(in.data(), buffer.data(), kBytes));
  ASSERT_OK(compute_->Synchronize());
  EXPECT_EQ(in, out);
}

TEST_F(CudaTest, CopiesToHostMemoryDoNotBlock) {
  const Buffer buffer = context_->Allocate(kBytes, Purpose::kScratch, "device").value();
  const Buffer host = context_->AllocateHost(kBytes, Purpose::kScratch, "host").value();
  EXPECT_EQ(host.device(), Cpu());
  EXPECT_EQ(AddressRegistry::Global().DeviceOf(host.data()), Cpu());
  EXPECT_EQ(context_->memory_stats().current_bytes(), kBytes);
  EXPECT_THAT(host.as<uint8_t>(), Each(0xFF));
  ASSERT_OK(Delay(*compute_));
  ASSERT_OK(compute_->FillBytes(buffer.data(), 5, kBytes));
  ASSERT_OK(compute_->Copy(host.data(), buffer.data(), kBytes));
  ASSERT_OK(compute_->Record(*ready_));
  EXPECT_EQ(ready_->Query().value(), false);
  ASSERT_OK(compute_->Synchronize());
  EXPECT_THAT(host.as<uint8_t>(), Each(5));
}

TEST_F(CudaTest, MissingWaitIsReportedWithoutHavingToGoWrong) {
  const Buffer buffer = context_->Allocate(kBytes, Purpose::kScratch, "shared").value();
  ASSERT_OK(compute_->FillBytes(buffer.data(), 1, kBytes));
  ASSERT_OK(comm_->FillBytes(buffer.data(), 2, kBytes));
  EXPECT_THAT(comm_->Synchronize(),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("bytes [0, 4194304) of \"shared\"; no event orders them")));
  EXPECT_THAT(checker_.reports(), SizeIs(1));
}

TEST_F(CudaTest, LaunchErrorsTravelThroughEvents) {
  auto other = CreateNamedContext("rank 1");
  auto update = other->CreateStream("update").value();
  auto reduced = context_->CreateEvent("reduced").value();
  EXPECT_THAT(FailLaunch(*compute_), StatusIs(absl::StatusCode::kDataLoss, kBroken));
  EXPECT_THAT(Delay(*compute_), StatusIs(absl::StatusCode::kDataLoss, kBroken));
  ASSERT_OK(compute_->Record(*ready_));
  ASSERT_OK(comm_->Wait(*ready_));
  ASSERT_OK(comm_->Record(*reduced));
  ASSERT_OK(update->Wait(*reduced));
  const std::string route =
      std::string(kBroken) + "; reached stream \"comm\" of \"rank 0\" through event \"ready\"";
  EXPECT_THAT(comm_->Synchronize(), StatusIs(absl::StatusCode::kDataLoss, route));
  EXPECT_THAT(reduced->Synchronize(),
              StatusIs(absl::StatusCode::kDataLoss,
                       route + "; reached the host through event \"reduced\""));
  EXPECT_THAT(update->Synchronize(),
              StatusIs(absl::StatusCode::kDataLoss,
                       route + "; reached stream \"update\" of \"rank 1\" through event "
                               "\"reduced\""));
  for (Stream* stream : {compute_.get(), comm_.get(), update.get()}) {
    ASSERT_OK(stream->Reset());
    EXPECT_OK(Delay(*stream));
    EXPECT_OK(stream->Synchronize());
  }
}

TEST_F(CudaTest, ErrorsOfTheRuntimeAreMappedAndStayTheStreams) {
  char host[8] = {};
  // An error that CUDA promises.
  const auto choose_no_device = [](void*) {
    return CudaStatus(cudaSetDevice(1000), "cudaSetDevice");
  };
  EXPECT_THAT(compute_->Launch({"nothing", {}}, choose_no_device),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("\"nothing\" on stream \"compute\" of \"rank 0\""),
                             HasSubstr("cudaErrorInvalidDevice"))));
  EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess);
  ASSERT_OK(compute_->Reset());
  const Buffer buffer = context_->Allocate(8, Purpose::kScratch).value();
  EXPECT_OK(compute_->Copy(buffer.data(), host, 8));
  EXPECT_OK(compute_->Synchronize());
}

TEST_F(CudaTest, EnqueueBelongsToTheCpu) {
  EXPECT_THAT(compute_->Enqueue({"adam", {}}, [](ThreadPool&) { return absl::OkStatus(); }),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("\"adam\": stream \"compute\" is on cuda:0")));
}

TEST_F(CudaTest, RecordsInEventsOfAnotherKindAreRefused) {
  auto cpu = CreateContext(CheckedOptions(checker_, "cpu"));
  auto cpu_event = cpu->CreateEvent("host_event").value();
  const auto invalid = absl::StatusCode::kInvalidArgument;
  EXPECT_THAT(compute_->Record(*cpu_event),
              StatusIs(invalid,
                       "Record: event \"host_event\" is on cpu:0, but stream \"compute\" "
                       "is on cuda:0"));
}

TEST_F(CudaTest, NeverRecordedIsRefused) {
  EXPECT_THAT(comm_->Wait(*ready_), StatusIs(absl::StatusCode::kFailedPrecondition));
  EXPECT_THAT(ready_->Query(), StatusIs(absl::StatusCode::kFailedPrecondition));
}

TEST_F(CudaTest, OutOfMemoryIsAnErrorThatChangesNothing) {
  auto limited = CreateNamedContext("rank 7", /*limit=*/1000);
  const Buffer some = limited->Allocate(900, Purpose::kParameters).value();
  EXPECT_THAT(limited->Allocate(101, Purpose::kScratch),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("limit 1000")));
  EXPECT_EQ(limited->memory_stats().peak_bytes(), 900);
  EXPECT_THAT(context_->Allocate(int64_t{1} << 50, Purpose::kScratch),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       HasSubstr("cudaErrorMemoryAllocation (out of memory)")));
  EXPECT_EQ(context_->memory_stats().peak_bytes(), 0);
  EXPECT_OK(context_->Allocate(kBytes, Purpose::kScratch));
}

TEST_F(CudaTest, FreeingWaitsForTheWorkOfTheContext) {
  Buffer buffer = context_->Allocate(kBytes, Purpose::kScratch).value();
  ASSERT_OK(Delay(*compute_));
  ASSERT_OK(compute_->FillBytes(buffer.data(), 1, kBytes));
  ASSERT_OK(compute_->Record(*ready_));
  buffer = Buffer();
  EXPECT_EQ(ready_->Query().value(), true);
  EXPECT_EQ(context_->host_waits(), 1);
  buffer = context_->Allocate(kBytes, Purpose::kScratch).value();
  buffer = Buffer();
  EXPECT_EQ(context_->host_waits(), 1);
  EXPECT_THAT(checker_.reports(), IsEmpty());
}

TEST_F(CudaTest, DestructionInAnyOrderWithWorkOutstanding) {
  Buffer buffer = context_->Allocate(kBytes, Purpose::kScratch).value();
  ASSERT_OK(Delay(*compute_));
  ASSERT_OK(compute_->FillBytes(buffer.data(), 1, kBytes));
  ASSERT_OK(compute_->Record(*ready_));
  ASSERT_OK(comm_->Wait(*ready_));
  ASSERT_OK(comm_->FillBytes(buffer.data(), 2, kBytes));
  context_.reset();
  ready_.reset();
  compute_.reset();
  EXPECT_OK(comm_->Synchronize());
  EXPECT_THAT(Read(buffer.data(), kBytes), Each(2));
}

TEST_F(CudaTest, BorrowsAStreamAndLeavesItAlone) {
  cudaStream_t theirs = nullptr;
  ASSERT_OK(CudaStatus(cudaStreamCreate(&theirs), "cudaStreamCreate"));
  const Buffer buffer = context_->Allocate(kBytes, Purpose::kScratch).value();
  for (uint8_t round = 1; round < 3; ++round) {
    auto borrowed = context_->BorrowStream(theirs, "theirs").value();
    ASSERT_OK(borrowed->FillBytes(buffer.data(), round, kBytes));
  }
  EXPECT_EQ(context_->host_waits(), 0);
  ASSERT_OK(CudaStatus(cudaStreamSynchronize(theirs), "cudaStreamSynchronize"));
  EXPECT_THAT(Read(buffer.data(), kBytes), Each(2));
  EXPECT_THAT(checker_.reports(), IsEmpty());
  ASSERT_OK(CudaStatus(cudaStreamDestroy(theirs), "cudaStreamDestroy"));
}

TEST_F(CudaTest, StreamsEndWhileAnotherThreadFreesMemory) {
  std::thread frees([&] {
    for (int i = 0; i < 200; ++i) EXPECT_OK(context_->Allocate(64, Purpose::kScratch));
  });
  const Buffer memory = context_->Allocate(64, Purpose::kScratch).value();
  for (int i = 0; i < 200; ++i) {
    auto stream = context_->CreateStream("short").value();
    ASSERT_OK(stream->FillBytes(memory.data(), 1, 64));
  }
  frees.join();
}

TEST_F(CudaTest, BorrowsNoStreamThatIsAnotherInEachThread) {
  EXPECT_THAT(context_->BorrowStream(cudaStreamPerThread, "per thread"),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("cudaStreamPerThread is another stream in each thread")));
}

TEST_F(CudaTest, StatusDoesNotWaitForALaunchThatBlocks) {
  Gate gate;
  auto launched = std::async(std::launch::async, [&] {
    return compute_->Launch({"slow", {}}, [&gate](void*) {
      gate.Pass();
      return absl::OkStatus();
    });
  });
  gate.AwaitArrival();
  auto status = std::async(std::launch::async, [&] { return compute_->status(); });
  EXPECT_EQ(status.wait_for(std::chrono::seconds(10)), std::future_status::ready);
  gate.Open();
  EXPECT_OK(status.get());
  EXPECT_OK(launched.get());
}

TEST_F(CudaTest, UnknownDeviceIsUnavailable) {
  ContextOptions options;
  options.device = Cuda(1000);
  EXPECT_THAT(Context::Create(options),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("cuda:1000: no such device")));
}

// The emulator is a tool that says what is wrong with a buffer, and fails the process.
TEST_F(CudaTest, ToolsKnowTheNameOfABuffer) {
  if (!brigade::testing::IsEmulated()) GTEST_SKIP() << "the tool is the emulator";
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto copy_past_the_end = [this] {
    const auto context = CreateNamedContext("rank 0");
    const Buffer buffer = context->Allocate(64, Purpose::kParameters, "weights").value();
    char bytes[65];
    static_cast<void>(cudaMemcpy(bytes, buffer.data(), sizeof(bytes), cudaMemcpyDefault));
    std::exit(EXIT_SUCCESS);
  };
  EXPECT_EXIT(copy_past_the_end(), ::testing::ExitedWithCode(EXIT_FAILURE),
              "of 64 of \"weights \\(cudaMalloc number");
}

}  // namespace
}  // namespace brigade::device
