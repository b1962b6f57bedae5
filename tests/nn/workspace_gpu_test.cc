// A workspace among devices, and beside errors that are not its own.

#include <cuda_runtime_api.h>

#include "brigade/nn/embedding.h"
#include "brigade/nn/pointwise.h"
#include "brigade/nn/workspace.h"
#include "brigade/tests/nn/lab.h"

namespace brigade::nn {
namespace {

TEST(WorkspaceTest, OneOfAnotherDeviceIsRefused) {
  Lab gpu, cpu(device::Cpu());
  EXPECT_EQ(
      BiasBackward({precision::DType::kFloat32, 1, 1}, nullptr, {}, cpu.workspace(), gpu.stream()),
      absl::InvalidArgumentError("bias_backward: the workspace is of cpu:0, the stream of cuda:0"));
}

// CUB returns whatever error the thread has.
TEST(WorkspaceTest, AnOlderErrorOfTheThreadIsNotTheSorts) {
  Lab lab;
  const auto bytes = lab.Bytes(101), dx = lab.Raw<uint8_t>(400), d = lab.Raw<uint8_t>(4 * 400);
  ASSERT_EQ(cudaSetDevice(1000), cudaErrorInvalidDevice);
  EXPECT_OK(EmbeddingBackward(Texts{bytes.data(), 1, 100}, precision::DType::kFloat32, 1, dx.data(),
                              {d.data()}, {d.data()}, lab.workspace(), lab.stream()));
  EXPECT_OK(lab.stream().Synchronize());
  ASSERT_EQ(cudaSetDevice(1000), cudaErrorInvalidDevice);
  EXPECT_OK(Workspace::Create(lab.context(), precision::DType::kFloat32, {.rows = 10}));
}

}  // namespace
}  // namespace brigade::nn
