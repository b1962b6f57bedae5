#include "brigade/tests/emulator/runtime/kernels.h"
#include "brigade/tests/emulator/runtime/testing.h"

namespace brigade::emulator {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class EventTest : public RuntimeTest {
 protected:
  Stream a_, b_, c_;
  Event event_;
  Log log_;
};

TEST_F(EventTest, AWaitBindsTheLatestRecordBeforeIt) {
  Gate gate(a_);
  ASSERT_CUDA(log_.Append(a_, "a"));
  ASSERT_CUDA(cudaEventRecord(event_, a_));
  ASSERT_CUDA(cudaStreamWaitEvent(b_, event_, 0));
  ASSERT_CUDA(log_.Append(b_, "b"));
  // A later record changes nothing for b, but for c.
  Stream free;
  ASSERT_CUDA(cudaEventRecord(event_, free));
  ASSERT_CUDA(cudaStreamWaitEvent(c_, event_, 0));
  ASSERT_CUDA(log_.Append(c_, "c"));
  EXPECT_CUDA(cudaStreamSynchronize(c_));
  EXPECT_CUDA(cudaEventSynchronize(event_));
  gate.OpenLate();
  ASSERT_CUDA(cudaDeviceSynchronize());
  EXPECT_THAT(log_.Take(), ElementsAre("c", "a", "b"));
}

TEST_F(EventTest, IsReadyWhenTheWorkBeforeItsRecordIsDone) {
  EXPECT_CUDA(cudaEventQuery(event_));  // never recorded
  EXPECT_CUDA(cudaEventSynchronize(event_));
  ASSERT_CUDA(cudaStreamWaitEvent(b_, event_, 0));
  Gate gate(a_);
  ASSERT_CUDA(log_.Append(a_, "a"));
  ASSERT_CUDA(cudaEventRecord(event_, a_));
  EXPECT_EQ(cudaEventQuery(event_), cudaErrorNotReady);
  std::thread opener([&] { gate.OpenLate(); });
  EXPECT_CUDA(cudaEventSynchronize(event_));
  EXPECT_THAT(log_.Take(), ElementsAre("a"));
  EXPECT_CUDA(cudaEventQuery(event_));
  opener.join();
}

TEST_F(EventTest, DestructionKeepsWaits) {
  cudaEvent_t event = nullptr;
  ASSERT_CUDA(cudaEventCreate(&event));
  Gate gate(a_);
  ASSERT_CUDA(log_.Append(a_, "a"));
  ASSERT_CUDA(cudaEventRecord(event, a_));
  ASSERT_CUDA(cudaStreamWaitEvent(b_, event, 0));
  ASSERT_CUDA(log_.Append(b_, "b"));
  ASSERT_CUDA(cudaEventDestroy(event));
  gate.OpenLate();
  ASSERT_CUDA(cudaDeviceSynchronize());
  EXPECT_THAT(log_.Take(), ElementsAre("a", "b"));
}

TEST_F(EventTest, MeasuresTheTimeBetweenRecords) {
  Event end;
  ASSERT_CUDA(cudaEventRecord(event_, a_));
  ASSERT_CUDA(cudaEventSynchronize(event_));
  {
    Gate gate(a_);
    ASSERT_CUDA(cudaEventRecord(end, a_));
    float milliseconds = -1;
    EXPECT_EQ(cudaEventElapsedTime(&milliseconds, event_, end), cudaErrorNotReady);
    gate.OpenLate();
  }
  ASSERT_CUDA(cudaEventSynchronize(end));
  float forward = 0, backward = 0;
  ASSERT_CUDA(cudaEventElapsedTime(&forward, event_, end));
  ASSERT_CUDA(cudaEventElapsedTime(&backward, end, event_));
  EXPECT_GE(forward, 20.0f);
  EXPECT_EQ(backward, -forward);
}

TEST_F(EventTest, HasNoTimeWithoutARecordOrWithTimingDisabled) {
  Event untimed(cudaEventDisableTiming);
  float milliseconds = 0;
  EXPECT_THAT(PrintedBy([&] {
                EXPECT_EQ(cudaEventElapsedTime(&milliseconds, event_, event_),
                          cudaErrorInvalidResourceHandle);
              }),
              AllOf(HasSubstr("cudaEventElapsedTime"), HasSubstr("was never recorded")));
  ASSERT_CUDA(cudaEventRecord(event_, a_));
  ASSERT_CUDA(cudaEventRecord(untimed, a_));
  ASSERT_CUDA(cudaStreamSynchronize(a_));
  EXPECT_EQ(cudaEventElapsedTime(&milliseconds, event_, untimed), cudaErrorInvalidResourceHandle);
}

TEST_F(EventTest, NamesTheFlagsThatItDoesNotSupport) {
  const auto expect = [](const char* text, cudaError_t expected, auto call) {
    EXPECT_THAT(PrintedBy([&] { EXPECT_EQ(call(), expected); }), HasSubstr(text));
  };
  expect("a graph's node", cudaErrorNotSupported,
         [&] { return cudaEventRecordWithFlags(event_, a_, cudaEventRecordExternal); });
  expect("a graph's node", cudaErrorNotSupported,
         [&] { return cudaStreamWaitEvent(a_, event_, cudaEventWaitExternal); });
  expect("several processes", cudaErrorNotSupported, [] {
    cudaEvent_t event = nullptr;
    return cudaEventCreateWithFlags(&event, cudaEventInterprocess | cudaEventDisableTiming);
  });
  expect("", cudaErrorInvalidValue, [&] { return cudaStreamWaitEvent(a_, event_, 8); });
  expect("", cudaErrorInvalidValue, [&] { return cudaEventRecordWithFlags(event_, a_, 8); });
  expect("", cudaErrorInvalidValue, [] {
    cudaEvent_t event = nullptr;
    return cudaEventCreateWithFlags(&event, 64);
  });
}

TEST_F(EventTest, OfAnotherDeviceIsWaitedForButNotRecorded) {
  ASSERT_CUDA(cudaSetDevice(1));
  Event other;
  Stream stream;
  ASSERT_CUDA(cudaSetDevice(0));
  EXPECT_THAT(
      PrintedBy([&] { EXPECT_EQ(cudaEventRecord(other, a_), cudaErrorInvalidResourceHandle); }),
      AllOf(HasSubstr("of device 1 in stream"), HasSubstr("of device 0")));
  Gate gate(stream);
  ASSERT_CUDA(log_.Append(stream, "device 1"));
  ASSERT_CUDA(cudaEventRecord(other, stream));
  ASSERT_CUDA(cudaStreamWaitEvent(a_, other, 0));
  ASSERT_CUDA(log_.Append(a_, "device 0"));
  EXPECT_EQ(cudaEventQuery(other), cudaErrorNotReady);
  gate.OpenLate();
  EXPECT_CUDA(cudaEventSynchronize(other));
  ASSERT_CUDA(cudaStreamSynchronize(a_));
  EXPECT_THAT(log_.Take(), ElementsAre("device 1", "device 0"));
  ASSERT_CUDA(cudaEventRecord(event_, a_));
  float milliseconds = 0;
  EXPECT_EQ(cudaEventElapsedTime(&milliseconds, other, event_), cudaErrorInvalidResourceHandle);
}

}  // namespace
}  // namespace brigade::emulator
