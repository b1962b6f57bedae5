#include "brigade/device/cuda/cuda_status.h"

#include <cuda_runtime_api.h>

#include "brigade/tests/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::device {
namespace {

using ::brigade::testing::StatusIs;

TEST(CudaStatusTest, MapsEveryKindOfError) {
  EXPECT_OK(CudaStatus(cudaSuccess, "nothing"));
  const auto expect = [](cudaError_t error, absl::StatusCode code) {
    EXPECT_THAT(CudaStatus(error, "call"), StatusIs(code)) << cudaGetErrorName(error);
  };
  expect(cudaErrorMemoryAllocation, absl::StatusCode::kResourceExhausted);
  expect(cudaErrorInsufficientDriver, absl::StatusCode::kUnavailable);
  expect(cudaErrorNoDevice, absl::StatusCode::kUnavailable);
  expect(cudaErrorInvalidValue, absl::StatusCode::kInvalidArgument);
  expect(cudaErrorInvalidDevice, absl::StatusCode::kInvalidArgument);
  expect(cudaErrorNoKernelImageForDevice, absl::StatusCode::kUnimplemented);
  expect(cudaErrorStreamCaptureUnsupported, absl::StatusCode::kFailedPrecondition);
  expect(cudaErrorLaunchTimeout, absl::StatusCode::kDeadlineExceeded);
  expect(cudaErrorIllegalAddress, absl::StatusCode::kInternal);
  expect(cudaErrorUnknown, absl::StatusCode::kInternal);
}

TEST(CudaStatusTest, NamesTheCallAndTheError) {
  EXPECT_THAT(CudaStatus(cudaErrorMemoryAllocation, "cudaMalloc"),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       "cudaMalloc: cudaErrorMemoryAllocation (out of memory)"));
}

}  // namespace
}  // namespace brigade::device
