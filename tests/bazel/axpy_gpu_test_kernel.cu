#include <gtest/gtest.h>

namespace {

__global__ void FillKernel(float* out, float value) { out[threadIdx.x] = value; }

}  // namespace

TEST(GpuBuildTest, RunsAKernelOfTheTestItself) {
  float* device = nullptr;
  ASSERT_EQ(cudaMalloc(&device, 32 * sizeof(float)), cudaSuccess);
  FillKernel<<<1, 32>>>(device, 3.0f);
  float host[32] = {};
  ASSERT_EQ(cudaMemcpy(host, device, sizeof(host), cudaMemcpyDeviceToHost), cudaSuccess);
  for (float value : host) EXPECT_EQ(value, 3.0f);
  EXPECT_EQ(cudaFree(device), cudaSuccess);
}
