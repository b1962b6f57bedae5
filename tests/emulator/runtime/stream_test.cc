// The order of work in streams and between them.

#include <atomic>
#include <chrono>
#include <memory>
#include <thread>

#include "brigade/tests/emulator/runtime/kernels.h"
#include "brigade/tests/emulator/runtime/testing.h"

namespace brigade::emulator {
namespace {

using ::testing::AnyOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class StreamTest : public RuntimeTest {
 protected:
  Log log_;
};

TEST_F(StreamTest, RunsItsWorkInOrder) {
  Stream stream;
  std::vector<std::string> expected;
  for (int i = 0; i < 50; ++i) {
    expected.push_back(std::to_string(i));
    ASSERT_CUDA(log_.Append(stream, expected.back()));
  }
  ASSERT_CUDA(cudaStreamSynchronize(stream));
  EXPECT_EQ(log_.Take(), expected);
}

// As on a GPU, where a host that is far ahead stands in its call.
TEST_F(StreamTest, AFullQueueHoldsWhoEnqueues) {
  struct Seen {
    std::atomic<int> enqueued{0};
    int while_held = 0, ran = 0;
  } seen;
  Stream stream;
  ASSERT_CUDA(cudaLaunchHostFunc(
      stream,
      [](void* data) {
        std::this_thread::sleep_for(std::chrono::milliseconds(200));
        static_cast<Seen*>(data)->while_held = static_cast<Seen*>(data)->enqueued;
      },
      &seen));
  constexpr int kOperations = 3000;
  for (int i = 0; i < kOperations; ++i, ++seen.enqueued) {
    ASSERT_CUDA(cudaLaunchHostFunc(
        stream, [](void* data) { ++static_cast<Seen*>(data)->ran; }, &seen));
  }
  ASSERT_CUDA(cudaStreamSynchronize(stream));
  EXPECT_LE(seen.while_held, 1024);
  EXPECT_EQ(seen.ran, kOperations);
}

TEST_F(StreamTest, DoesNotWaitForOtherStreams) {
  for (unsigned flags : {cudaStreamDefault, cudaStreamNonBlocking}) {
    Stream held(flags), other(flags);
    Gate gate(held);
    EXPECT_CUDA(cudaStreamSynchronize(other));
    ASSERT_CUDA(log_.Append(other, "other"));
    EXPECT_CUDA(cudaStreamSynchronize(other));
    EXPECT_THAT(log_.Take(), ElementsAre("other"));
    EXPECT_EQ(cudaStreamQuery(held), cudaErrorNotReady);
    EXPECT_CUDA(cudaStreamQuery(other));
  }
}

TEST_F(StreamTest, LegacyAndBlockingStreamsWaitForEachOther) {
  Stream first(cudaStreamDefault), last(cudaStreamDefault);
  for (cudaStream_t legacy : {cudaStream_t{nullptr}, cudaStreamLegacy}) {
    for (cudaStream_t blocking : {cudaStream_t{first}, cudaStreamPerThread}) {
      Gate gate(blocking);
      ASSERT_CUDA(log_.Append(blocking, "blocking"));
      ASSERT_CUDA(log_.Append(legacy, "legacy"));
      ASSERT_CUDA(log_.Append(last, "last"));
      gate.OpenLate();
      ASSERT_CUDA(cudaDeviceSynchronize());
      EXPECT_THAT(log_.Take(), ElementsAre("blocking", "legacy", "last"));
    }
  }
}

TEST_F(StreamTest, LegacyAndNonBlockingStreamsDoNotWaitForEachOther) {
  Stream stream;
  {
    Gate gate(stream);
    ASSERT_CUDA(log_.Append(nullptr, "legacy"));
    EXPECT_CUDA(cudaStreamSynchronize(nullptr));
    EXPECT_THAT(log_.Take(), ElementsAre("legacy"));
    EXPECT_CUDA(cudaStreamQuery(nullptr));
    EXPECT_EQ(cudaStreamQuery(stream), cudaErrorNotReady);
  }
  Gate gate(nullptr);
  ASSERT_CUDA(log_.Append(stream, "non-blocking"));
  EXPECT_CUDA(cudaStreamSynchronize(stream));
  EXPECT_THAT(log_.Take(), ElementsAre("non-blocking"));
}

TEST_F(StreamTest, SynchronizingTheLegacyStreamWaitsForBlockingStreams) {
  Stream stream(cudaStreamDefault);
  Gate gate(stream);
  ASSERT_CUDA(log_.Append(stream, "blocking"));
  EXPECT_EQ(cudaStreamQuery(nullptr), cudaErrorNotReady);
  std::thread opener([&] { gate.OpenLate(); });
  EXPECT_CUDA(cudaStreamSynchronize(nullptr));
  EXPECT_THAT(log_.Take(), ElementsAre("blocking"));
  opener.join();
}

TEST_F(StreamTest, EachThreadHasAPerThreadStreamOfItsOwn) {
  Gate gate(cudaStreamPerThread);
  EXPECT_CUDA(InOtherThread([&] {
    EXPECT_CUDA(log_.Append(cudaStreamPerThread, "other thread"));
    return cudaStreamSynchronize(cudaStreamPerThread);
  }));
  EXPECT_THAT(log_.Take(), ElementsAre("other thread"));
  EXPECT_EQ(cudaStreamQuery(cudaStreamPerThread), cudaErrorNotReady);
}

TEST_F(StreamTest, WorkOfAPerThreadStreamOutlivesItsThread) {
  std::unique_ptr<Gate> gate;
  EXPECT_CUDA(InOtherThread([&] {
    gate = std::make_unique<Gate>(cudaStreamPerThread);
    return log_.Append(cudaStreamPerThread, "thread");
  }));
  ASSERT_CUDA(log_.Append(cudaStreamLegacy, "legacy"));
  gate->OpenLate();
  ASSERT_CUDA(cudaDeviceSynchronize());
  EXPECT_THAT(log_.Take(), ElementsAre("thread", "legacy"));
}

TEST_F(StreamTest, WorkOfADestroyedStreamGoesOn) {
  cudaStream_t stream = nullptr;
  ASSERT_CUDA(cudaStreamCreate(&stream));
  Gate gate(stream);
  ASSERT_CUDA(log_.Append(stream, "destroyed"));
  ASSERT_CUDA(cudaStreamDestroy(stream));
  ASSERT_CUDA(log_.Append(nullptr, "legacy"));
  gate.OpenLate();
  ASSERT_CUDA(cudaDeviceSynchronize());
  EXPECT_THAT(log_.Take(), ElementsAre("destroyed", "legacy"));
}

TEST_F(StreamTest, FreeWaitsForWorkOfADestroyedStream) {
  int* data = nullptr;
  ASSERT_CUDA(cudaMalloc(reinterpret_cast<void**>(&data), 64 * sizeof(int)));
  ASSERT_CUDA(cudaMemset(data, 0, 64 * sizeof(int)));
  ASSERT_CUDA(cudaDeviceSynchronize());
  cudaStream_t stream = nullptr;
  ASSERT_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  Gate gate(stream);
  ASSERT_CUDA(Add(data, 64, 1, stream));
  ASSERT_CUDA(cudaStreamDestroy(stream));
  std::thread opener([&] { gate.OpenLate(); });
  EXPECT_CUDA(cudaFree(data));
  opener.join();
  ASSERT_CUDA(cudaDeviceSynchronize());
}

TEST_F(StreamTest, DeviceSynchronizeWaitsForAllStreamsOfTheDeviceAlone) {
  Stream blocking(cudaStreamDefault), other;
  ASSERT_CUDA(cudaSetDevice(1));
  Stream second;
  Gate second_gate(second);
  ASSERT_CUDA(cudaSetDevice(0));
  Gate gate(blocking), other_gate(other);
  ASSERT_CUDA(log_.Append(blocking, "work"));
  ASSERT_CUDA(log_.Append(other, "work"));
  ASSERT_CUDA(log_.Append(cudaStreamPerThread, "work"));
  std::thread opener([&] {
    gate.OpenLate();
    other_gate.OpenLate();
  });
  ASSERT_CUDA(cudaDeviceSynchronize());
  EXPECT_THAT(log_.Take(), ElementsAre("work", "work", "work"));
  EXPECT_EQ(cudaStreamQuery(second), cudaErrorNotReady);
  opener.join();
}

// Before every third operation, of 100 us on average.
TEST_F(StreamTest, DelaysItsWorkAtRandom) {
  Stream stream;
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < 300; ++i) ASSERT_CUDA(log_.Append(stream, ""));
  ASSERT_CUDA(cudaStreamSynchronize(stream));
  EXPECT_GE(std::chrono::steady_clock::now() - begin, std::chrono::milliseconds(6));
}

TEST_F(StreamTest, AMissingWaitShows) {
  Stream first, second;
  Event event;
  const auto run = [&](bool waits) {
    int in_order = 0;
    for (int i = 0; i < 100; ++i) {
      EXPECT_CUDA(log_.Append(first, "first"));
      EXPECT_CUDA(cudaEventRecord(event, first));
      if (waits) {
        EXPECT_CUDA(cudaStreamWaitEvent(second, event, 0));
      }
      EXPECT_CUDA(log_.Append(second, "second"));
      EXPECT_CUDA(cudaDeviceSynchronize());
      in_order += log_.Take() == std::vector<std::string>{"first", "second"};
    }
    return in_order;
  };
  EXPECT_EQ(run(true), 100);
  EXPECT_LT(run(false), 95);
}

TEST_F(StreamTest, TellsItsPropertiesAndRefusesUnknownFlags) {
  ASSERT_CUDA(cudaSetDevice(1));
  Stream stream;
  ASSERT_CUDA(cudaSetDevice(0));
  Stream blocking(cudaStreamDefault);
  unsigned flags = 99;
  EXPECT_CUDA(cudaStreamGetFlags(stream, &flags));
  EXPECT_EQ(flags, cudaStreamNonBlocking);
  EXPECT_CUDA(cudaStreamGetFlags(blocking, &flags));
  EXPECT_EQ(flags, cudaStreamDefault);
  int device = -1, priority = -1;
  EXPECT_CUDA(cudaStreamGetDevice(stream, &device));
  EXPECT_EQ(device, 1);
  EXPECT_CUDA(cudaStreamGetPriority(stream, &priority));
  EXPECT_EQ(priority, 0);
  unsigned long long id = 0, other_id = 0;
  EXPECT_CUDA(cudaStreamGetId(stream, &id));
  EXPECT_CUDA(cudaStreamGetId(blocking, &other_id));
  EXPECT_NE(id, other_id);
  cudaStream_t none = nullptr;
  EXPECT_EQ(cudaStreamCreateWithFlags(&none, 8), cudaErrorInvalidValue);
}

TEST_F(StreamTest, CallbacksGetTheStreamAndItsState) {
  struct Seen {
    cudaStream_t stream = nullptr;
    cudaError_t error = cudaErrorUnknown;
  } seen;
  Stream stream;
  const auto callback = [](cudaStream_t at, cudaError_t error, void* data) {
    *static_cast<Seen*>(data) = {at, error};
  };
  ASSERT_CUDA(cudaStreamAddCallback(stream, callback, &seen, 0));
  ASSERT_CUDA(cudaStreamSynchronize(stream));
  EXPECT_EQ(seen.stream, stream);
  EXPECT_EQ(seen.error, cudaSuccess);
  EXPECT_EQ(cudaStreamAddCallback(stream, callback, &seen, 1), cudaErrorInvalidValue);
  EXPECT_EQ(cudaStreamAddCallback(stream, nullptr, &seen, 0), cudaErrorInvalidValue);
}

TEST_F(StreamTest, SeveralThreadsUseAStreamAtOnce) {
  Stream stream;
  Ints data(64);
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int round = 0; round < 10; ++round) {
        EXPECT_CUDA(Add(data, 64, 1, stream));
        if (round % 4 == 0) {
          EXPECT_CUDA(cudaStreamSynchronize(stream));
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(data.Values(), Each(40));
}

}  // namespace
}  // namespace brigade::emulator
