// Two GPUs: what belongs to one is refused by the other, and nobody but the user of a GPU pays for
// a context on it. Skipped where there is one.

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <memory>
#include <thread>

#include "brigade/device/context.h"
#include "brigade/tests/device/testing.h"
#include "brigade/tests/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::device {
namespace {

using ::brigade::testing::StatusIs;
using ::testing::HasSubstr;

constexpr int64_t kBytes = 1 << 20;

std::unique_ptr<Context> CreateOn(int ordinal) {
  ContextOptions options = CpuOptions();
  options.device = Cuda(ordinal);
  return CreateContext(options);
}

bool HasContext(int ordinal) {
  void* function = nullptr;
  EXPECT_EQ(cudaGetDriverEntryPointByVersion("cuDevicePrimaryCtxGetState", &function, 12000,
                                             cudaEnableDefault, nullptr),
            cudaSuccess);
  unsigned flags = 0;
  int active = 0;
  EXPECT_EQ(
      reinterpret_cast<decltype(&cuDevicePrimaryCtxGetState)>(function)(ordinal, &flags, &active),
      CUDA_SUCCESS);
  return active != 0;
}

class CudaDevicesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    int devices = 0;
    ASSERT_EQ(cudaGetDeviceCount(&devices), cudaSuccess);
    if (devices < 2) GTEST_SKIP() << "one GPU";
  }
};

// First in the process: a context is never given back.
TEST_F(CudaDevicesTest, OnlyTheDeviceThatIsUsedGetsAContext) {
  auto context = CreateOn(1);
  {
    auto stream = context->CreateStream("compute").value();
    auto event = context->CreateEvent("event").value();
    const Buffer memory = context->Allocate(kBytes, Purpose::kScratch).value();
    ASSERT_OK(stream->FillBytes(memory.data(), 1, kBytes));
    ASSERT_OK(stream->Record(*event));
    ASSERT_OK(event->Synchronize());
    std::thread([&] { EXPECT_OK(stream->Synchronize()); }).join();
  }
  EXPECT_TRUE(HasContext(1));
  EXPECT_FALSE(HasContext(0));
  int current = -1;
  ASSERT_EQ(cudaGetDevice(&current), cudaSuccess);
  EXPECT_EQ(current, 0);
  // A device that the caller has chosen stays its choice.
  ASSERT_EQ(cudaSetDevice(1), cudaSuccess);
  EXPECT_OK(CreateOn(0)->Allocate(kBytes, Purpose::kScratch));
  ASSERT_EQ(cudaGetDevice(&current), cudaSuccess);
  EXPECT_EQ(current, 1);
  ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
}

TEST_F(CudaDevicesTest, RecordsAnEventOnItsOwnDeviceOnly) {
  auto first = CreateOn(0), second = CreateOn(1);
  auto stream = first->CreateStream("first").value();
  auto other_stream = second->CreateStream("second").value();
  auto event = second->CreateEvent("theirs").value();
  EXPECT_THAT(stream->Record(*event),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("event \"theirs\" is on cuda:1, but stream \"first\" is on "
                                 "cuda:0")));
  EXPECT_OK(stream->status());
  // A wait may go from one device to the other.
  const Buffer here = first->Allocate(kBytes, Purpose::kScratch).value();
  const Buffer there = second->Allocate(kBytes, Purpose::kScratch).value();
  ASSERT_OK(other_stream->FillBytes(there.data(), 7, kBytes));
  ASSERT_OK(other_stream->Record(*event));
  ASSERT_OK(stream->Wait(*event));
  ASSERT_OK(stream->Copy(here.data(), there.data(), kBytes));
  std::vector<char> host(kBytes);
  ASSERT_OK(stream->Copy(host.data(), here.data(), kBytes));
  ASSERT_OK(stream->Synchronize());
  EXPECT_EQ(host, std::vector<char>(kBytes, 7));
}

}  // namespace
}  // namespace brigade::device
