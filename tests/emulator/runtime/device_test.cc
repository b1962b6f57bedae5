#include <cstdlib>

#include "brigade/tests/emulator/runtime/kernels.h"
#include "brigade/tests/emulator/runtime/testing.h"

namespace brigade::emulator {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// In a process of its own: contexts stay.
TEST(ContextTest, BeginsWithTheFirstUseOfItsDevice) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        int count = 0;
        EXPECT_CUDA(cudaGetDeviceCount(&count));
        EXPECT_EQ(count, 5);
        int major = 0;
        EXPECT_CUDA(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 3));
        cudaDeviceProp properties;
        EXPECT_CUDA(cudaGetDeviceProperties(&properties, 3));
        EXPECT_EQ(properties.major, major);
        EXPECT_THAT(DevicesWithContext(), IsEmpty());
        EXPECT_CUDA(cudaFree(nullptr));
        EXPECT_THAT(DevicesWithContext(), ElementsAre(0));
        EXPECT_CUDA(cudaSetDevice(3));
        EXPECT_THAT(DevicesWithContext(), ElementsAre(0, 3));
        EXPECT_CUDA(cudaInitDevice(1, 0, 0));
        EXPECT_THAT(DevicesWithContext(), ElementsAre(0, 1, 3));
        EXPECT_CUDA(InOtherThread([] { return cudaSetDevice(2); }));
        EXPECT_THAT(DevicesWithContext(), ElementsAre(0, 1, 2, 3));
        std::exit(::testing::Test::HasFailure() ? 1 : 0);
      },
      ::testing::ExitedWithCode(0), "");
}

TEST(NoDeviceTest, EveryCallThatNeedsOneSaysThatThereIsNone) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        setenv("BRIGADE_EMULATOR_DEVICES", "0", 1);
        int count = -1;
        int version = -1;
        EXPECT_EQ(cudaGetDeviceCount(&count), cudaErrorNoDevice);
        EXPECT_EQ(count, 0);
        EXPECT_CUDA(cudaDriverGetVersion(&version));
        EXPECT_EQ(version, 0);
        void* data = nullptr;
        EXPECT_EQ(cudaSetDevice(0), cudaErrorNoDevice);
        EXPECT_EQ(cudaMalloc(&data, 4), cudaErrorNoDevice);
        EXPECT_EQ(LaunchOf(1, 1, nullptr), cudaErrorNoDevice);
        std::exit(::testing::Test::HasFailure() ? 1 : 0);
      },
      ::testing::ExitedWithCode(0), "");
}

TEST(OptionTest, ThatIsNoNumberEndsTheProcess) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(
      {
        setenv("BRIGADE_EMULATOR_THREADS", "0", 1);
        cudaFree(nullptr);
      },
      "BRIGADE_EMULATOR_THREADS=0 is no number from 1 on");
}

class DeviceTest : public RuntimeTest {};

TEST_F(DeviceTest, EachThreadHasACurrentOne) {
  ASSERT_CUDA(cudaSetDevice(1));
  EXPECT_CUDA(InOtherThread([] {
    int device = -1;
    const cudaError_t error = cudaGetDevice(&device);
    EXPECT_EQ(device, 0);
    return error;
  }));
  int device = -1;
  EXPECT_CUDA(cudaGetDevice(&device));
  EXPECT_EQ(device, 1);
  EXPECT_EQ(cudaSetDevice(5), cudaErrorInvalidDevice);
  EXPECT_EQ(cudaSetDevice(-1), cudaErrorInvalidDevice);
  EXPECT_CUDA(cudaGetDevice(&device));
  EXPECT_EQ(device, 1);
}

TEST_F(DeviceTest, RunsTheKernelsOfAModuleOnEachDevice) {
  for (int device : {0, 1, 0}) {
    ASSERT_CUDA(cudaSetDevice(device));
    Ints data(64);
    Stream stream;
    ASSERT_CUDA(Add(data, 64, 5, stream));
    EXPECT_THAT(data.Values(), Each(5));
  }
}

TEST_F(DeviceTest, RefusesALaunchIntoAStreamOfAnother) {
  Stream stream;
  Ints data(1);
  ASSERT_CUDA(cudaSetDevice(1));
  EXPECT_THAT(
      PrintedBy([&] { EXPECT_EQ(Add(data, 1, 1, stream), cudaErrorInvalidResourceHandle); }),
      AllOf(HasSubstr("cudaLaunchKernel"), HasSubstr("of device 0, but device 1")));
  // Copies, fills and host functions go into any stream.
  EXPECT_CUDA(cudaMemsetAsync(data, 0, 4, stream));
  EXPECT_CUDA(cudaStreamSynchronize(stream));
}

TEST_F(DeviceTest, DoesNotReachTheMemoryOfAnother) {
  Ints data(1);
  ASSERT_CUDA(cudaSetDevice(4));
  void* out = nullptr;
  ASSERT_CUDA(cudaMalloc(&out, 4));
  Gate gate(nullptr);
  EXPECT_CUDA(CopyOne(static_cast<int*>(out), data, nullptr));
  gate.Open();
  EXPECT_EQ(cudaDeviceSynchronize(), cudaErrorIllegalAddress);
  EXPECT_THAT(TakeTexts(),
              ElementsAre(AllOf(HasSubstr("CopyOneKernel"), HasSubstr("on device 0"))));
  int can = 1;
  EXPECT_CUDA(cudaDeviceCanAccessPeer(&can, 0, 1));
  EXPECT_EQ(can, 0);
  ASSERT_CUDA(cudaSetDevice(0));
}

TEST_F(DeviceTest, TellsItsVersionsAndNoAttributeThatItDoesNotKnow) {
  int driver = 0, runtime = 0, value = 0;
  EXPECT_CUDA(cudaDriverGetVersion(&driver));
  EXPECT_CUDA(cudaRuntimeGetVersion(&runtime));
  EXPECT_EQ(runtime, CUDART_VERSION);
  EXPECT_GE(driver, runtime);
  EXPECT_THAT(PrintedBy([&] {
                EXPECT_EQ(cudaDeviceGetAttribute(&value, cudaDevAttrClockRate, 0),
                          cudaErrorNotSupported);
              }),
              HasSubstr("attribute 13"));
}

}  // namespace
}  // namespace brigade::emulator
