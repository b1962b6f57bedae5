// What a machine without a usable GPU answers: Unavailable with the reason, never a crash.

#include <string>

#include "brigade/device/context.h"
#include "brigade/device/device_memory.h"
#include "brigade/tests/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::device {
namespace {

using ::brigade::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(CudaAbsentTest, ContextSaysWhyThereIsNoGpu) {
  for (int i = 0; i < 3; ++i) {  // the answer does not depend on what was asked before
    ContextOptions options;
    options.device = Cuda(i);
    const auto context = Context::Create(options);
    if (context.ok()) GTEST_SKIP() << "there is a GPU; cuda_test covers it";
    EXPECT_EQ(MemoryOf(Cuda(i)).status(), context.status());
    const std::string device = "cuda:" + std::to_string(i);
#if BRIGADE_CUDA
    EXPECT_THAT(context, StatusIs(absl::StatusCode::kUnavailable,
                                  ::testing::AnyOf(AllOf(HasSubstr(device + ": cudaGetDeviceCount"),
                                                         HasSubstr("cudaError")),
                                                   HasSubstr(device + ": no such device"))));
#else
    EXPECT_THAT(context, StatusIs(absl::StatusCode::kUnavailable, device + ": built without CUDA"));
#endif
  }
}

TEST(DeviceMemoryTest, OfTheCpuIsTheMachines) {
  ASSERT_OK_AND_ASSIGN(const DeviceMemory memory, MemoryOf(Cpu()));
  EXPECT_GT(memory.free, 0);
  EXPECT_LE(memory.free, memory.total);
}

}  // namespace
}  // namespace brigade::device
