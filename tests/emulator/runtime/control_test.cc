// What tests tell the emulated devices: faults to inject, launches to record; and the end of a
// process that has made mistakes.

#include <cstdlib>
#include <functional>

#include "brigade/tests/emulator/runtime/kernels.h"
#include "brigade/tests/emulator/runtime/testing.h"

namespace brigade::emulator {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class ControlTest : public RuntimeTest {
 protected:
  Stream stream_;
  Event event_;
};

TEST_F(ControlTest, TheNthCallOfAFunctionFailsAndDoesNothing) {
  Ints data(4);
  std::vector<int> host(4);
  const std::pair<const char*, std::function<cudaError_t()>> calls[] = {
      {"cudaLaunchKernel", [&] { return Add(data, 4, 1, stream_); }},
      {"cudaMemcpy", [&] { return cudaMemcpy(data, host.data(), 16, cudaMemcpyHostToDevice); }},
      {"cudaMemcpyAsync",
       [&] { return cudaMemcpyAsync(data, host.data(), 16, cudaMemcpyHostToDevice, stream_); }},
      {"cudaMemsetAsync", [&] { return cudaMemsetAsync(data, 0, 16, stream_); }},
      {"cudaEventRecord", [&] { return cudaEventRecord(event_, stream_); }},
      {"cudaEventQuery", [&] { return cudaEventQuery(event_); }},
      {"cudaEventSynchronize", [&] { return cudaEventSynchronize(event_); }},
      {"cudaStreamWaitEvent", [&] { return cudaStreamWaitEvent(stream_, event_, 0); }},
      {"cudaStreamSynchronize", [&] { return cudaStreamSynchronize(stream_); }},
      {"cudaSetDevice", [&] { return cudaSetDevice(0); }},
      {"cudaLaunchHostFunc",
       [&] {
         return cudaLaunchHostFunc(
             stream_, [](void*) {}, nullptr);
       }},
  };
  for (const auto& [function, call] : calls) {
    SCOPED_TRACE(function);
    const int64_t before = Calls(function);
    Inject({function, 2, cudaErrorLaunchTimeout});
    EXPECT_CUDA(call());
    EXPECT_CUDA(cudaDeviceSynchronize());
    EXPECT_EQ(call(), cudaErrorLaunchTimeout);
    EXPECT_EQ(Calls(function), before + 2);
    cudaGetLastError();
    EXPECT_CUDA(call());
    EXPECT_CUDA(cudaDeviceSynchronize());
  }
  // It is no error of the device's.
  EXPECT_CUDA(cudaDeviceSynchronize());
}

TEST_F(ControlTest, AFailedCallHasNoEffect) {
  Ints data(1);
  Inject({"cudaLaunchKernel", 1, cudaErrorLaunchFailure});
  EXPECT_EQ(Add(data, 1, 1, stream_), cudaErrorLaunchFailure);
  EXPECT_THAT(data.Values(), ElementsAre(0));
}

TEST_F(ControlTest, FaultsOfOneFunctionCountTheSameCalls) {
  Inject({"cudaSetDevice", 1, cudaErrorUnknown});
  Inject({"cudaSetDevice", 2, cudaErrorNotReady});
  Inject({"cudaSetDevice", 4, cudaErrorNotSupported});
  std::vector<cudaError_t> results;
  for (int i = 0; i < 5; ++i) results.push_back(cudaSetDevice(0));
  EXPECT_THAT(results, ElementsAre(cudaErrorUnknown, cudaErrorNotReady, cudaSuccess,
                                   cudaErrorNotSupported, cudaSuccess));
}

TEST_F(ControlTest, RecordsLaunches) {
  Ints data(100);
  RecordLaunches(true);
  ASSERT_CUDA(Add(data, 100, 1, stream_));
  ASSERT_CUDA(cudaStreamSynchronize(stream_));
  RecordLaunches(false);
  ASSERT_CUDA(Add(data, 100, 1, stream_));
  ASSERT_CUDA(cudaStreamSynchronize(stream_));
  const std::vector<LaunchRecord> launches = TakeLaunches();
  ASSERT_THAT(launches, SizeIs(1));
  EXPECT_THAT(launches[0].kernel, HasSubstr("AddKernel"));
  EXPECT_EQ(launches[0].grid.x, 2);
  EXPECT_EQ(launches[0].block.x, 64);
  EXPECT_EQ(launches[0].loads.bytes, 400);
  EXPECT_EQ(launches[0].stores.bytes, 400);
  EXPECT_EQ(launches[0].loads.sectors, launches[0].loads.least_sectors);
  EXPECT_THAT(TakeLaunches(), IsEmpty());
}

TEST(FinishTest, AProcessThatEndsWithReportsFailsAndShowsThem) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        cudaEventQuery(reinterpret_cast<cudaEvent_t>(0x40));
        std::exit(0);
      },
      ::testing::ExitedWithCode(EXIT_FAILURE), "cudaEventQuery: 0x40 is no event(.|\n)*1 report");
  EXPECT_EXIT(
      {
        cudaEventQuery(reinterpret_cast<cudaEvent_t>(0x40));
        TakeReports();
        std::exit(0);
      },
      ::testing::ExitedWithCode(0), "is no event");
}

}  // namespace
}  // namespace brigade::emulator
