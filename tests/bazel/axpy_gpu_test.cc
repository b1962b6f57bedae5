#include <gtest/gtest.h>

#include "brigade/tests/bazel/axpy_cuda.h"

namespace brigade::tests {
namespace {

TEST(GpuBuildTest, RunsAKernelOfALibrary) {
  float* device = nullptr;
  ASSERT_EQ(cudaMalloc(&device, 2 * sizeof(float)), cudaSuccess);
  const float in[2] = {2.0f, 5.0f};
  ASSERT_EQ(cudaMemcpy(device, in, sizeof(in), cudaMemcpyHostToDevice), cudaSuccess);
  ASSERT_EQ(LaunchAxpy(3.0f, device, device + 1, 1, nullptr), cudaSuccess);
  float out = 0;
  ASSERT_EQ(cudaMemcpy(&out, device + 1, sizeof(out), cudaMemcpyDeviceToHost), cudaSuccess);
  EXPECT_EQ(out, 11.0f);
  EXPECT_EQ(cudaFree(device), cudaSuccess);
}

}  // namespace
}  // namespace brigade::tests
