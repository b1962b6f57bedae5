// What CUDA allows while a stream captures, and what it does not.

#include <functional>
#include <memory>
#include <tuple>

#include "brigade/emulator/runtime/library.h"
#include "brigade/tests/emulator/runtime/kernels.h"
#include "brigade/tests/emulator/runtime/testing.h"

namespace brigade::emulator {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr cudaStreamCaptureMode kGlobal = cudaStreamCaptureModeGlobal;
constexpr cudaStreamCaptureMode kThreadLocal = cudaStreamCaptureModeThreadLocal;
constexpr cudaStreamCaptureMode kRelaxed = cudaStreamCaptureModeRelaxed;

cudaStreamCaptureStatus StatusOf(cudaStream_t stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  EXPECT_CUDA(cudaStreamIsCapturing(stream, &status));
  return status;
}

cudaError_t End(cudaStream_t stream) {
  cudaGraph_t graph = nullptr;
  const cudaError_t error = cudaStreamEndCapture(stream, &graph);
  EXPECT_EQ(graph != nullptr, error == cudaSuccess);
  if (graph != nullptr) {
    EXPECT_CUDA(cudaGraphDestroy(graph));
  }
  return error;
}

class CaptureTest : public RuntimeTest {
 protected:
  Stream stream_, other_;
  Event event_, uncaptured_;
  Log log_;
};

// Calls that may disturb captures, on handles that have nothing to do with any.
struct UnsafeCall {
  const char* name;
  cudaError_t (*call)(cudaStream_t other, cudaEvent_t event, void* device);
};

const UnsafeCall kUnsafeCalls[] = {
    {"cudaMalloc",
     [](cudaStream_t, cudaEvent_t, void*) {
       void* data = nullptr;
       const cudaError_t error = cudaMalloc(&data, 16);
       return data == nullptr ? error : cudaFree(data);
     }},
    {"cudaMallocHost",
     [](cudaStream_t, cudaEvent_t, void*) {
       void* data = nullptr;
       const cudaError_t error = cudaMallocHost(&data, 16);
       return data == nullptr ? error : cudaFreeHost(data);
     }},
    {"cudaMemcpy",
     [](cudaStream_t, cudaEvent_t, void* device) {
       const int value = 1;
       return cudaMemcpy(device, &value, sizeof(value), cudaMemcpyHostToDevice);
     }},
    {"cudaMemset",
     [](cudaStream_t, cudaEvent_t, void* device) { return cudaMemset(device, 0, 4); }},
    {"cudaEventQuery",
     [](cudaStream_t, cudaEvent_t event, void*) { return cudaEventQuery(event); }},
    {"cudaEventSynchronize",
     [](cudaStream_t, cudaEvent_t event, void*) { return cudaEventSynchronize(event); }},
    {"cudaStreamQuery",
     [](cudaStream_t other, cudaEvent_t, void*) { return cudaStreamQuery(other); }},
    {"cudaStreamSynchronize",
     [](cudaStream_t other, cudaEvent_t, void*) { return cudaStreamSynchronize(other); }},
};

class UnsafeCallTest : public CaptureTest, public ::testing::WithParamInterface<UnsafeCall> {};

INSTANTIATE_TEST_SUITE_P(All, UnsafeCallTest, ::testing::ValuesIn(kUnsafeCalls),
                         [](const auto& info) { return std::string(info.param.name); });

// In all modes of the capture, by the thread that captures and by another one, in each of which the
// thread may have exchanged its mode.
TEST_P(UnsafeCallTest, InvalidatesTheCapturesThatItMayDisturb) {
  Ints data(1);
  for (cudaStreamCaptureMode mode : {kGlobal, kThreadLocal, kRelaxed}) {
    for (cudaStreamCaptureMode of_thread : {kGlobal, kThreadLocal, kRelaxed}) {
      for (bool is_other_thread : {false, true}) {
        const bool is_unsafe =
            of_thread != kRelaxed &&
            (is_other_thread ? mode == kGlobal && of_thread == kGlobal : mode != kRelaxed);
        SCOPED_TRACE(::testing::Message()
                     << "capture " << mode << ", thread " << of_thread << ", " << is_other_thread);
        ASSERT_CUDA(cudaStreamBeginCapture(stream_, mode));
        const auto call = [&] {
          cudaStreamCaptureMode exchanged = of_thread;
          EXPECT_CUDA(cudaThreadExchangeStreamCaptureMode(&exchanged));
          EXPECT_EQ(exchanged, kGlobal);
          const cudaError_t error = GetParam().call(other_, uncaptured_, data);
          EXPECT_CUDA(cudaThreadExchangeStreamCaptureMode(&exchanged));
          EXPECT_EQ(exchanged, of_thread);
          return error;
        };
        EXPECT_EQ(is_other_thread ? InOtherThread(call) : call(),
                  is_unsafe ? cudaErrorStreamCaptureUnsupported : cudaSuccess);
        EXPECT_EQ(StatusOf(stream_),
                  is_unsafe ? cudaStreamCaptureStatusInvalidated : cudaStreamCaptureStatusActive);
        cudaError_t ended = cudaSuccess;
        const std::string printed = PrintedBy([&] { ended = End(stream_); });
        EXPECT_EQ(ended, is_unsafe ? cudaErrorStreamCaptureInvalidated : cudaSuccess);
        if (is_unsafe) {
          EXPECT_THAT(printed, HasSubstr(GetParam().name));
        }
      }
    }
  }
}

TEST_F(CaptureTest, FreeInvalidatesIt) {
  void *device = nullptr, *host = nullptr;
  ASSERT_CUDA(cudaMalloc(&device, 16));
  ASSERT_CUDA(cudaMallocHost(&host, 16));
  for (const bool is_host : {false, true}) {
    ASSERT_CUDA(cudaStreamBeginCapture(stream_, kThreadLocal));
    EXPECT_EQ(is_host ? cudaFreeHost(host) : cudaFree(device), cudaErrorStreamCaptureUnsupported);
    EXPECT_EQ(End(stream_), cudaErrorStreamCaptureInvalidated);
  }
  EXPECT_CUDA(cudaFree(device));
  EXPECT_CUDA(cudaFreeHost(host));
}

// Conflicts that no mode allows.
TEST_F(CaptureTest, WaitsOfTheHostForWhatCapturesInvalidateItInEveryMode) {
  for (cudaStreamCaptureMode mode : {kGlobal, kThreadLocal, kRelaxed}) {
    const std::pair<cudaError_t, std::function<cudaError_t()>> waits[] = {
        {cudaErrorStreamCaptureUnsupported, [&] { return cudaStreamQuery(stream_); }},
        {cudaErrorStreamCaptureUnsupported, [&] { return cudaStreamSynchronize(stream_); }},
        {cudaErrorStreamCaptureUnsupported, [&] { return cudaDeviceSynchronize(); }},
        {cudaErrorStreamCaptureUnsupported, [&] { return cudaStreamDestroy(stream_); }},
        {cudaErrorCapturedEvent, [&] { return cudaEventQuery(event_); }},
        {cudaErrorCapturedEvent, [&] { return cudaEventSynchronize(event_); }},
    };
    for (const auto& [error, wait] : waits) {
      ASSERT_CUDA(cudaStreamBeginCapture(stream_, mode));
      ASSERT_CUDA(cudaEventRecord(event_, stream_));
      cudaStreamCaptureMode relaxed = kRelaxed;
      ASSERT_CUDA(cudaThreadExchangeStreamCaptureMode(&relaxed));
      EXPECT_EQ(wait(), error);
      ASSERT_CUDA(cudaThreadExchangeStreamCaptureMode(&relaxed));
      EXPECT_EQ(log_.Append(stream_, "more"), cudaErrorStreamCaptureInvalidated);
      EXPECT_EQ(cudaEventRecord(event_, stream_), cudaErrorStreamCaptureInvalidated);
      EXPECT_EQ(End(stream_), cudaErrorStreamCaptureInvalidated);
      EXPECT_EQ(StatusOf(stream_), cudaStreamCaptureStatusNone);
    }
  }
}

TEST_F(CaptureTest, DeviceSynchronizeInvalidatesAllCapturesOfTheDevice) {
  ASSERT_CUDA(cudaStreamBeginCapture(stream_, kRelaxed));
  ASSERT_CUDA(cudaStreamBeginCapture(other_, kRelaxed));
  EXPECT_EQ(cudaDeviceSynchronize(), cudaErrorStreamCaptureUnsupported);
  EXPECT_EQ(End(stream_), cudaErrorStreamCaptureInvalidated);
  EXPECT_EQ(End(other_), cudaErrorStreamCaptureInvalidated);
}

TEST_F(CaptureTest, NothingRunsBeforeTheGraphIsLaunched) {
  ASSERT_CUDA(cudaStreamBeginCapture(stream_, kGlobal));
  ASSERT_CUDA(log_.Append(stream_, "captured"));
  ASSERT_CUDA(End(stream_));
  ASSERT_CUDA(cudaStreamSynchronize(stream_));
  EXPECT_THAT(log_.Take(), ElementsAre());
  ASSERT_CUDA(log_.Append(stream_, "after"));
  ASSERT_CUDA(cudaStreamSynchronize(stream_));
  EXPECT_THAT(log_.Take(), ElementsAre("after"));
}

TEST_F(CaptureTest, AStreamThatWaitsForACapturedEventJoinsAndMustBeJoinedAgain) {
  ASSERT_CUDA(cudaStreamBeginCapture(stream_, kGlobal));
  ASSERT_CUDA(log_.Append(stream_, "first"));
  ASSERT_CUDA(cudaEventRecord(event_, stream_));
  EXPECT_EQ(StatusOf(other_), cudaStreamCaptureStatusNone);
  ASSERT_CUDA(cudaStreamWaitEvent(other_, event_, 0));
  EXPECT_EQ(StatusOf(other_), cudaStreamCaptureStatusActive);
  unsigned long long id = 0, other_id = 1;
  cudaStreamCaptureStatus status = {};
  EXPECT_CUDA(cudaStreamGetCaptureInfo(stream_, &status, &id));
  EXPECT_CUDA(cudaStreamGetCaptureInfo(other_, &status, &other_id));
  EXPECT_EQ(id, other_id);
  ASSERT_CUDA(log_.Append(other_, "second"));
  EXPECT_THAT(PrintedBy([&] { EXPECT_EQ(End(stream_), cudaErrorStreamCaptureUnjoined); }),
              HasSubstr("cudaStreamEndCapture"));
  EXPECT_EQ(StatusOf(stream_), cudaStreamCaptureStatusNone);
  EXPECT_EQ(StatusOf(other_), cudaStreamCaptureStatusNone);
}

TEST_F(CaptureTest, AJoinedStreamEnds) {
  ASSERT_CUDA(cudaStreamBeginCapture(stream_, kGlobal));
  ASSERT_CUDA(cudaEventRecord(event_, stream_));
  ASSERT_CUDA(cudaStreamWaitEvent(other_, event_, 0));
  ASSERT_CUDA(log_.Append(other_, "work"));
  Event joined;
  ASSERT_CUDA(cudaEventRecord(joined, other_));
  ASSERT_CUDA(cudaStreamWaitEvent(stream_, joined, 0));
  EXPECT_CUDA(End(stream_));
  EXPECT_CUDA(cudaStreamSynchronize(other_));
}

TEST_F(CaptureTest, DoesNotWaitForWorkOutsideOfIt) {
  ASSERT_CUDA(cudaEventRecord(uncaptured_, other_));
  ASSERT_CUDA(cudaStreamBeginCapture(stream_, kGlobal));
  EXPECT_THAT(PrintedBy([&] {
                EXPECT_EQ(cudaStreamWaitEvent(stream_, uncaptured_, 0),
                          cudaErrorStreamCaptureIsolation);
              }),
              AllOf(HasSubstr("stream "), HasSubstr("event ")));
  EXPECT_EQ(End(stream_), cudaErrorStreamCaptureInvalidated);
}

TEST_F(CaptureTest, DoesNotWaitForAnEventOfAnEarlierCapture) {
  ASSERT_CUDA(cudaStreamBeginCapture(stream_, kGlobal));
  ASSERT_CUDA(cudaEventRecord(event_, stream_));
  ASSERT_CUDA(End(stream_));
  EXPECT_EQ(cudaStreamWaitEvent(other_, event_, 0), cudaErrorCapturedEvent);
  EXPECT_EQ(cudaEventQuery(event_), cudaErrorCapturedEvent);
  ASSERT_CUDA(cudaStreamBeginCapture(stream_, kGlobal));
  EXPECT_EQ(cudaStreamWaitEvent(stream_, event_, 0), cudaErrorStreamCaptureIsolation);
  EXPECT_EQ(End(stream_), cudaErrorStreamCaptureInvalidated);
  // A record outside makes it an event as any other.
  ASSERT_CUDA(cudaEventRecord(event_, stream_));
  EXPECT_CUDA(cudaStreamWaitEvent(other_, event_, 0));
  EXPECT_CUDA(cudaEventSynchronize(event_));
}

TEST_F(CaptureTest, DoesNotMergeWithAnother) {
  ASSERT_CUDA(cudaStreamBeginCapture(stream_, kGlobal));
  ASSERT_CUDA(cudaStreamBeginCapture(other_, kGlobal));
  ASSERT_CUDA(cudaEventRecord(event_, stream_));
  EXPECT_EQ(cudaStreamWaitEvent(other_, event_, 0), cudaErrorStreamCaptureMerge);
  EXPECT_EQ(End(stream_), cudaErrorStreamCaptureInvalidated);
  EXPECT_EQ(End(other_), cudaErrorStreamCaptureInvalidated);
}

TEST_F(CaptureTest, TheLegacyStreamCannotBeUsedWhileABlockingStreamCaptures) {
  Ints data(1);
  int value = 0;
  Stream blocking(cudaStreamDefault);
  const std::function<cudaError_t()> uses[] = {
      [&] { return log_.Append(nullptr, "legacy"); },
      [&] { return Add(data, 1, 1, nullptr); },
      [&] { return cudaMemcpy(&value, data, sizeof(value), cudaMemcpyDeviceToHost); },
      [&] { return cudaMemsetAsync(data, 0, sizeof(value), nullptr); },
      [&] { return cudaEventRecord(uncaptured_, nullptr); },
      [&] { return cudaStreamSynchronize(nullptr); },
      [&] { return cudaStreamQuery(nullptr); },
  };
  for (const auto& use : uses) {
    ASSERT_CUDA(cudaStreamBeginCapture(blocking, kRelaxed));
    cudaStreamCaptureStatus status = {};
    EXPECT_EQ(cudaStreamIsCapturing(nullptr, &status), cudaErrorStreamCaptureImplicit);
    EXPECT_EQ(StatusOf(blocking), cudaStreamCaptureStatusActive);
    EXPECT_EQ(InOtherThread(use), cudaErrorStreamCaptureImplicit);
    EXPECT_EQ(End(blocking), cudaErrorStreamCaptureInvalidated);
  }
  cudaGetLastError();
  ASSERT_CUDA(cudaStreamBeginCapture(stream_, kRelaxed));
  for (const auto& use : uses) EXPECT_CUDA(use());
  EXPECT_CUDA(End(stream_));
}

TEST_F(CaptureTest, TheLegacyStreamNeitherBeginsNorJoinsOne) {
  EXPECT_EQ(cudaStreamBeginCapture(nullptr, kGlobal), cudaErrorStreamCaptureUnsupported);
  EXPECT_EQ(cudaStreamBeginCapture(cudaStreamLegacy, kGlobal), cudaErrorStreamCaptureUnsupported);
  ASSERT_CUDA(cudaStreamBeginCapture(stream_, kGlobal));
  ASSERT_CUDA(cudaEventRecord(event_, stream_));
  EXPECT_EQ(cudaStreamWaitEvent(nullptr, event_, 0), cudaErrorStreamCaptureImplicit);
  EXPECT_EQ(End(stream_), cudaErrorStreamCaptureInvalidated);
}

TEST_F(CaptureTest, AFailedOneLetsItsKernelsGoThoughAnEventWasRecordedInIt) {
  auto held = std::make_shared<int>();
  const std::weak_ptr<int> kernel = held;
  ASSERT_CUDA(cudaStreamBeginCapture(stream_, kGlobal));
  ASSERT_CUDA(EnqueueKernel(stream_, "kernel", [held] { return absl::OkStatus(); }));
  held = nullptr;
  ASSERT_CUDA(cudaEventRecord(event_, stream_));
  EXPECT_FALSE(kernel.expired());
  void* data = nullptr;
  EXPECT_EQ(cudaMalloc(&data, 16), cudaErrorStreamCaptureUnsupported);
  EXPECT_EQ(End(stream_), cudaErrorStreamCaptureInvalidated);
  EXPECT_TRUE(kernel.expired());
}

TEST_F(CaptureTest, EndsInItsStreamAndThread) {
  EXPECT_EQ(End(stream_), cudaErrorIllegalState);
  ASSERT_CUDA(cudaStreamBeginCapture(stream_, kThreadLocal));
  EXPECT_EQ(cudaStreamBeginCapture(stream_, kThreadLocal), cudaErrorIllegalState);
  EXPECT_EQ(InOtherThread([&] { return End(stream_); }), cudaErrorStreamCaptureWrongThread);
  EXPECT_CUDA(End(stream_));

  ASSERT_CUDA(cudaStreamBeginCapture(stream_, kRelaxed));
  EXPECT_CUDA(InOtherThread([&] { return End(stream_); }));

  ASSERT_CUDA(cudaStreamBeginCapture(stream_, kGlobal));
  ASSERT_CUDA(cudaEventRecord(event_, stream_));
  ASSERT_CUDA(cudaStreamWaitEvent(other_, event_, 0));
  EXPECT_EQ(End(other_), cudaErrorStreamCaptureUnmatched);
  EXPECT_EQ(End(stream_), cudaErrorStreamCaptureInvalidated);
}

TEST_F(CaptureTest, RefusesModesThatDoNotExist) {
  auto mode = static_cast<cudaStreamCaptureMode>(3);
  EXPECT_EQ(cudaStreamBeginCapture(stream_, mode), cudaErrorInvalidValue);
  EXPECT_EQ(cudaThreadExchangeStreamCaptureMode(&mode), cudaErrorInvalidValue);
  EXPECT_EQ(cudaStreamEndCapture(stream_, nullptr), cudaErrorInvalidValue);
}

TEST_F(CaptureTest, EndsWithTheThreadOfItsPerThreadStream) {
  EXPECT_CUDA(InOtherThread([&] {
    EXPECT_CUDA(cudaStreamBeginCapture(cudaStreamPerThread, kGlobal));
    EXPECT_CUDA(cudaEventRecord(event_, cudaStreamPerThread));
    return cudaStreamWaitEvent(stream_, event_, 0);
  }));
  EXPECT_EQ(StatusOf(stream_), cudaStreamCaptureStatusNone);
  EXPECT_CUDA(cudaDeviceSynchronize());
}

}  // namespace
}  // namespace brigade::emulator
